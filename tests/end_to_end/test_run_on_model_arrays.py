"""Runs on simulated storage arrays with known properties: a bad array must fail, a good array must pass."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.actions import actions
from tests.support.docs_pages import model_arrays_page
from tests.support.end_to_end import Run, Runner, temporary_runner
from tests.support.machine import Mounts, need_fuse
from tests.support.model_arrays import ARRAYS, CLUSTER, NEEDED_BYTES_PER_SECOND, REPEATS, Array, record, recorded
from tests.support.own_model import FILE, SMALL
from tests.support.targets.misbehaving import misbehaving

# The gate table of other end-to-end tests, plus contention, which that table does not measure.
_WITH_TWO_JOBS = """
name = "two jobs"
extends = "speed-only"

[requirements]
NEIGHBOUR = { gate = "required" }
"""


@contextmanager
def target_of(array: Array, directory: Path, mount: Mounts) -> Iterator[tuple[Path, list[str]]]:
    """Yield (target, options): the mounted array, and the additional options that a run on this array needs."""
    # The files are in memory below FUSE: other load on a disk would add to the array's intended times.
    memory = mount("tmpfs", 1 << 10)
    if array.is_memory:
        yield mount("ext4", 900, below=memory), []
        return
    need_fuse()
    with misbehaving(directory, backing=memory, keep_cache=True) as target:
        target.fault(array.fault, **array.parameters)
        cut = shlex.join(target.power_cut_command)
        yield target.path, [actions(power_cut=cut)] if array.cuts_power else []
        assert target.hits(array.fault), "the fault did nothing, so the array is not what its truth says"


def run_on(array: Array, runner: Runner, mount: Mounts) -> Run:
    (runner.home / FILE).write_text(SMALL.replace("data = 2", f"data = {array.ranks}"))
    directory = runner.home / "array"
    directory.mkdir()
    options = [f"--ckpt-model=./{FILE}", f"--ckpt-ranks={array.ranks}", f"--cluster={CLUSTER}"]
    if array.cuts_power:
        options += ["--ckpt-gate-table=posix-local", "--ckpt-suite=conformance", "-k", "DURABLE"]
    if "NEIGHBOUR" in array.expected:
        (runner.home / "gates.toml").write_text(_WITH_TWO_JOBS)
        options.append("--ckpt-gate-table=gates.toml")
    with target_of(array, directory, mount) as (path, more):
        return runner.run(*options, *more, target=path)


def outcomes_of_array(run: Run, array: Array) -> dict[str, str]:
    """Return {requirement: outcome} for each requirement with an expected outcome on the array."""
    verdicts = run.document["requirements"]
    return {
        name: next(
            v["outcome"]
            for v in verdicts
            if v["id"] == name.partition(".")[0] and name.partition(".")[2] in ("", v["subject"])
        )
        for name in array.expected
    }


@pytest.mark.thorough
@pytest.mark.alone
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: array.name)
def test_a_model_array_gets_the_verdict_that_its_truth_deserves(
    array: Array, create_home: Callable[[str], Path], mount: Mounts
) -> None:
    for _ in range(int(os.environ.get(REPEATS, "1"))):
        with temporary_runner(create_home("array")) as runner:
            run = run_on(array, runner, mount)
        seen = outcomes_of_array(run, array)
        page = (run.report / "certificate.html").read_text()
        expected_text = array.expected_text if array.expected_text in page else ""
        record(array, seen, run.code, expected_text=expected_text)
        assert seen == array.expected, run.text
        assert run.code == int("failed" in array.expected.values()), run.text
        assert expected_text == array.expected_text, run.text


def test_the_needed_rate_of_the_table_is_the_planned_one(runner: Runner) -> None:
    (runner.home / FILE).write_text(SMALL)
    run = runner.run(f"--ckpt-model=./{FILE}", "--ckpt-ranks=2", f"--cluster={CLUSTER}", "--ckpt-operations=1")
    (planned,) = run.document["checkpoints"]
    limit = run.verdict("SAVE", f"{planned['model']}-full")["limit"]
    assert planned["bytes"] / limit == pytest.approx(NEEDED_BYTES_PER_SECOND, rel=0.01)


def test_the_page_shows_what_was_recorded_and_every_array_has_the_verdict_that_it_deserves() -> None:
    page = model_arrays_page.PAGE.read_text()
    assert page == model_arrays_page.with_results(page), "run: python -m tests.support.docs_pages.model_arrays_page"
    assert {name: (row["seen"], row["says"]) for name, row in recorded().items()} == {
        array.name: (array.expected, array.expected_text) for array in ARRAYS
    }
