"""End-to-end runs of the suite metadata: all ranks create, look up, list and remove many empty files."""

from __future__ import annotations

import dataclasses
import os
import signal

import pytest

from pytest_ckpt.sizing.many_names import REMOVALS
from tests.support.end_to_end import MEASURED, STREAM, TINY, Runner
from tests.support.hosts.lab import Step, need_hosts, on_hosts
from tests.support.hosts.storage import HONEST_FUSE
from tests.support.machine import need_fuse
from tests.support.targets.misbehaving import misbehaving

CALLS = ["mkdir", "create", "stat", "list", "unlink", "rmdir"]


def options(files=300, directories=7):
    suite = f"--ckpt-suite=performance,metadata:files={files},directories={directories}"
    return (*TINY, STREAM, "--ckpt-gate-table=speed-only", suite)


@pytest.mark.covers(requirements=("METADATA",))
def test_all_ranks_create_look_up_list_and_remove_their_part_of_the_files(runner: Runner) -> None:
    run = runner.run(*options(), "--ckpt-ranks=3")
    assert run.code == 0, run.text
    subject = MEASURED.replace("-2/", "-3/")
    verdict = run.verdict("METADATA", subject)
    assert (verdict["outcome"], verdict["severity"]) == ("met", "advisory")
    measurement = run.measurement(subject)
    found = measurement["patterns"]["metadata"]
    assert [(step["call"], step["count"]) for step in found["steps"]] == [
        (call, 7 if call in ("mkdir", "rmdir") else 300) for call in CALLS
    ]
    assert (found["fault_count"], found["late"], found["failure"]) == (0, 0, None)
    assert len(found["removal_seconds"]) == REMOVALS
    assert found["checkpoint_files"] == run.document["checkpoints"][0]["files"]
    assert f"names of {subject}: 300 files in 7 directories: mkdir " in run.text
    assert "N-013" not in verdict["detail"]
    assert run.left_on_target == []


def test_a_rehearsal_of_everything_leaves_the_suite_out(runner: Runner) -> None:
    run = runner.run(*TINY, STREAM, "--ckpt-suite=all", "--collect-only")
    assert "SCALING[" in run.text
    assert "METADATA[" not in run.text


@pytest.mark.parametrize(("fault", "expected_text"), [
    ("names dropped in a listing", "not listed"),
    pytest.param("names twice in a listing", "listed twice", marks=pytest.mark.thorough),
    pytest.param("still listed after delete", "still listed", marks=pytest.mark.thorough),
])  # fmt: skip
def test_storage_that_loses_or_keeps_a_name_fails_and_everything_else_is_measured(
    runner: Runner, create_home, fault, expected_text
) -> None:
    need_fuse()
    with misbehaving(create_home("target"), keep_cache=True) as target:
        # With other load a listing comes late, and the fault must last until then.
        lasts = {"seconds": 600.0} if "after" in fault else {}
        target.fault(fault, path="*/metadata-*", **lasts)
        run = runner.run(*options(files=200, directories=2), target=target.path)
        target.clear()
    verdict = run.verdict("METADATA", MEASURED)
    assert (verdict["outcome"], verdict["reason"]) == ("failed", "anomaly"), run.text + verdict["because"]
    assert expected_text in verdict["because"]
    # METADATA is advisory: no required verdict fails or is missing because of it.
    assert run.code == 0, run.text
    assert run.verdict("COLD", MEASURED)["outcome"] == "met"


@pytest.mark.thorough
@pytest.mark.parametrize("ends", ["a rank is killed", "the run is interrupted"])
def test_the_files_go_though_a_run_ends_among_them(runner: Runner, ends) -> None:
    started = runner.start(*options(files=100_000, directories=100))
    top = started.run_directory
    started.until(lambda: any(top.glob("metadata-*/group-0000/directory-0000000/file-*")), "files are created")
    if ends == "a rank is killed":
        os.kill(started.pid_of_rank(1), signal.SIGKILL)
    else:
        started.process.send_signal(signal.SIGINT)
    run = started.finish()
    # Neither end is evidence about the storage.
    assert run.verdict("METADATA", MEASURED)["outcome"] == "not run", run.text
    assert run.verdict("SAVE", MEASURED)["outcome"] == "met"
    assert run.left_on_target == []


@pytest.mark.thorough
def test_hosts_look_up_names_of_each_other(create_home) -> None:
    storage = dataclasses.replace(HONEST_FUSE, keep_cache=True)
    need_hosts(storage)
    words = (*options(), "--ckpt-ranks=4", "--ckpt-hosts=h1:2,h2:2")
    (done,) = on_hosts(create_home("hosts"), 2, Step(options=words), storage=storage)
    subject = MEASURED.replace("-2/", "-4/")
    verdict = done.run.verdict("METADATA", subject)
    assert verdict["outcome"] == "met", done.text + verdict["because"]
    assert "4 ranks on 2 hosts" in verdict["because"]
    assert done.left == ()


def test_an_object_store_is_not_measured_and_the_verdict_gives_the_reason(runner: Runner) -> None:
    run = runner.run(*options(), "--ckpt-endpoint=embedded", target="s3://bucket/names")
    verdict = run.verdict("METADATA", MEASURED)
    assert (verdict["outcome"], verdict["reason"]) == ("not run", "not possible"), run.text
    assert "object store has no directories" in verdict["because"]
