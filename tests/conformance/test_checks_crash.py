"""DURABLE, ERRORS, FULL, LIVE: honest storage passes, and each fails when bytes, names or errors are lost."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.support.machine import need, need_fuse
from tests.support.made_check import kinds, made
from tests.support.selection import first_few
from tests.support.targets.misbehaving import misbehaving

HERE = ["DURABLE.rank-killed", "ERRORS.acknowledged", "LIVE.calls"]
SMALL = ["ERRORS.full", "FULL.mid-save", "COMMIT-FULL.each-phase"]

# What a broken target would do, done in the check's own process.
REGULAR_FILES_ARE_NOT_SYNCED = """
import os, stat
true_fsync = os.fsync
os.fsync = lambda fd: None if stat.S_ISREG(os.fstat(fd).st_mode) else true_fsync(fd)
"""
NOTHING_IS_SYNCED = "import os; os.fsync = lambda fd: None"
NO_SPACE_IS_SUCCESS = """
import errno, os
true_write = os.write
def write(fd, data):
    try:
        return true_write(fd, data)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return len(data)
os.write = write
"""
SAVED_UNDER_THE_FINAL_NAME = """
from pytest_ckpt.conformance.posix.checkpoints import Checkpoint
Checkpoint.partial = Checkpoint.name
"""


def call_fails(call, error):
    """Return sabotage in which a call of ``os`` fails from its tenth time on, with paths and without."""
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
    return shlex.join([sys.executable, "-m", "pytest_ckpt.targets.posix.power_cut", str(point)])


@pytest.fixture
def as_root():
    need(os.geteuid() == 0, "mounting takes root")


@pytest.mark.parametrize("check", HERE)
def test_a_local_disk_passes(check, make_home):
    seen = made(check, make_home("disk"))
    assert (seen.anomalies, seen.not_run) == ((), "")
    assert seen.trials > 0


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["tmpfs", "ext4", "xfs", "btrfs"])
def test_honest_file_systems_pass(kind, mount):
    point = mount(kind, 320)
    for check in HERE + SMALL:
        folder, small = point / check, point / f"{check}-small"
        folder.mkdir()
        small.mkdir()
        seen = made(check, folder, f"--small-folder={small}", share=0.3)
        assert (seen.anomalies, seen.not_run) == ((), ""), check
        assert seen.trials > 0
        assert not list(small.iterdir())


@pytest.mark.thorough
@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_acknowledged_saves_survive_real_power_cuts(kind, mount):
    point = mount(kind, 320)
    folder = point / "folder"
    folder.mkdir()
    seen = made("DURABLE.power-cut", folder, f"--power-cut={cut_command(point)}", "--power-cuts=4", share=0.4)
    assert (seen.anomalies, seen.not_run, seen.trials) == ((), "", 4)
    assert "none lost: with 95 % confidence at most 75%" in seen.facts["power cuts"]
    assert seen.facts["rename without fsync of the folder"].endswith("of 4 cuts")


@pytest.mark.thorough
@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
@pytest.mark.parametrize(
    ("sabotage", "kind_of_loss"),
    [
        (REGULAR_FILES_ARE_NOT_SYNCED, "acknowledged bytes lost in a power cut"),
        (NOTHING_IS_SYNCED, "acknowledged name lost in a power cut"),
    ],
)
def test_what_was_acknowledged_and_not_made_durable_is_missed(kind, sabotage, kind_of_loss, mount):
    point = mount(kind, 320)
    command = f"--power-cut={cut_command(point)}"
    folder = point / "folder"
    folder.mkdir()
    subprocess.run(["sync", "-f", str(folder)], check=True)
    seen = made("DURABLE.power-cut", folder, command, "--power-cuts=1", sabotage=sabotage, share=0.1)
    assert kinds(seen) == {kind_of_loss}
    assert "power cuts" not in seen.facts


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        ("true", "the power cut did not cut", "still there"),
        ("sh -c 'echo no such outlet >&2; exit 3'", "the power cut command failed", "exit code 3: no such outlet"),
        ("sh -c 'kill -9 $$'", "the power cut command failed", "killed by signal 9"),
        ("/no/such/command", "the power cut command failed", "cannot be started: No such file"),
        ("sleep 1000", "the power cut command failed", "has not ended after 1 s"),
    ],
)
def test_a_command_that_does_not_cut_the_power_fails_with_that_reason(command, kind, words, mount):
    point = mount("ext4", 64)
    folder = point / "folder"
    folder.mkdir()
    sabotage = "import pytest_ckpt.conformance.posix.checks.power as power; power.COMMAND_SECONDS = 1"
    seen = made("DURABLE.power-cut", folder, f"--power-cut={command}", "--power-cuts=1", sabotage=sabotage, share=0.1)
    assert kinds(seen) == {kind}
    assert words in seen.anomalies[0].seen
    assert "power cuts" not in seen.facts


@pytest.mark.thorough
def test_a_target_that_does_not_come_back_fails_with_that_reason(mount):
    point = mount("ext4", 64)
    sabotage = "import pytest_ckpt.conformance.posix.checks.power as power; power.BACK_SECONDS = 1"
    command = f"--power-cut=umount {point}"
    # The empty folder under the mount must not be taken for the target.
    seen = made("DURABLE.power-cut", point, command, "--power-cuts=1", sabotage=sabotage, share=0.1, seconds=60)
    subprocess.run(["mount", "-o", "loop", str(point.parent / "image"), str(point)], check=True)
    assert kinds(seen) == {"the target did not come back after the power cut"}


def test_the_power_is_not_cut_without_command_or_elsewhere_kept_witness(mount):
    point = mount("tmpfs", 16)
    folder, witness = point / "folder", point / "witness"
    folder.mkdir()
    witness.mkdir()
    assert "--ckpt-power-cut" in made("DURABLE.power-cut", folder).not_run
    seen = made("DURABLE.power-cut", folder, "--power-cut=true", f"--witness={witness}")
    assert "is on the target itself" in seen.not_run


def test_a_checkpoint_that_has_its_name_too_early_is_found(make_home):
    seen = made("DURABLE.rank-killed", make_home("disk"), sabotage=SAVED_UNDER_THE_FINAL_NAME)
    assert kinds(seen) == {"a broken checkpoint has its final name"}


def test_damage_done_by_the_death_of_a_process_is_found(make_home):
    home = make_home("disk")
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
    seen = made("DURABLE.rank-killed", home, sabotage=sabotage)
    assert "an acknowledged checkpoint is damaged by the death of a process" in kinds(seen)
    assert "shard-2 at byte 1,000" in seen.anomalies[0].where


def test_a_call_that_fails_in_the_killed_process_is_named(make_home):
    seen = made("DURABLE.rank-killed", make_home("disk"), sabotage=call_fails("fsync", "EIO"))
    assert kinds(seen) == {"a call failed"}


@pytest.mark.parametrize(
    ("call", "error", "kind"),
    [
        ("fsync", "EIO", "a call failed: EIO in fsync"),
        ("write", "EIO", "a call failed: EIO in write"),
        ("open", "EROFS", "a call failed: EROFS in open"),
        ("preadv", "EIO", "acknowledged bytes are not there"),
    ],
)
def test_an_error_is_named_with_its_call(call, error, kind, make_home):
    seen = made("ERRORS.acknowledged", make_home("disk"), sabotage=call_fails(call, error))
    assert kind in kinds(seen)


def test_bytes_that_were_acknowledged_and_dropped_are_missed(make_home):
    # Every write is cut at 8 KiB, and says that it was whole.
    sabotage = """
import os
true_write = os.write
def write(fd, data):
    true_write(fd, data[:8192])
    return len(data)
os.write = write
"""
    seen = made("ERRORS.acknowledged", make_home("disk"), sabotage=sabotage)
    assert kinds(seen) == {"acknowledged bytes are not there"}
    assert "at byte 8,192" in seen.anomalies[0].where


@pytest.mark.parametrize("check", SMALL)
def test_no_space_that_is_called_success_is_found(check, mount, make_home):
    small = mount("tmpfs", 64)
    seen = made(check, make_home("disk"), f"--small-folder={small}", sabotage=NO_SPACE_IS_SUCCESS)
    lost = {"acknowledged bytes are not there"}
    if check.startswith("COMMIT-FULL"):
        lost.add("the pointer to the newest checkpoint is lost in a commit without space")
    assert kinds(seen) == lost
    assert not list(small.iterdir())


def test_a_save_without_space_that_damages_the_one_before_is_found(mount, make_home):
    small = mount("tmpfs", 64)
    sabotage = f"""
import errno, os
from pathlib import Path
true_write = os.write
def write(fd, data):
    try:
        return true_write(fd, data)
    except OSError:
        for path in Path({str(small)!r}).glob("*/checkpoint-0001/shard-2"):
            os.truncate(path, 1000)
        raise
os.write = write
"""
    seen = made("FULL.mid-save", make_home("disk"), f"--small-folder={small}", sabotage=sabotage)
    assert kinds(seen) == {"the checkpoint before is damaged by a save without space"}
    assert "shard-2 at byte 1,000" in seen.anomalies[0].where


def test_a_broken_save_with_its_final_name_is_found(mount, make_home):
    small = mount("tmpfs", 64)
    seen = made("FULL.mid-save", make_home("disk"), f"--small-folder={small}", sabotage=SAVED_UNDER_THE_FINAL_NAME)
    assert kinds(seen) == {"a broken checkpoint has its final name"}


# A rename over another file takes that away and fails, as it were for want of space.
RENAME_LOSES = """
import errno, os
from pathlib import Path
true_replace = Path.replace
def replace(self, target):
    if target.name == "latest" and target.exists() and (self.parent / "ballast").exists():
        target.unlink()
        raise OSError(errno.ENOSPC, "no space", str(target))
    return true_replace(self, target)
Path.replace = replace
"""
METADATA_LOST = """
import pytest_ckpt.conformance.posix.checks.full_commit as full_commit
true_write = full_commit.write_durably
def write(path, data, doing, **how):
    try:
        true_write(path, data, doing, **how)
    except OSError:
        if path.name != "shard-4":
            raise
full_commit.write_durably = write
"""


@pytest.mark.parametrize(
    ("sabotage", "kind", "phase"),
    first_few(
        [
            (
                RENAME_LOSES,
                "the pointer to the newest checkpoint is lost in a commit without space",
                "the pointer (ENOSPC",
            ),
            (METADATA_LOST, "acknowledged bytes are not there", "the metadata (ENOSPC"),
        ]
    ),
)
def test_a_commit_that_loses_something_without_space_is_found(sabotage, kind, phase, mount, make_home):
    small = mount("tmpfs", 64)
    seen = made("COMMIT-FULL.each-phase", make_home("disk"), f"--small-folder={small}", sabotage=sabotage)
    assert kinds(seen) == {kind}
    assert f"without space for {phase}" in seen.anomalies[0].where
    assert not list(small.iterdir())


@pytest.mark.thorough
def test_space_that_does_not_return_is_found(mount, make_home):
    small = mount("tmpfs", 64)
    sabotage = """
import pytest_ckpt.conformance.posix.checks.failing as failing
true_remove = failing.remove
failing.remove = lambda path, calls: None if path.name == "ballast" else true_remove(path, calls)
"""
    words = (f"--small-folder={small}", "--space-seconds=1")
    seen = made("FULL.mid-save", make_home("disk"), *words, sabotage=sabotage)
    assert kinds(seen) == {"no save succeeds after space was given back"}
    assert not list(small.iterdir())


@pytest.mark.parametrize("check", SMALL)
def test_a_quota_that_is_over_is_as_good_as_a_full_volume(check, mount, make_home):
    need(shutil.which("btrfs"), "there is no btrfs")
    point = mount("btrfs", 320)
    small = point / "small"
    for command in (["subvolume", "create", str(small)], ["quota", "enable", str(point)],
                    ["qgroup", "limit", "64M", str(small)]):  # fmt: skip
        subprocess.run(["btrfs", *command], check=True, capture_output=True)
    seen = made(check, make_home("disk"), f"--small-folder={small}", share=0.3)
    assert (seen.anomalies, seen.not_run) == ((), "")
    assert "EDQUOT" in " ".join(seen.facts.values())


@pytest.mark.parametrize("check", SMALL)
def test_a_volume_that_is_too_large_or_too_small_is_not_filled(check, mount, make_home):
    small = mount("tmpfs", 64)
    sabotage = "import pytest_ckpt.conformance.posix.full_volume as full; full.MAXIMUM_FREE = 1 << 20"
    seen = made(check, make_home("disk"), f"--small-folder={small}", sabotage=sabotage)
    assert "has 64 MiB free, and no more than 1 MiB are filled" in seen.not_run
    tiny = mount("tmpfs", 8)
    assert "are needed" in made(check, make_home("disk"), f"--small-folder={tiny}").not_run
    assert "there is no small volume" in made(check, make_home("disk")).not_run


def test_a_volume_that_never_fills_is_not_called_full(mount, make_home):
    small = mount("tmpfs", 320)
    sabotage = "import pytest_ckpt.conformance.posix.full_volume as full; full.free_bytes = lambda folder: 24 << 20"
    seen = made("ERRORS.full", make_home("disk"), f"--small-folder={small}", sabotage=sabotage)
    assert "does not fill" in seen.not_run
    assert seen.anomalies == ()


@pytest.mark.thorough
def test_the_call_that_takes_longest_is_named(make_home):
    sabotage = """
import os, time
true_fsync = os.fsync
os.fsync = lambda fd: (time.sleep(0.5), true_fsync(fd))
"""
    seen = made("LIVE.calls", make_home("disk"), sabotage=sabotage)
    assert seen.anomalies == ()
    assert seen.measured is not None
    assert seen.measured > 0.5
    assert seen.facts["longest call"].startswith("fsync")
    assert "median" in seen.facts["fsync"]


@pytest.fixture(scope="module")
def mounted(make_home):
    """A FUSE target that is honest until it is told otherwise."""
    need_fuse()
    with misbehaving(make_home("misbehaving")) as target:
        yield target


@pytest.fixture
def target(mounted):
    yield mounted
    mounted.clear()
    mounted.empty()


def made_on(target, check, share=0.1):
    return made(
        check, target.path, f"--power-cut={shlex.join(target.power_cut_command)}", "--power-cuts=1", share=share
    )


@pytest.mark.thorough
@pytest.mark.parametrize("check", [*HERE, "DURABLE.power-cut"])
def test_an_honest_fuse_target_passes(check, target):
    seen = made_on(target, check, share=0.3)
    assert (seen.anomalies, seen.not_run) == ((), "")


@pytest.mark.parametrize(
    ("check", "fault", "kind"),
    [
        ("DURABLE.power-cut", "fsync of files is lost", "acknowledged bytes lost in a power cut"),
        ("DURABLE.power-cut", "fsync of folders is lost", "acknowledged name lost in a power cut"),
        ("DURABLE.power-cut", "power cut does not cut", "the power cut did not cut"),
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
def test_a_target_that_misbehaves_is_told_by_its_fault(check, fault, kind, target):
    target.fault(fault)
    seen = made_on(target, check)
    target.clear()
    assert kinds(seen) == {kind}
    assert not seen.not_run


@pytest.mark.thorough
def test_a_target_without_direct_reads_passes(target):
    target.fault("no O_DIRECT")
    for check in [*HERE, "DURABLE.power-cut"]:
        assert made_on(target, check).anomalies == (), check


@pytest.mark.parametrize(
    ("check", "fault", "mebibytes", "found"),
    [
        ("ERRORS.full", "EDQUOT in write", 24, set()),
        ("ERRORS.full", "EDQUOT in write", 8, set()),
        ("ERRORS.full", "ENOSPC is swallowed", 24, {"acknowledged bytes are not there"}),
        ("FULL.mid-save", "ENOSPC is swallowed", 9, {"acknowledged bytes are not there"}),
    ],
)
def test_a_small_volume_may_refuse_and_must_not_swallow(check, fault, mebibytes, found, mount, make_home):
    need_fuse()
    with misbehaving(make_home("small"), backing=mount("tmpfs", 128)) as target:
        (target.path / "small").mkdir()
        target.fault(fault, room=mebibytes << 20)
        seen = made(check, make_home("disk"), f"--small-folder={target.path}/small", share=0.01)
        target.clear()
    assert (kinds(seen), seen.not_run) == (found, "")
    assert found or "EDQUOT in write" in seen.facts.values()
