"""A single rank that saves or loads in a separate process: ``python -m tests.support.one_rank``.

It reads its instructions as JSON from standard input. It uses one engine, the strategy ``sync``, and the number 1 for
its checkpoint. The last line of its output is JSON: the results, the peak memory, and the imported modules.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.engines import EngineSpec, built_in
from pytest_ckpt.facts.subject import Subject
from pytest_ckpt.facts.targets import AreaRef, CheckpointRef
from pytest_ckpt.sizing.models import Layout, layout
from pytest_ckpt.support.references import load
from pytest_ckpt.targets.schemes import create_target, known_targets, spec_of
from tests.support import CHECKOUT
from tests.support.machine import patience

SEED = 7
CHECKPOINT = 1
_SECONDS = 300


class SingleRankGroup:
    """A rank group of size 1, which needs no communication."""

    size, host, leads_host, spans_hosts = 1, "here", True, False

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank

    def wait(self) -> None: ...

    def start_together(self) -> None: ...

    def host_sum(self, value: int) -> int:
        return value

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def share(self, value: Any) -> Any:
        return value

    def largest(self, value: Any) -> Any:
        return value


def area_in(target: Path) -> AreaRef:
    """Create the area (the directory of a run) in a target directory."""
    return create_target(spec_of(str(target), known_targets()), str(target)).create_area("one-rank")


def checkpoint_in(target: Path) -> Path:
    """Return the directory of the only checkpoint that `as_one_rank` has saved in a target directory."""
    (directory,) = target.glob("*/*/checkpoint-0001")
    return directory


def as_one_rank(
    engine: str, whole: Layout, area: AreaRef, action: str, front: Sequence[str] = (), pattern: str = ""
) -> dict[str, Any]:
    """Let rank 0 of a layout save or load in a separate process, and return its results.

    ``action`` is ``save`` or ``load``. ``front`` contains arguments in front of the command, such as ``strace``.
    """
    asked = {"engine": engine, "area": to_plain(area), "action": action, "processes": whole.processes,
             "pattern": pattern, "model": whole.model.name, "mode": whole.mode, "scale": whole.scale}  # fmt: skip
    done = subprocess.run(
        [*front, sys.executable, "-m", "tests.support.one_rank"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        cwd=CHECKOUT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        timeout=patience(_SECONDS),
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


def _peak_bytes() -> int:
    """Return the peak memory of this process in bytes. The value of getrusage would include the parent process."""
    (kib,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kib) * 1024


def main() -> None:
    from pytest_ckpt.ranks.content import Content  # noqa: PLC0415 - numpy is for this process alone
    from pytest_ckpt.ranks.engines.factory import engine_maker  # noqa: PLC0415
    from pytest_ckpt.ranks.engines.protocol import Clock, expect  # noqa: PLC0415
    from pytest_ckpt.ranks.process.activity import Activity  # noqa: PLC0415
    from pytest_ckpt.ranks.process.job import EngineOptions  # noqa: PLC0415
    from pytest_ckpt.ranks.strategies.sync import SyncStrategy  # noqa: PLC0415

    asked = json.load(sys.stdin)
    spec: EngineSpec | None = built_in(asked["engine"])
    assert spec
    area = from_plain(AreaRef, asked["area"])
    processes = asked["processes"] if asked["mode"] == "open" else None
    shard = layout(asked["model"], mode=asked["mode"], processes=processes, scale=asked["scale"]).rank(0)
    activity, group, store = Activity(), SingleRankGroup(), load(area.opener)(area)
    engine = engine_maker(spec.make)(
        shard=shard,
        content=Content(SEED),
        group=group,
        activity=activity,
        options=EngineOptions(pattern=asked["pattern"]),
    )
    ref = CheckpointRef(subject=Subject(model="one", mode="rank").slug, number=CHECKPOINT)
    found: dict[str, Any] = {"bytes": shard.bytes}
    if asked["action"] == "save":
        store.prepare(ref.subject)
        engine.fill(CHECKPOINT)
        SyncStrategy(engine=engine, store=store, group=group, activity=activity).save(ref)
    else:
        steps = engine.load_steps()
        expect(engine, CHECKPOINT)
        clock = Clock(activity=activity)
        committed = store.open(ref, clock)
        found["loaded"] = found["checked"] = found["faults"] = 0
        for step in range(steps):
            found["loaded"] += engine.load(committed, step, clock)
            seen = engine.verify(CHECKPOINT)
            found["checked"] += seen.bytes_checked
            found["faults"] += seen.fault_count
    print(json.dumps(found | {"peak_bytes": _peak_bytes(), "modules": sorted(sys.modules)}))


if __name__ == "__main__":
    main()
