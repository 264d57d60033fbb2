"""Faults of bytes, mappings, locks, names, times and space on a mounted target: each fault makes its check fail."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.check_command import anomaly_kinds, run_check
from tests.support.targets.misbehaving import Target

HONEST = [
    "DIRECT.aligned",
    "DIRECT.coherent",
    "MMAP.private",
    "MMAP.shared",
    "SPARSE.tail-first",
    "SPARSE.disjoint-writers",
    "SPARSE.disjoint-writers-second-client",
    "CLONE-FRESH.copy",
    "TRUNCATE.concurrent",
    "LARGE.offsets",
    "UNLINK.open-reader",
    "UNLINK.second-client",
    "CAPABILITIES.flock",
    "CAPABILITIES.flock-second-client",
    "CAPABILITIES.links",
    "CAPABILITIES.mtime",
    "CAPABILITIES.statfs",
    "CAPABILITIES.names",
    "CAPABILITIES.extras",
]

# (fault, check, kind of anomaly)
FAULTS = [
    ("flipped bit in reads", "DIRECT.aligned", "flipped bits"),
    ("flipped bit in reads", "MMAP.shared", "flipped bits"),
    ("flipped bit at rest", "MMAP.private", "flipped bits"),
    ("torn write", "DIRECT.aligned", "torn write"),
    ("torn write", "SPARSE.disjoint-writers-second-client", "torn write"),
    ("misplaced write", "DIRECT.aligned", "misplaced bytes"),
    ("misplaced write", "SPARSE.disjoint-writers", "misplaced bytes"),
    ("misplaced read", "MMAP.shared", "misplaced bytes"),
    ("misplaced read", "DIRECT.coherent", "misplaced bytes"),
    ("late data", "SPARSE.disjoint-writers-second-client", "file cut short"),
    ("holes are not zero", "SPARSE.tail-first", "bytes in a hole"),
    ("new data are reported as a hole", "CLONE-FRESH.copy", "zeros instead of data"),
    ("new data are copied as zeros", "CLONE-FRESH.copy", "zeros instead of data"),
    ("large offset wraps", "LARGE.offsets", "wrapped offset"),
    ("large offset wraps", "LARGE.offsets", "wrong size"),
    ("file size limited", "LARGE.offsets", "file size limited"),
    ("O_DIRECT is not coherent", "DIRECT.coherent", "zeros instead of data"),
    ("no O_DIRECT", "DIRECT.aligned", "O_DIRECT refused"),
    ("unlink takes the file from its readers", "UNLINK.open-reader", "removed file fails its reader"),
    ("unlink gives its readers wrong bytes", "UNLINK.open-reader", "wrong bytes"),
    ("unlink gives its readers wrong bytes", "UNLINK.second-client", "wrong bytes"),
    ("reading through mmap gives SIGBUS", "MMAP.private", "SIGBUS while reading a mapping"),
    ("reading through mmap gives SIGBUS", "MMAP.shared", "SIGBUS while reading a mapping"),
    ("no mmap", "MMAP.shared", "mmap refused"),
    ("EIO in read", "SPARSE.tail-first", "a call failed"),
    ("EIO in write", "LARGE.offsets", "a call failed"),
    ("no symbolic links", "CAPABILITIES.links", "symbolic links refused"),
    ("no hard links", "CAPABILITIES.links", "hard links refused"),
    ("flock refuses a free lock", "CAPABILITIES.flock", "flock refused"),
    ("flock refuses a free lock", "CAPABILITIES.flock-second-client", "free lock refused"),
    ("flock locks nobody out", "CAPABILITIES.flock", "exclusive lock given twice"),
    ("flock locks nobody out", "CAPABILITIES.flock-second-client", "exclusive lock given twice"),
    ("names regardless of case", "CAPABILITIES.names", "names folded or cut"),
    ("names of limited length", "CAPABILITIES.names", "name refused"),
    ("mtime goes back", "CAPABILITIES.mtime", "modification times in wrong order"),
    ("mtime is coarse", "CAPABILITIES.mtime", "modification times are equal"),
]

# Faults in other functions, which these checks must not report as failures.
ELSEWHERE = [
    ("no O_DIRECT", "DIRECT.coherent", "O_DIRECT is refused: Invalid argument (errno 22)"),
    ("no mmap", "UNLINK.open-reader", ""),
    ("reading through mmap gives SIGBUS", "UNLINK.open-reader", ""),
    ("unlink takes the file from its readers", "UNLINK.second-client", ""),
]


@pytest.mark.thorough
@pytest.mark.parametrize("check", HONEST)
def test_an_honest_target_passes(check, target: Target):
    seen = run_check(check, target.path, f"--second-directory={target.second}")
    assert (seen.anomalies, seen.not_run) == ((), "")
    assert seen.trials > 0


@pytest.mark.parametrize(("fault", "check", "kind"), FAULTS)
def test_a_fault_is_named(fault, check, kind, target: Target):
    target.fault(fault)
    seen = run_check(check, target.path, f"--second-directory={target.second}")
    assert kind in anomaly_kinds(seen), seen.anomalies
    assert all(anomaly.where and anomaly.seen and anomaly.expected for anomaly in seen.anomalies)
    assert target.hits(fault)


@pytest.mark.parametrize(("fault", "check", "not_run"), ELSEWHERE)
def test_a_fault_outside_the_scope_of_a_check_gives_no_anomaly(fault, check, not_run, target: Target):
    target.fault(fault)
    seen = run_check(check, target.path, f"--second-directory={target.second}")
    assert (seen.anomalies, seen.not_run) == ((), not_run)
    assert target.hits(fault)


def test_readers_through_mappings_that_never_worked_are_not_called_tried(target: Target):
    target.fault("no mmap")
    assert "not tried" in run_check("UNLINK.open-reader", target.path).facts["readers through mappings"]


@pytest.mark.thorough
@pytest.mark.parametrize(("fault", "call"), [("concurrent O_TRUNC hangs", "open with O_TRUNC"), ("hang", "write")])
def test_a_hang_is_reported_while_it_lasts(fault, call, target: Target):
    """The check prints its result while the call still hangs.

    The check removes its files after the fault is disabled.
    """
    target.fault(fault)
    words = ["TRUNCATE.concurrent", f"--directory={target.path}", "--share=0.05", "--patience=1", "--json"]
    command = [sys.executable, "-m", "pytest_ckpt.conformance", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            seen = json.loads(process.stdout.readline())
        finally:
            target.clear()
    assert process.returncode == 1
    hung = [anomaly for anomaly in seen["anomalies"] if anomaly["kind"] == "a call hangs"]
    assert any(anomaly["where"].startswith(f"{call}: {target.path}") for anomaly in hung)
    # Of several writers, one waits for the target, and the others wait for the lock of the file.
    assert any(wait in anomaly["seen"] for wait in ("request_wait_answer", "rwsem") for anomaly in hung)
    assert seen["measured"] >= 1


def test_free_space_that_never_changes_is_reported(target: Target):
    """The check waits one second for a change of the free space, instead of sixty."""
    sabotage = (
        "import dataclasses, pytest_ckpt.conformance.posix.capabilities as capabilities\n"
        "name = 'CAPABILITIES.statfs'\n"
        "capabilities.BY_NAME[name] = dataclasses.replace(capabilities.BY_NAME[name], limit=1.0)"
    )
    target.fault("statfs never changes")
    seen = run_check("CAPABILITIES.statfs", target.path, sabotage=sabotage)
    assert anomaly_kinds(seen) == {"free space does not fall"}
