"""With 16 and with 64 ranks (engine stream), the private memory of each rank and of the controller stays small."""

from __future__ import annotations

import json
import time

import psutil
import pytest

from tests.support.end_to_end import SMALLEST, Runner
from tests.support.rank_memory import ranks_of, unshared_bytes

RANK_BYTES = 40_000_000
# The kernel may give single ranks a huge page more.
HUGE_PAGE_BYTES = 2 << 20
# Any number of ranks saves the same checkpoint, so more ranks save less each. Twenty operations are enough to show a
# leak of 0.1 MB in each save and load.
OPTIONS = (*SMALLEST, "--ckpt-scale=1/10000", "--cluster=1", "--ckpt-operations=20", "--ckpt-io-timeout=120s")
# Often enough to see the memory of a save, and seldom enough to leave the ranks a core.
_POLL_SECONDS = 0.25


@pytest.mark.thorough
@pytest.mark.alone
@pytest.mark.parametrize("ranks", [16, 64])
def test_a_rank_with_little_to_save_takes_little_however_often_it_saves(runner: Runner, ranks: int) -> None:
    started = runner.start(*OPTIONS, f"--ckpt-ranks={ranks}")
    controller = psutil.Process(started.process.pid)
    rounds: list[dict[int, int]] = []
    of_controller = 0
    while started.process.poll() is None:
        found = {process.pid: unshared_bytes(process) for process in ranks_of(controller)}
        # The last rank that ends shares the pages of libraries with nobody.
        if len(found) == ranks and [process.pid for process in ranks_of(controller)] == [*found]:
            rounds.append(found)
        of_controller = max(of_controller, unshared_bytes(controller))
        time.sleep(_POLL_SECONDS)
    run = started.finish()
    assert run.code == 0, run.text
    most = {pid: max(found.get(pid, 0) for found in rounds) for found in rounds for pid in found}
    middle, largest = sorted(most.values())[len(most) // 2], max(most.values())
    print(f"{ranks} ranks: {middle} bytes in the median, {largest} at most")
    print(f"controller: {of_controller} bytes; {len(rounds)} rounds")
    assert len(most) == ranks
    assert (middle <= RANK_BYTES, largest <= RANK_BYTES + HUGE_PAGE_BYTES) == (True, True), most
    planned = json.loads((run.report / "plan.json").read_text())["controller_memory_bytes"]
    assert of_controller <= 1.05 * planned
