"""FULL, COMMIT-FULL and ERRORS: a full volume refuses writes, keeps its files, and can use freed space again."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.support.check_command import anomaly_kinds, run_check
from tests.support.crash_checks import SAVED_UNDER_THE_FINAL_NAME, SMALL
from tests.support.machine import need, need_fuse
from tests.support.selection import first_few
from tests.support.targets.misbehaving import misbehaving

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


@pytest.mark.parametrize("check", SMALL)
def test_no_space_that_is_called_success_is_found(check, mount, create_home):
    small = mount("tmpfs", 64)
    seen = run_check(check, create_home("disk"), f"--small-directory={small}", sabotage=NO_SPACE_IS_SUCCESS)
    lost = {"acknowledged bytes are not there"}
    if check.startswith("COMMIT-FULL"):
        lost.add("the pointer to the newest checkpoint is lost in a commit without space")
    assert anomaly_kinds(seen) == lost
    assert not list(small.iterdir())


def test_a_save_without_space_that_damages_the_one_before_is_found(mount, create_home):
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
    seen = run_check("FULL.mid-save", create_home("disk"), f"--small-directory={small}", sabotage=sabotage)
    assert anomaly_kinds(seen) == {"the checkpoint before is damaged by a save without space"}
    assert "shard-2 at byte 1,000" in seen.anomalies[0].where


def test_a_broken_save_with_its_final_name_is_found(mount, create_home):
    small = mount("tmpfs", 64)
    seen = run_check(
        "FULL.mid-save", create_home("disk"), f"--small-directory={small}", sabotage=SAVED_UNDER_THE_FINAL_NAME
    )
    assert anomaly_kinds(seen) == {"a broken checkpoint has its final name"}


# A rename over another file removes that file and then fails with ENOSPC.
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
import pytest_ckpt.conformance.posix.full as full
true_write = full.write_durably
def write(path, data, doing, **how):
    try:
        true_write(path, data, doing, **how)
    except OSError:
        if path.name != "shard-4":
            raise
full.write_durably = write
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
def test_a_commit_that_loses_something_without_space_is_found(sabotage, kind, phase, mount, create_home):
    small = mount("tmpfs", 64)
    seen = run_check("COMMIT-FULL.each-phase", create_home("disk"), f"--small-directory={small}", sabotage=sabotage)
    assert anomaly_kinds(seen) == {kind}
    assert f"without space for {phase}" in seen.anomalies[0].where
    assert not list(small.iterdir())


@pytest.mark.thorough
def test_space_that_does_not_return_is_found(mount, create_home):
    small = mount("tmpfs", 64)
    sabotage = """
import pytest_ckpt.conformance.posix.full as full
true_remove = full.remove
full.remove = lambda path, calls: None if path.name == "ballast" else true_remove(path, calls)
"""
    words = (f"--small-directory={small}", "--space-seconds=1")
    seen = run_check("FULL.mid-save", create_home("disk"), *words, sabotage=sabotage)
    assert anomaly_kinds(seen) == {"no save succeeds after space was given back"}
    assert not list(small.iterdir())


@pytest.mark.parametrize("check", SMALL)
def test_a_quota_that_is_over_is_as_good_as_a_full_volume(check, mount, create_home):
    need(shutil.which("btrfs"), "there is no btrfs")
    point = mount("btrfs", 320)
    small = point / "small"
    for command in (["subvolume", "create", str(small)], ["quota", "enable", str(point)],
                    ["qgroup", "limit", "64M", str(small)]):  # fmt: skip
        subprocess.run(["btrfs", *command], check=True, capture_output=True)
    seen = run_check(check, create_home("disk"), f"--small-directory={small}", share=0.3)
    assert (seen.anomalies, seen.not_run) == ((), "")
    assert "EDQUOT" in " ".join(seen.facts.values())


@pytest.mark.parametrize("check", SMALL)
def test_a_volume_that_is_too_large_or_too_small_is_not_filled(check, mount, create_home):
    small = mount("tmpfs", 64)
    sabotage = "import pytest_ckpt.conformance.posix.full as full; full.MAXIMUM_FREE = 1 << 20"
    seen = run_check(check, create_home("disk"), f"--small-directory={small}", sabotage=sabotage)
    assert "has 67.1 MB free, and no more than 1.05 MB are filled" in seen.not_run
    tiny = mount("tmpfs", 8)
    assert "are needed" in run_check(check, create_home("disk"), f"--small-directory={tiny}").not_run
    assert "no small volume" in run_check(check, create_home("disk")).not_run


def test_a_volume_that_never_fills_is_not_called_full(mount, create_home):
    small = mount("tmpfs", 320)
    sabotage = "import pytest_ckpt.conformance.posix.full as full; full.free_bytes = lambda directory: 24 << 20"
    seen = run_check("ERRORS.full", create_home("disk"), f"--small-directory={small}", sabotage=sabotage)
    assert "does not fill" in seen.not_run
    assert seen.anomalies == ()


@pytest.mark.parametrize(
    ("check", "fault", "mebibytes", "found"),
    [
        ("ERRORS.full", "EDQUOT in write", 24, set()),
        ("ERRORS.full", "EDQUOT in write", 8, set()),
        ("ERRORS.full", "ENOSPC is swallowed", 24, {"acknowledged bytes are not there"}),
        ("FULL.mid-save", "ENOSPC is swallowed", 9, {"acknowledged bytes are not there"}),
    ],
)
def test_a_small_volume_may_refuse_and_must_not_swallow(check, fault, mebibytes, found, mount, create_home):
    need_fuse()
    with misbehaving(create_home("small"), backing=mount("tmpfs", 128)) as target:
        (target.path / "small").mkdir()
        target.fault(fault, room=mebibytes << 20)
        seen = run_check(check, create_home("disk"), f"--small-directory={target.path}/small", share=0.01)
        target.clear()
    assert (anomaly_kinds(seen), seen.not_run) == (found, "")
    assert found or "EDQUOT in write" in seen.facts.values()
