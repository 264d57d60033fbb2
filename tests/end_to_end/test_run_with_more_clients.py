"""End-to-end runs with more ranks, more hosts or faster clients have the same verdicts as a run with few clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.support.end_to_end import Run, Runner
from tests.support.hidden_hosts import namespace_launcher
from tests.support.machine import Mounts, need_fuse
from tests.support.model_arrays import CLUSTER, NEEDED_BYTES_PER_SECOND
from tests.support.own_model import FILE, SMALL
from tests.support.targets.misbehaving import misbehaving

ROWS = ("SAVE", "LOAD", "SHIFTED", "RESHAPED")
# The load limit then equals the save limit, so one rate decides both.
SAME_LIMIT = "--ckpt-load-budget=0.25%"


@dataclass(frozen=True, kw_only=True)
class Clients:
    ranks: int = 2
    hosts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    rows: tuple[str, ...] = ROWS

    def run(self, runner: Runner, mount: Mounts, **parameters: object) -> Run:
        """Run pytest-ckpt on a target with a limited rate. ``parameters`` are the parameters of the fault ``slow``.

        The target's files are in memory, because other work on a disk would increase the intended times.
        """
        (runner.home / FILE).write_text(SMALL.replace("data = 2", f"data = {self.ranks}"))
        directory = runner.home / "array"
        directory.mkdir()
        words = [f"--ckpt-model=./{FILE}", f"--ckpt-ranks={self.ranks}", f"--cluster={CLUSTER}", SAME_LIMIT]
        words += ["--ckpt-operations=2", *self.options, "-k", " or ".join(self.rows)]
        if self.hosts:
            slots = self.ranks // len(self.hosts)
            words += [
                f"--ckpt-hosts={','.join(f'{host}:{slots}' for host in self.hosts)}",
                f"--ckpt-launcher={namespace_launcher(runner.home)}",
            ]
        with misbehaving(directory, backing=mount("tmpfs", 1 << 10), keep_cache=True) as target:
            target.fault("slow", **parameters)
            run = runner.run(*words, target=target.path)
            assert target.hits("slow")
        return run


CONTENTION = ("--ckpt-suite=performance,contention", "--ckpt-gate-table=posix-shared")
CLIENTS = {
    "few": Clients(options=CONTENTION),
    "twice the ranks": Clients(options=CONTENTION, ranks=4),
    "twice the hosts": Clients(options=CONTENTION, ranks=4, hosts=("left", "right")),
    "twice the requests in flight": Clients(options=(*CONTENTION, "--ckpt-engine=depth=4")),
}


def outcomes(run: Run, rows: tuple[str, ...]) -> dict[str, str]:
    return {v["id"]: v["outcome"] for v in run.document["requirements"] if v["id"] in rows}


@pytest.fixture
def on(runner: Runner, mount: Mounts) -> Callable[..., Run]:
    need_fuse()
    return lambda clients, **parameters: clients.run(runner, mount, **parameters)


@pytest.mark.thorough
@pytest.mark.parametrize("clients", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize(
    ("rate", "outcome"),
    # Other work cannot make a slow array pass.
    [pytest.param(5, "met", marks=pytest.mark.alone, id="good"), pytest.param(0.9, "failed", id="bad")],
)
def test_the_rate_of_the_array_decides_and_not_its_clients(
    on: Callable[..., Run], clients: Clients, rate: float, outcome: str
) -> None:
    run = on(clients, bytes_per_second=rate * NEEDED_BYTES_PER_SECOND)
    assert outcomes(run, ROWS) == dict.fromkeys(ROWS, outcome), run.text
    (measurement,) = run.document["measurements"]
    assert (measurement["processes"], len(measurement["hosts"])) == (clients.ranks, max(1, len(clients.hosts)))


@pytest.mark.thorough
@pytest.mark.parametrize(("ranks", "outcome"), [(2, "failed"), pytest.param(6, "met", marks=pytest.mark.alone)])
def test_an_array_that_caps_each_client_passes_with_enough_of_them_and_the_rate_of_one_is_printed(
    on: Callable[..., Run], ranks: int, outcome: str
) -> None:
    cap = 0.45 * NEEDED_BYTES_PER_SECOND
    run = on(Clients(ranks=ranks, rows=("SAVE",)), bytes_per_second=cap, is_by_rank=True, reads_are_slow=False)
    assert outcomes(run, ("SAVE",)) == {"SAVE": outcome}, run.text
    (verdict,) = (v for v in run.document["requirements"] if v["id"] == "SAVE")
    assert f"for each of {ranks} ranks)" in verdict["detail"]
    assert '<th scope="row">each rank</th>' in (run.report / "certificate.html").read_text()
