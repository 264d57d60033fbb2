"""DURABLE, ERRORS and LIVE pass on correct storage.

DURABLE and ERRORS report lost bytes and names, and calls that fail. LIVE reports the slowest call, and calls that fail.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

from pytest_ckpt.conformance.posix.durable import CutEvidence, describe_evidence, restart_in
from pytest_ckpt.facts.observation import EVIDENCE_OF_CUTS, POWER_CUTS
from tests.support.check_command import anomaly_kinds, run_check
from tests.support.crash_checks import SAVED_UNDER_THE_FINAL_NAME, SMALL
from tests.support.machine import need, need_fuse
from tests.support.targets.misbehaving import misbehaving

HERE = ["DURABLE.rank-killed", "ERRORS.acknowledged", "LIVE.calls"]
# The behaviour of a broken target, simulated in the check's own process.
REGULAR_FILES_ARE_NOT_SYNCED = """
import os, stat
true_fsync = os.fsync
os.fsync = lambda fd: None if stat.S_ISREG(os.fstat(fd).st_mode) else true_fsync(fd)
"""
NOTHING_IS_SYNCED = "import os; os.fsync = lambda fd: None"
REMOVES_BY_NAME = "find POINT -depth ( -name *canary* -o -name created -o -name overwritten ) -delete"


def call_fails(call, error):
    """Return Python code that a check runs first. The code makes a function of ``os`` fail from its tenth call on.

    ``call`` is the name of the function, and ``error`` is the name of the errno with which it fails.
    """
    return f"""
import errno, os
true, times = os.{call}, 0
def failing(*arguments, **more):
    global times
    times += 1
    if times >= 10:
        raise OSError(errno.{error}, os.strerror(errno.{error}))
    return true(*arguments, **more)
os.{call} = failing
"""


def cut_command(point):
    return shlex.join([sys.executable, "-m", "pytest_ckpt.targets.posix.power_cut", "--patience=300", str(point)])


@pytest.fixture
def as_root():
    need(os.geteuid() == 0, "mounting takes root")


@pytest.mark.parametrize("check", HERE)
def test_a_local_disk_passes(check, create_home):
    seen = run_check(check, create_home("disk"))
    assert (seen.anomalies, seen.not_run) == ((), "")
    assert seen.trials > 0


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["tmpfs", "ext4", "xfs", "btrfs"])
def test_honest_file_systems_pass(kind, mount):
    point = mount(kind, 320)
    for check in HERE + SMALL:
        directory, small = point / check, point / f"{check}-small"
        directory.mkdir()
        small.mkdir()
        seen = run_check(check, directory, f"--small-directory={small}", share=0.3)
        assert (seen.anomalies, seen.not_run) == ((), ""), check
        assert seen.trials > 0
        assert not list(small.iterdir())


@pytest.mark.thorough
@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_acknowledged_saves_survive_real_power_cuts(kind, mount):
    point = mount(kind, 320)
    directory = point / "directory"
    directory.mkdir()
    seen = run_check("DURABLE.power-cut", directory, f"--power-cut={cut_command(point)}", "--power-cuts=4", share=0.4)
    assert (seen.anomalies, seen.not_run, seen.trials) == ((), "", 4)
    assert "none lost: with 95 % confidence at most 52.8 % of power cuts lose anything" in seen.facts["power cuts"]
    assert "(59 cuts would show 5 %, 299 cuts would show 1 %)" in seen.facts["power cuts"]
    assert "Of 4 cuts, data that were never fsynced were gone: " in seen.facts[EVIDENCE_OF_CUTS]
    assert seen.facts["rename without fsync of the directory"].endswith("of 4 cuts")


@pytest.mark.thorough
@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
@pytest.mark.parametrize(
    ("sabotage", "losses"),
    [
        (REGULAR_FILES_ARE_NOT_SYNCED, {"acknowledged bytes lost in a power cut"}),
        # The kernel writes names by itself every 5 to 30 s. If it wrote a file's name before the cut, only the bytes
        # are lost.
        (
            NOTHING_IS_SYNCED,
            {"acknowledged name lost in a power cut", "acknowledged bytes lost in a power cut"},
        ),
    ],
)
def test_acknowledged_data_that_a_power_cut_loses_are_reported(kind, sabotage, losses, mount):
    point = mount(kind, 320)
    command = f"--power-cut={cut_command(point)}"
    directory = point / "directory"
    directory.mkdir()
    subprocess.run(["sync", "-f", str(directory)], check=True)
    seen = run_check("DURABLE.power-cut", directory, command, "--power-cuts=1", sabotage=sabotage, share=0.1)
    assert anomaly_kinds(seen)
    assert anomaly_kinds(seen) <= losses
    assert "power cuts" not in seen.facts


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        ("true", "the power cut did not cut", "still there"),
        (REMOVES_BY_NAME, "the power cut did not cut", "still there"),
        ("sh -c 'echo no such outlet >&2; exit 3'", "the power cut command failed", "exit code 3: no such outlet"),
        ("sh -c 'kill -9 $$'", "the power cut command failed", "killed by signal 9"),
        ("/no/such/command", "the power cut command failed", "cannot be started: No such file"),
        ("sleep 1000", "the power cut command failed", "has not ended after 1 s"),
    ],
)
def test_a_command_that_does_not_cut_the_power_fails_with_that_reason(command, kind, words, mount):
    point = mount("ext4", 64)
    directory = point / "directory"
    directory.mkdir()
    seconds = 1 if command.startswith("sleep") else 300
    sabotage = f"import pytest_ckpt.conformance.posix.durable as durable; durable.COMMAND_SECONDS = {seconds}"
    power_cut = f"--power-cut={command.replace('POINT', str(point))}"
    seen = run_check("DURABLE.power-cut", directory, power_cut, "--power-cuts=1", sabotage=sabotage, share=0.1)
    assert anomaly_kinds(seen) == {kind}
    assert words in seen.anomalies[0].seen
    assert "power cuts" not in seen.facts


@pytest.mark.thorough
@pytest.mark.usefixtures("as_root")
def test_a_command_that_removes_what_was_never_fsynced_is_no_power_cut(mount, create_home):
    """DURABLE.power-cut fails if the command only imitates a power cut.

    The command in this test reads the list of acknowledged names and removes all other files.
    """
    point, home = mount("ext4", 96), create_home("witness")
    directory, witness, command = point / "directory", home / "witness", home / "cheat"
    directory.mkdir()
    witness.mkdir()
    command.write_text(f"""#!/bin/sh
for file in $(find {directory} -path '*/cut-*' -type f); do
    grep -rq "$file" {witness} || rm "$file"
done
""")
    command.chmod(0o755)
    words = (f"--power-cut={command}", "--power-cuts=1", f"--witness={witness}")
    assert anomaly_kinds(run_check("DURABLE.power-cut", directory, *words, share=0.1)) == {
        "acknowledged name lost in a power cut"
    }


@pytest.mark.thorough
def test_a_target_that_does_not_come_back_fails_with_that_reason(mount):
    point = mount("ext4", 64)
    sabotage = "import pytest_ckpt.conformance.posix.durable as durable; durable.BACK_SECONDS = 1"
    command = f"--power-cut=umount {point}"
    # The empty directory below the unmounted file system must not pass for the target.
    seen = run_check("DURABLE.power-cut", point, command, "--power-cuts=1", sabotage=sabotage, share=0.1, seconds=60)
    subprocess.run(["mount", "-o", "loop", str(point.parent / "image"), str(point)], check=True)
    assert anomaly_kinds(seen) == {"the target did not come back after the power cut"}


def test_the_power_is_not_cut_without_command_or_elsewhere_kept_witness(mount):
    point = mount("tmpfs", 16)
    directory, witness = point / "directory", point / "witness"
    directory.mkdir()
    witness.mkdir()
    assert "--ckpt-actions [power_cut] command" in run_check("DURABLE.power-cut", directory).not_run
    seen = run_check("DURABLE.power-cut", directory, "--power-cut=true", f"--witness={witness}")
    assert "is on the target itself" in seen.not_run


def test_a_checkpoint_that_has_its_name_too_early_is_found(create_home):
    seen = run_check("DURABLE.rank-killed", create_home("disk"), sabotage=SAVED_UNDER_THE_FINAL_NAME)
    assert anomaly_kinds(seen) == {"a broken checkpoint has its final name"}


def test_damage_done_by_the_death_of_a_process_is_found(create_home):
    home = create_home("disk")
    sabotage = f"""
import os
from pathlib import Path
from pytest_ckpt.conformance.workers import Worker
true_kill = Worker.kill
def kill(self):
    true_kill(self)
    for path in Path({str(home)!r}).glob("*/checkpoint-0005/shard-2"):
        os.truncate(path, 1000)
Worker.kill = kill
"""
    seen = run_check("DURABLE.rank-killed", home, sabotage=sabotage)
    assert "an acknowledged checkpoint is damaged by the death of a process" in anomaly_kinds(seen)
    assert "shard-2 at byte 1,000" in seen.anomalies[0].where


def test_a_call_that_fails_in_the_killed_process_is_named(create_home):
    seen = run_check("DURABLE.rank-killed", create_home("disk"), sabotage=call_fails("fsync", "EIO"))
    assert anomaly_kinds(seen) == {"a call failed"}


@pytest.mark.parametrize(
    ("call", "error", "kind"),
    [
        ("fsync", "EIO", "a call failed: EIO in fsync"),
        ("write", "EIO", "a call failed: EIO in write"),
        ("open", "EROFS", "a call failed: EROFS in open"),
        ("preadv", "EIO", "acknowledged bytes are not there"),
    ],
)
def test_an_error_is_named_with_its_call(call, error, kind, create_home):
    seen = run_check("ERRORS.acknowledged", create_home("disk"), sabotage=call_fails(call, error))
    assert kind in anomaly_kinds(seen)


def test_bytes_that_were_acknowledged_and_dropped_are_missed(create_home):
    # Every write is cut at 8 KiB and reports the full length.
    sabotage = """
import os
true_write = os.write
def write(fd, data):
    true_write(fd, data[:8192])
    return len(data)
os.write = write
"""
    seen = run_check("ERRORS.acknowledged", create_home("disk"), sabotage=sabotage)
    assert anomaly_kinds(seen) == {"acknowledged bytes are not there"}
    assert "at byte 8,192" in seen.anomalies[0].where


@pytest.mark.thorough
def test_the_call_that_takes_longest_is_named(create_home):
    # Only the first call is slow: on a busy machine, another call may take a second.
    sabotage = """
import os, time
true_fsync, naps = os.fsync, [5.0]
os.fsync = lambda fd: (time.sleep(naps.pop() if naps else 0), true_fsync(fd))
"""
    seen = run_check("LIVE.calls", create_home("disk"), sabotage=sabotage)
    assert seen.anomalies == ()
    assert seen.measured is not None
    assert seen.measured > 5
    assert seen.facts["longest call"].startswith("fsync")
    assert "median" in seen.facts["fsync"]


@pytest.fixture(scope="module")
def mounted(create_home):
    """A mounted FUSE target that has no faults at first. Tests can inject faults."""
    need_fuse()
    with misbehaving(create_home("misbehaving")) as target:
        yield target


@pytest.fixture
def target(mounted):
    yield mounted
    mounted.clear()
    mounted.empty()


def run_check_on(target, check, share=0.1):
    return run_check(
        check, target.path, f"--power-cut={shlex.join(target.power_cut_command)}", "--power-cuts=1", share=share
    )


@pytest.mark.thorough
@pytest.mark.parametrize("check", [*HERE, "DURABLE.power-cut"])
def test_an_honest_fuse_target_passes(check, target):
    seen = run_check_on(target, check, share=0.3)
    assert (seen.anomalies, seen.not_run) == ((), "")


@pytest.mark.parametrize(
    ("check", "fault", "kind"),
    [
        ("DURABLE.power-cut", "fsync of files is lost", "acknowledged bytes lost in a power cut"),
        ("DURABLE.power-cut", "fsync of directories is lost", "acknowledged name lost in a power cut"),
        ("DURABLE.power-cut", "ENOSPC is swallowed", "a saved checkpoint is not what was written"),
        ("DURABLE.rank-killed", "ENOSPC is swallowed", "a saved checkpoint is not what was written"),
        ("DURABLE.rank-killed", "EIO in fsync", "a call failed"),
        ("ERRORS.acknowledged", "EIO in write", "a call failed: EIO in write"),
        ("ERRORS.acknowledged", "EIO in fsync", "a call failed: EIO in fsync"),
        ("ERRORS.acknowledged", "EIO in close", "a call failed: EIO in close"),
        ("ERRORS.acknowledged", "EIO in read", "acknowledged bytes are not there"),
        ("ERRORS.acknowledged", "ENOSPC in write", "a call failed: ENOSPC in write"),
        ("ERRORS.acknowledged", "EDQUOT in write", "a call failed: EDQUOT in write"),
        ("ERRORS.acknowledged", "ENOSPC is swallowed", "acknowledged bytes are not there"),
        ("ERRORS.acknowledged", "error of write-back is lost", "acknowledged bytes are not there"),
        ("ERRORS.acknowledged", "EROFS", "a call failed"),
        ("LIVE.calls", "EROFS", "a call failed"),
    ],
)
def test_a_target_that_misbehaves_is_reported_by_its_fault(check, fault, kind, target):
    target.fault(fault)
    seen = run_check_on(target, check)
    target.clear()
    assert anomaly_kinds(seen) == {kind}
    assert not seen.not_run


def cut_by(target, command, sabotage=""):
    """Run DURABLE.power-cut with the shell command ``command``; return the observation, which must have no anomaly.

    ``sabotage`` is Python code that the check runs first.
    """
    words = f"--power-cut={shlex.join(['sh', '-c', command])}"
    seen = run_check("DURABLE.power-cut", target.path, words, "--power-cuts=1", share=0.1, sabotage=sabotage)
    assert (seen.anomalies, seen.not_run) == ((), "")
    return seen


def test_on_a_network_mount_a_cut_that_nothing_shows_is_declared_by_the_operator(target):
    target.fault("power cut does not cut")
    # On a busy machine, a write may take seconds.
    sabotage = "import pytest_ckpt.conformance.posix.durable as durable; durable.OUTAGE_SECONDS = 60.0"
    seen = cut_by(target, shlex.join(target.power_cut_command), sabotage)
    assert seen.facts[EVIDENCE_OF_CUTS].startswith("1 cut declared by the operator: nothing was gone, no restart")
    assert "none lost: if the power was cut each time, with 95 % confidence" in seen.facts[POWER_CUTS]


def test_on_a_network_mount_a_restart_of_the_server_shows_the_cut(target):
    seen = cut_by(target, "echo boot-id 1-2-3; echo the server restarts; echo boot-id 4-5-6")
    words = "the command printed a restart of the server in 1: boot-id 1-2-3 before it, 4-5-6 after it"
    assert words in seen.facts[EVIDENCE_OF_CUTS]
    assert "if the power was cut" not in seen.facts[POWER_CUTS]


def test_on_a_network_mount_an_outage_is_distinguished_from_a_cut(target):
    hang = target.fault_command("hang", path="DURABLE.*", operation="fsync")
    steps = [shlex.join(words) for words in (hang, target.until_hit_command("hang"), ["sleep", "1"])]
    sabotage = "import pytest_ckpt.conformance.posix.durable as durable; durable.OUTAGE_SECONDS = 1.0"
    seen = cut_by(target, " && ".join([*steps, shlex.join(target.clear_command)]), sabotage)
    assert "in 1 only an outage was seen: for up to " in seen.facts[EVIDENCE_OF_CUTS]
    assert "if the power was cut each time" in seen.facts[POWER_CUTS]


@pytest.mark.parametrize(
    ("output", "restart"),
    [
        ("boot-id a\nboot-id b\n", "boot-id a before it, b after it"),
        ("boot-id: a\nboot-id: a\n", ""),
        ("boot-id a\n", ""),
        ("uptime 86400.5\n…\nuptime=12\n", "uptime 86400.5 s before it, 12 s after it"),
        ("uptime 12\nuptime 86400\n", ""),
        ("uptime long\nuptime short\n", ""),
        ("the boot-id a, the boot-id b", ""),
        ("", ""),
    ],
)
def test_a_restart_is_what_the_command_printed_before_and_after(output, restart):
    assert restart_in(output) == restart


def test_each_cut_counts_by_its_strongest_evidence():
    words = describe_evidence(
        [
            CutEvidence(losses=("a new directory",), back_seconds=30.0, restart="boot-id a before it, b after it"),
            CutEvidence(losses=(), back_seconds=40.0, restart="boot-id b before it, c after it", gap_seconds=35.0),
            CutEvidence(losses=(), back_seconds=40.0, gap_seconds=35.0),
            CutEvidence(losses=(), back_seconds=1.0, gap_seconds=0.2),
        ]
    )
    assert words == (
        "Of 4 cuts, data that were never fsynced were gone: bytes written over others in 0, bytes of a new file "
        "in 0, a new directory in 1; the command printed a restart of the server in 1: boot-id b before it, c after "
        "it; in 1 only an outage was seen: for up to 35 s no write succeeded; 1 cut declared by the operator: nothing "
        "was gone, no restart was printed, and no outage was seen; from the command to the first answer of the target: "
        "1 s to 40 s"
    )


@pytest.mark.thorough
def test_a_target_without_direct_reads_passes(target):
    target.fault("no O_DIRECT")
    for check in [*HERE, "DURABLE.power-cut"]:
        assert run_check_on(target, check).anomalies == (), check
