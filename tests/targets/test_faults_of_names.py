"""Checks of renames, visibility, staleness, races and names: each fault makes its check fail."""

from __future__ import annotations

import pytest

from pytest_ckpt.facts.checks import BY_NAME
from tests.support.check_command import anomaly_kinds, run_check
from tests.support.machine import patience

OURS = [name for name in BY_NAME if name.split(".")[0] in
        {"COMMIT", "VISIBLE", "STALE", "EXCLUSIVE", "POINTER", "MKDIR", "NAMES"}]  # fmt: skip


def on(target, check, **more):
    """Run a check with both mounts of a target as clients; return its observation."""
    return run_check(check, target.path, f"--second-directory={target.second}", share=0.02, **more)


def patient(times):
    """Return Python code that sets ``GIVE_UP_TIMES`` before a check runs.

    ``GIVE_UP_TIMES`` controls after which time the check stops waiting for a cache.
    """
    return f"import pytest_ckpt.conformance.posix.visible as visible\nvisible.GIVE_UP_TIMES = {times}"


@pytest.mark.thorough
@pytest.mark.parametrize("check", OURS)
def test_an_honest_target_gives_no_alarm(check, target):
    seen = on(target, check)
    assert (seen.anomalies, seen.not_run) == ((), "")
    limit = BY_NAME[check].limit
    assert None in (seen.measured, limit) or seen.measured < patience(limit)


@pytest.mark.thorough
@pytest.mark.parametrize(("fault", "check", "kind"), [
    ("rename of a file is not atomic: no name", "COMMIT.file", "name missing during a rename"),
    ("rename of a file is not atomic: no name", "COMMIT.file-second-client", "name missing during a rename"),
    ("rename of a file is not atomic: short content", "COMMIT.file", "file too short during a rename"),
    ("rename of a file is not atomic: short content", "COMMIT.file-second-client", "file too short during a rename"),
    ("stale data", "VISIBLE.read-after-close", "bytes of an older version at the first open"),
    ("stale attributes", "VISIBLE.read-after-close", "stale size at the first open"),
    ("late data", "VISIBLE.read-after-close", "file empty at the first open"),
    ("appended bytes come late", "VISIBLE.append", "appended bytes are not seen"),
    ("appended bytes overwrite those of the other client", "VISIBLE.append", "an appended record is lost or torn"),
    ("stale attributes", "VISIBLE.append", "an appended record is lost or torn"),
    ("O_EXCL is not exclusive", "EXCLUSIVE.create", "O_EXCL with several winners"),
    ("O_EXCL is not exclusive", "EXCLUSIVE.create-second-client", "O_EXCL with several winners"),
    ("mkdir is not exclusive", "MKDIR.race", "mkdir with several winners"),
    ("mkdir is not exclusive", "MKDIR.race-second-client", "mkdir with several winners"),
    ("new directory is not visible", "MKDIR.race", "directory that was just made cannot be used"),
    ("new directory is not visible", "MKDIR.race-second-client", "directory that was just made cannot be used"),
    ("overwrite in place is not atomic", "POINTER.overwrite", "neither the old text nor the new one"),
    ("overwrite in place is not atomic", "POINTER.overwrite-second-client", "neither the old text nor the new one"),
    ("names dropped in a listing", "NAMES.many", "name missing in a listing"),
    ("names dropped in a listing", "NAMES.after-change", "name missing in a listing"),
    ("names dropped in a listing", "NAMES.second-client", "name missing in a listing"),
    ("names twice in a listing", "NAMES.many", "name listed twice"),
    ("still listed after delete", "NAMES.after-change", "removed or unknown name in a listing"),
    ("not listed after create", "NAMES.after-change", "name missing in a listing"),
])  # fmt: skip
def test_a_fault_is_named(fault, check, kind, target):
    target.fault(fault)
    # The process that cleans up cannot see hidden names, so it cannot remove them.
    assert kind in anomaly_kinds(on(target, check, tidy=False))
    assert target.hits(fault)


@pytest.mark.parametrize("check", ["COMMIT.directory", "COMMIT.directory-second-client"])
def test_a_directory_that_arrives_in_parts_is_named(check, target):
    target.fault("rename of a directory is not atomic")
    parts = {"directory with a part of its files during a rename", "directory empty during a rename"}
    assert parts & anomaly_kinds(on(target, check, tidy=False))


@pytest.mark.thorough
@pytest.mark.parametrize(("fault", "check", "what"), [
    ("stale attributes", "STALE.attributes", "a file grew"),
    ("stale names", "STALE.names", "a name was removed"),
    ("stale listing", "STALE.names", "a name came into a directory"),
    ("stale negative names", "STALE.negative-names", "a missing file was made"),
    ("stale data", "POINTER.overwrite-second-client", "a pointer was overwritten"),
])  # fmt: skip
def test_staleness_beyond_the_limit_is_measured(fault, check, what, target):
    # On a busy machine, the first look after a change may come two seconds late.
    target.fault(fault, seconds=3)
    seen = on(target, check, sabotage=patient(4))
    # The length is new but the page is stale, so a pointer that grew has the old text with the end of the new one.
    is_mixed = fault == "stale data"
    assert anomaly_kinds(seen) <= ({"neither the old text nor the new one"} if is_mixed else set())
    assert seen.measured > 1.0
    assert float(seen.facts[f"longest after {what}"].split()[0]) > 1.0


def test_permanently_stale_names_end_the_wait(target):
    target.fault("stale attributes", seconds=1e9)
    assert "stale size" in anomaly_kinds(on(target, "STALE.attributes", sabotage=patient(0.5)))


@pytest.mark.thorough
@pytest.mark.parametrize("fault", ["names dropped in a listing", "names twice in a listing"])
def test_renames_of_a_directory_cannot_be_watched_where_listings_are_wrong_anyway(fault, target):
    target.fault(fault)
    seen = on(target, "COMMIT.directory", tidy=False)
    assert "before any rename (NAMES and STALE test this)" in seen.not_run
