"""Runs that keep only the newest checkpoints, compare types of data, or write compressible data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.config.options import resolve
from pytest_ckpt.grading.obstacles import obstacles, possible_grade
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.sizing.plan import PlannedCheckpoint, plan_run
from pytest_ckpt.support.errors import UsageError
from tests.support.end_to_end import (
    CHECKOUT,
    REQUIRED,
    SUBJECT,
    TINY,
    TORCH,
    Runner,
    counted_steps,
    progress_lines,
    temporary_runner,
)
from tests.support.synthetic_target import mounted

SMALLEST = (
    "--ckpt-model=llama3-8b",
    "--ckpt-mode=open",
    "--ckpt-ranks=2",
    "--ckpt-scale=1/1000",
    "--ckpt-operations=3",
)
# Records the files on the target whenever a checkpoint's directory is created, because then there are the most.
WATCH = """
import json, os, sys

if "pytest_ckpt.ranks" in sys.orig_argv:
    from pytest_ckpt.targets.posix import checkpoint

    make_directory = checkpoint.make_directory

    def make_and_tell(directory):
        make_directory(directory)
        rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK"))
        if rank == "0" and directory.name.endswith(".partial"):
            with open(os.environ["WATCHED"], "a") as file:
                file.write(json.dumps(sorted(os.listdir(directory.parent))) + "\\n")

    checkpoint.make_directory = make_and_tell
"""


class Watched:
    """A run, and the names of its checkpoint directories on the target at the start of each save."""

    def __init__(self, runner: Runner, *options: str) -> None:
        first, log = runner.home / "first", runner.home / "watched"
        first.mkdir()
        (first / "sitecustomize.py").write_text(WATCH)
        self.run = runner.run(*options, environment={"PYTHONPATH": f"{first}:{CHECKOUT}", "WATCHED": str(log)})
        self.at_each_save: list[list[str]] = [json.loads(line) for line in log.read_text().splitlines()]


@pytest.fixture(scope="module")
def streamed(create_home: Callable[[str], Path]) -> Watched:
    with temporary_runner(create_home("streamed")) as runner:
        return Watched(
            runner, *SMALLEST, "--cluster=1", "--ckpt-engine=stream", "--ckpt-keep-last=2", "--ckpt-suite=data-pairs=1"
        )


@pytest.fixture(scope="module")
def by_torch(create_home: Callable[[str], Path]) -> Watched:
    """A run of the engine torch with compressible data. The run's loads read through the page cache."""
    with temporary_runner(create_home("torch")) as runner:
        options = ("--ckpt-operations=4", "--ckpt-keep-last=2", "--ckpt-compressible=25%")
        return Watched(runner, *TINY, TORCH, *options)


@pytest.fixture(params=["streamed", pytest.param("by_torch", marks=pytest.mark.thorough)])
def watched(request: pytest.FixtureRequest) -> Watched:
    found: Watched = request.getfixturevalue(request.param)
    return found


def test_a_run_that_keeps_two_checkpoints_meets_all_that_is_required(watched: Watched) -> None:
    assert watched.run.code == 0, watched.run.text
    assert watched.run.outcomes() == dict.fromkeys(REQUIRED, "met")


def test_there_is_never_more_on_the_target_than_those_two_and_the_one_that_is_written(watched: Watched) -> None:
    assert max(map(len, watched.at_each_save)) == 3
    # One save more than requested, which runs during a deletion.
    count = len(watched.run.operations("save")) + 1
    written = [names[-1] for names in watched.at_each_save[:count]]
    assert written == [f"checkpoint-{n:04d}.partial" for n in range(1, count + 1)]


def test_the_loads_cycle_over_the_two_that_stayed(watched: Watched) -> None:
    saves, loads = (watched.run.operations(kind) for kind in ("save", "load"))
    count = len(saves)
    assert [o["checkpoint"] for o in saves] == list(range(1, count + 1))
    # The additional save ran while the older of two checkpoints was deleted.
    assert [o["checkpoint"] for o in loads] == ([count, count + 1] * count)[:count]
    assert [o["index"] for o in loads] == list(range(1, count + 1))


def test_nothing_that_is_loaded_again_is_in_the_page_cache(watched: Watched) -> None:
    """No page of a checkpoint is cached before a load, although torch reads through the page cache.

    The run drops the cache before each load. Otherwise, the third load would read the cached pages of the first load.
    """
    assert [o["resident_bytes"] for o in watched.run.operations("load")] == [0] * len(watched.run.operations("load"))
    assert watched.run.measurement()["cache"]["method"]


def test_all_bytes_of_every_load_are_compared(watched: Watched) -> None:
    measurement = watched.run.measurement()
    integrity = measurement["integrity"]
    whole = len(watched.run.operations("load")) * measurement["bytes"]
    assert integrity["bytes_checked"] == integrity["bytes_expected"] == whole
    assert integrity["fault_count"] == 0


def test_a_save_during_a_deletion_is_not_counted_with_the_other_saves(watched: Watched) -> None:
    measurement, count = watched.run.measurement(), len(watched.run.operations("save"))
    assert count == measurement["operations_planned"]
    assert (measurement["durability"]["saves"], measurement["durability"]["commits"]) == (count, count)
    assert measurement["stages"]["probes"] > 0


def test_the_lines_count_what_is_measured_during_the_saves_and_loads(watched: Watched) -> None:
    """Progress lines count all saves and loads, including the save that runs during a deletion.

    If the run compares types of data, the lines also count two more saves and two more loads.
    """
    run, count = watched.run, len(watched.run.operations("save"))
    total = 2 * count + 1 + (4 if run.measurement()["data"] else 0)
    assert counted_steps(run.text) == [(number, total) for number in range(1, total + 1)]
    assert "save during a deletion" in progress_lines(run.text)[count]


def test_retention_measures_the_cost_of_deletions(watched: Watched) -> None:
    found, count = watched.run.measurement()["retention"], len(watched.run.operations("save"))
    assert found["kept"] == 2
    assert len(found["delete_seconds"]) == count - 2
    assert min(*found["delete_seconds"], found["save_seconds"], found["save_while_deleting_seconds"]) > 0
    verdict = watched.run.verdict("RETENTION")
    assert (verdict["severity"], verdict["limit"]) == ("advisory", 1.1)
    assert verdict["outcome"] in ("met", "failed")
    assert verdict["measured"] == found["save_while_deleting_seconds"] / found["save_seconds"]
    assert verdict["because"] in (watched.run.report / "certificate.html").read_text()


def test_the_target_is_empty_afterwards(watched: Watched) -> None:
    assert watched.run.left_on_target == []


def test_keeping_less_is_disclosed(watched: Watched) -> None:
    disclosed = json.dumps(watched.run.document["disclosures"])
    assert "--ckpt-keep-last" in disclosed


def test_data_compares_unique_with_constant_data(streamed: Watched) -> None:
    found = streamed.run.measurement()["data"]
    assert found.pop("fault_count") == 0
    assert {name: len(seconds) for name, seconds in found.items()} == {
        f"{kind}_{operation}_seconds": 1 for kind in ("unique", "constant") for operation in ("save", "load")
    }
    verdict = streamed.run.verdict("DATA")
    assert (verdict["severity"], verdict["limit"]) == ("advisory", 1.05)
    assert verdict["outcome"] in ("met", "failed")
    assert "All other requirements use unique data." in verdict["because"]


def test_unrequested_requirements_are_not_in_the_report(by_torch: Watched) -> None:
    assert "DATA" not in {v["id"] for v in by_torch.run.document["requirements"]}
    assert by_torch.run.measurement()["data"] is None


def test_comparing_data_needs_no_more_memory_than_a_rank_may_have(streamed: Watched) -> None:
    seen = [rank["peak_memory_bytes"] for rank in streamed.run.measurement()["ranks"]]
    # Huge pages and the allocator round up by a few MB, which varies from run to run.
    assert max(seen) <= 1.05 * planned(engine="stream", profile="smoke").largest_rank_memory_bytes


def test_data_that_compress_make_a_rehearsal_and_are_disclosed(by_torch: Watched) -> None:
    assert by_torch.run.document["grade"] == "rehearsal"
    assert "0.25 of the content was zeros, which checkpoints do not contain." in by_torch.run.document["grade_reasons"]
    assert "--ckpt-compressible" in json.dumps(by_torch.run.document["disclosures"])


# --- the options -----------------------------------------------------------------------------------------------------


def settled(**options: str) -> Any:
    return resolve({f"ckpt_{name}": value for name, value in options.items()}, {})


def planned(**options: str) -> PlannedCheckpoint:
    settings = settled(cluster="16000", model="llama3-8b", **options)
    (checkpoint,) = plan_run(settings, mounted("ext4")).checkpoints
    return checkpoint


@pytest.mark.parametrize("retain", ["0", "-1", "4", "all"])
def test_keeping_none_or_more_than_are_saved_is_refused(runner: Runner, retain: str) -> None:
    run = runner.run(*SMALLEST, f"--ckpt-keep-last={retain}")
    assert run.code == 4
    assert f"--ckpt-keep-last {retain}: " in run.text
    assert "Traceback" not in run.text
    assert run.left_on_target == []


@given(operations=st.integers(1, 4093), more=st.integers(1, 100))
def test_more_than_are_saved_cannot_be_kept_whatever_the_count(operations: int, more: int) -> None:
    assert settled(operations=str(operations), keep_last=str(operations)).keep_last == operations
    with pytest.raises(UsageError, match=f"the run has {operations} saves|at most 4,093"):
        settled(operations=str(operations), keep_last=str(operations + more))


@pytest.mark.parametrize("share", ["0", "100%", "1.5", "-10%", "some"])
def test_a_share_of_zeros_that_is_none_is_refused(share: str) -> None:
    with pytest.raises(UsageError, match="--ckpt-compressible"):
        settled(compressible=share)


@pytest.mark.parametrize("pairs", ["0", "-1", "one"])
def test_pairs_that_are_none_are_refused(pairs: str) -> None:
    with pytest.raises(UsageError, match="--ckpt-suite=performance:data-pairs"):
        settled(data_pairs=pairs)


@pytest.mark.parametrize(
    ("options", "expected_text"),
    [
        ({}, "certified"),
        ({"keep_last": "2"}, "certified"),
        ({"keep_last": "1"}, "rehearsal: One checkpoint is kept"),
        ({"data_pairs": "3"}, "certified"),
        ({"compressible": "10%"}, "rehearsal: 0.1 of the content is zeros"),
    ],
)
def test_the_grade_that_is_possible_follows_from_what_was_requested(
    options: dict[str, str], expected_text: str
) -> None:
    settings = settled(cluster="16000", model="llama3-8b", **options)
    speed = dataclasses.replace(built_in("speed-only"), certifies=True)
    found = obstacles(plan_run(settings, mounted("ext4")), settings, speed)
    assert ": ".join([possible_grade(found), *(o.line for o in found)]).startswith(expected_text)


@pytest.mark.parametrize("engine", ["torch", "stream"])
@pytest.mark.parametrize(
    ("options", "checkpoints"),
    [
        ({}, 10),
        ({"data_pairs": "2"}, 11),
        ({"keep_last": "1"}, 2),
        ({"keep_last": "3"}, 4),
        ({"keep_last": "10"}, 11),
        ({"keep_last": "3", "data_pairs": "2"}, 4),
        ({"operations": "2"}, 2),
    ],
)
def test_space_is_planned_for_the_checkpoints_that_are_there_at_once(
    engine: str, options: dict[str, str], checkpoints: int
) -> None:
    one = planned(engine=engine, operations="2").space_bytes - planned(engine=engine, operations="1").space_bytes
    beside = planned(engine=engine, operations="1").space_bytes - one
    assert planned(engine=engine, **options).space_bytes == checkpoints * one + beside
    assert one >= layout("llama3-8b", mode="full").bytes
    assert beside < 16 << 20


def test_the_subject_of_these_runs_is_the_smallest_layout() -> None:
    assert layout("llama3-8b", mode="open", processes=2, scale=1 / 1000).name == SUBJECT
