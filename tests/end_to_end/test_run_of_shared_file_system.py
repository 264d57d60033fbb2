"""Runs on a file system with two clients: one is certified, one is 10 % too slow, one has slow clients.

Each run meets the conditions of a certificate: a small model at full size, ten saves and loads, two mounts, power cuts,
and a small volume. If CKPT_KEEP_REPORTS is set, the two runs without a certificate also run all suites.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from tests.support.actions import actions
from tests.support.end_to_end import Run, Runner, in_every_rank
from tests.support.machine import Mounts, need_fuse
from tests.support.own_model import FILE, SMALL
from tests.support.targets.misbehaving import misbehaving

# 51.5 MB in the slowest allowed save of this cluster: 34.7 MB/s.
CLUSTER, NEEDED_BYTES_PER_SECOND = 300_000, 34.7e6
# Each of the two ranks makes 14 MB/s of content; the needed rate is 17.3 MB/s a rank.
SLOW_CLIENT = """
import sys, threading, time

if "pytest_ckpt.ranks" in sys.orig_argv:
    from pytest_ckpt.ranks.engines.stream.container import FileImage

    make, lock = FileImage.make, threading.Lock()

    def made(image, out, offset):
        with lock:
            time.sleep(len(out) / 14e6)
        make(image, out, offset)

    FileImage.make = made
"""

IS_KEPT = "CKPT_KEEP_REPORTS" in os.environ
# All checks on a file system written in Python take up to five minutes on a slow machine.
RUN_SECONDS = 600.0
OF_TIMES = () if IS_KEPT else ("--ckpt-suite=performance,contention",)

pytestmark = [pytest.mark.thorough, pytest.mark.alone]


def run_on_shared(
    runner: Runner, mount: Mounts, bytes_per_second: float, *more: str, is_slow_client: bool = False, **limits: object
) -> Run:
    """Make a run that meets the conditions of a certificate, on two mounts of a target with a limited rate.

    ``bytes_per_second`` is the rate of the target. ``more`` are further options of the run. ``limits`` are further
    parameters of the fault ``slow``. If ``is_slow_client`` is true, ranks generate content slowly.
    """
    need_fuse()
    (runner.home / FILE).write_text(SMALL)
    # In memory below FUSE: other work on a disk would add to the time that the array needs by design.
    with (
        misbehaving(runner.home, second=True, backing=mount("tmpfs", 2 << 10), keep_cache=True) as target,
        misbehaving(mount("tmpfs", 96)) as small,
    ):
        target.fault("slow", bytes_per_second=bytes_per_second, **limits)
        run = runner.start(
            f"--ckpt-model=./{FILE}",
            "--ckpt-ranks=2",
            "--ckpt-gate-table=posix-shared",
            f"--ckpt-second-mount={target.second}",
            actions(power_cut=shlex.join(target.power_cut_command)),
            f"--ckpt-small-volume={small.path}",
            *more,
            cluster=CLUSTER,
            target=target.path,
            environment=in_every_rank(runner.home, SLOW_CLIENT) if is_slow_client else None,
            # A reader of the kept report sees the ceiling; otherwise only clients that are too weak need it.
            with_host_load=is_slow_client or IS_KEPT,
        )
        return run.finish(RUN_SECONDS)


def keep_report(run: Run, name: str) -> None:
    """If CKPT_KEEP_REPORTS names a directory, copy the report to its subdirectory ``name`` for readers."""
    if place := os.environ.get("CKPT_KEEP_REPORTS"):
        shutil.copytree(run.report, Path(place) / name)


def test_a_shared_file_system_that_meets_all_is_certified(runner: Runner, mount: Mounts) -> None:
    run = run_on_shared(runner, mount, 5 * NEEDED_BYTES_PER_SECOND)
    keep_report(run, "certified")
    assert (run.code, run.document["grade"]) == (0, "certified"), run.text
    assert main(["verify", str(run.report)]) == 0


def test_storage_that_is_10_percent_too_slow_is_not_certified(runner: Runner, mount: Mounts) -> None:
    run = run_on_shared(runner, mount, 0.9 * NEEDED_BYTES_PER_SECOND, *OF_TIMES, reads_are_slow=False)
    keep_report(run, "too-slow")
    assert (run.code, run.document["grade"]) == (1, "not certified"), run.text
    failed = {v["id"] for v in run.document["requirements"] if (v["outcome"], v["severity"]) == ("failed", "required")}
    # Two jobs that share the rate are late, too.
    assert failed == {"SAVE", "NEIGHBOUR"}, run.text


def test_clients_that_are_too_weak_accuse_no_storage(runner: Runner, mount: Mounts) -> None:
    run = run_on_shared(runner, mount, 5 * NEEDED_BYTES_PER_SECOND, *OF_TIMES, is_slow_client=True)
    keep_report(run, "weak-clients")
    assert (run.code, run.document["grade"]) == (8, "incomplete"), run.text
    open_rows = [v for v in run.document["requirements"] if (v["severity"], v["outcome"]) == ("required", "not run")]
    undecided = [v for v in open_rows if v["reason"] != "not selected"]
    assert {v["id"]: v["reason"] for v in undecided} == dict.fromkeys(("SAVE", "NEIGHBOUR"), "client too slow")
