"""Checks of renames, visibility, staleness, races and names pass on correct storage and report each fault."""

from __future__ import annotations

import re
import shlex
import sys

import pytest

from pytest_ckpt.conformance.content import page_fault, pages_of, version_of
from pytest_ckpt.facts.checks import BY_NAME
from pytest_ckpt.facts.observation import SECOND_MOUNT
from pytest_ckpt.targets.posix.storage_stack import mount_of
from tests.support.check_command import anomaly_kinds, run_check
from tests.support.machine import patience
from tests.support.selection import first_few

OURS = [name for name in BY_NAME if name.split(".")[0] in
        {"COMMIT", "VISIBLE", "PUBLISH", "STALE", "EXCLUSIVE", "POINTER", "MKDIR", "NAMES"}]  # fmt: skip


def agent(code):
    """Return the command that starts an agent, a second client's process. The agent first runs ``code``.

    ``code`` makes the agent misbehave.
    """
    code = f"import os, time\n{code}\nfrom pytest_ckpt.conformance.agent import main; main()"
    return [sys.executable, "-c", code]


def elsewhere(directory, code=""):
    """Return the options of a check for a second client in ``directory``.

    The client is an agent on this host that first runs ``code``.
    """
    return (f"--second-directory={directory}", f"--second-command={shlex.join(agent(code))}")


def every_agent(code):
    """Return Python code that a check runs first. Each agent that the check starts then runs ``code`` first."""
    return f"from pytest_ckpt.conformance.client import Client\nClient.__init__.__defaults__ = ({agent(code)!r},)"


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["disk", "tmpfs"])
@pytest.mark.parametrize("check", OURS)
def test_honest_storage_gives_no_alarm(check, kind, tmp_path, mount):
    directory = tmp_path if kind == "disk" else mount("tmpfs", 64)
    seen = run_check(check, directory, *elsewhere(directory), share=0.02)
    assert (seen.anomalies, seen.not_run) == ((), "")
    assert seen.trials > 0
    assert (seen.measured is not None) == bool(BY_NAME[check].unit)


@pytest.mark.parametrize("check", [name for name in OURS if BY_NAME[name].needs])
def test_without_a_second_client_a_check_of_two_is_not_run(check, tmp_path):
    assert "no second client" in run_check(check, tmp_path).not_run


def test_a_second_client_on_different_storage_is_reported(tmp_path):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    sabotage = "from pytest_ckpt.conformance.client import Client\nClient.sees.__kwdefaults__['seconds'] = 0.1"
    seen = run_check("VISIBLE.read-after-close", tmp_path / "here", *elsewhere(tmp_path / "there"), sabotage=sabotage)
    assert "the other client did not see a directory within 10 s" in seen.anomalies[0].seen


# Faults of the writing client. Each pauses for long enough that a reader looks during the fault.
NO_NAME = """
import pathlib, time
real = pathlib.Path.replace
def replace(self, target):
    target.unlink()
    time.sleep(0.002)
    real(self, target)
pathlib.Path.replace = replace
"""
COPIED = """
import pathlib, time
def replace(self, target):
    data = self.read_bytes()
    with target.open("wb") as file:
        file.write(data[:len(data) // 2])
        file.flush()
        time.sleep(0.002)
        file.write(data[len(data) // 2:])
pathlib.Path.replace = replace
"""
LOST = """
import pathlib
pathlib.Path.replace = lambda self, target: None
"""
OLDER = """
import pathlib, time
real = pathlib.Path.replace
def replace(self, target):
    old = target.read_bytes()
    real(self, target)
    time.sleep(0.002)
    new = target.read_bytes()
    for data in (old, new):
        (target.parent / "other").write_bytes(data)
        real(target.parent / "other", target)
        time.sleep(0.002)
pathlib.Path.replace = replace
"""
ONE_BY_ONE = """
import pathlib, time
real = pathlib.Path.rename
def rename(self, target):
    target.mkdir()
    for number, path in enumerate(sorted(self.iterdir())):
        real(path, target / path.name)
        if number == 50:
            time.sleep(0.002)
    self.rmdir()
pathlib.Path.rename = rename
"""
IN_TWO_WRITES = """
import pathlib, time
def write_bytes(self, data):
    with self.open("wb", buffering=0) as file:
        file.write(data[:15])
        time.sleep(0.002)
        file.write(data[15:])
pathlib.Path.write_bytes = write_bytes
"""
LISTS_WITHOUT_ONE = """
import os
real = os.listdir
os.listdir = lambda path: real(path)[1:]
"""
LISTS_ONE_TWICE = """
import os
real = os.listdir
os.listdir = lambda path: (lambda found: found + found[:1])(real(path))
"""
LISTS_AS_BEFORE = """
import os
real, kept = os.listdir, {}
os.listdir = lambda path: kept.setdefault(path, real(path))
"""


@pytest.mark.parametrize(("check", "sabotage", "kind"), [
    ("COMMIT.file", NO_NAME, "name missing during a rename"),
    ("COMMIT.file-second-client", NO_NAME, "name missing during a rename"),
    ("COMMIT.file", COPIED, "file too short during a rename"),
    ("COMMIT.file", LOST, "bytes of an older version after a rename"),
    ("COMMIT.file", OLDER, "bytes of an older version during a rename"),
    ("COMMIT.directory", ONE_BY_ONE, "directory with a part of its files during a rename"),
    ("COMMIT.directory-second-client", ONE_BY_ONE, "directory with a part of its files during a rename"),
    ("POINTER.overwrite", IN_TWO_WRITES, "neither the old text nor the new one"),
    ("POINTER.overwrite-second-client", IN_TWO_WRITES, "neither the old text nor the new one"),
    ("NAMES.many", LISTS_WITHOUT_ONE, "name missing in a listing"),
    ("NAMES.many", LISTS_ONE_TWICE, "name listed twice"),
    ("NAMES.after-change", LISTS_AS_BEFORE, "removed or unknown name in a listing"),
    ("NAMES.after-change", LISTS_WITHOUT_ONE, "name missing in a listing"),
])  # fmt: skip
def test_faults_of_the_writer_are_found(check, sabotage, kind, tmp_path):
    assert kind in anomaly_kinds(run_check(check, tmp_path, *elsewhere(tmp_path), sabotage=sabotage, share=0.02))


# Faults of the other client: it trusts its cache for longer than a second.
STALE_BYTES = """
import shutil, tempfile
real, kept = os.open, {}
def stale(path, flags, *mode):
    if flags == os.O_RDONLY and os.path.isfile(path) and time.monotonic() > kept.get(path, (0, 0))[0]:
        copy, _ = tempfile.mkstemp()
        name = f"/proc/self/fd/{copy}"
        shutil.copyfile(path, name)
        os.unlink(os.readlink(name))
        kept[path] = time.monotonic() + 1.2, name
    return real(kept[path][1] if flags == os.O_RDONLY and path in kept else path, flags, *mode)
os.open = stale
"""
STALE_LOOKS = """
real, kept = os.lstat, {}
def stale(path):
    if time.monotonic() > kept.get(path, (0, 0))[0]:
        try:
            kept[path] = time.monotonic() + 1.2, real(path)
        except FileNotFoundError as error:
            kept[path] = time.monotonic() + 1.2, error
    if isinstance(kept[path][1], OSError):
        raise kept[path][1]
    return kept[path][1]
os.lstat = stale
"""
STALE_LISTS = """
real, kept = os.listdir, {}
def stale(path):
    if time.monotonic() > kept.get(path, (0, 0))[0]:
        kept[path] = time.monotonic() + 1.2, real(path)
    return kept[path][1]
os.listdir = stale
"""
NOT_EXCLUSIVE = """
real = os.open
os.open = lambda path, flags, *mode: real(path, flags & ~os.O_EXCL, *mode)
"""
# The second client loses each race for a name, however busy the machine is: it waits until the first one has created
# it.
LOSES = """
import time
def after_the_other(real):
    def late(path, *more):
        until = time.monotonic() + 1
        while not os.path.exists(path) and time.monotonic() < until:
            time.sleep(0.001)
        return real(path, *more)
    return late
os.mkdir = after_the_other(os.mkdir)
exclusively, plain = after_the_other(os.open), os.open
os.open = lambda path, flags, *mode: (exclusively if flags & os.O_EXCL else plain)(path, flags, *mode)
"""
MKDIR_OF_WHAT_IS_THERE = """
import contextlib
real = os.mkdir
def mkdir(path):
    with contextlib.suppress(FileExistsError):
        real(path)
os.mkdir = mkdir
"""
LOSER_IS_BLIND = """
real, lost = os.open, set()
def blind(path, flags, *mode):
    if path in lost:
        raise FileNotFoundError(2, "No such file or directory", path)
    return real(path, flags, *mode)
os.open = blind
real_mkdir = os.mkdir
def mkdir(path):
    try:
        real_mkdir(path)
    except FileExistsError:
        lost.update(f"{path}/from-process-{number}" for number in range(4))
        lost.add(f"{path}/from-the-second-client")
        raise
os.mkdir = mkdir
"""

OLD_SIZES_LATER = """
# As sshfs does: the kernel asks again after a second, and is told what was known before.
real, known = os.fstat, {}
class Sized:
    def __init__(self, size):
        self.st_size = size
def fstat(fd):
    name = os.readlink(f"/proc/self/fd/{fd}")
    now, size = time.monotonic(), real(fd).st_size
    looked, old = known.get(name, (now, size))
    known[name] = now, size
    return Sized(old if now - looked > 1 else size)
os.fstat = fstat
"""
APPENDS_AT_THE_START = """
real = os.open
os.open = lambda path, flags, *mode: real(path, flags & ~os.O_APPEND, *mode)
"""


def patient(times):
    """Return Python code that a check runs first. The code sets ``GIVE_UP_TIMES`` to ``times``.

    ``GIVE_UP_TIMES`` determines how soon the check stops waiting.
    """
    return f"import pytest_ckpt.conformance.posix.visible as visible\nvisible.GIVE_UP_TIMES = {times}"


@pytest.mark.parametrize(("check", "code", "kind"), [
    ("VISIBLE.read-after-close", STALE_BYTES, "bytes of an older version at the first open"),
    ("VISIBLE.read-after-close", OLD_SIZES_LATER, "stale size at the first open"),
    ("VISIBLE.append", STALE_BYTES, "appended bytes are not seen"),
    ("VISIBLE.append", APPENDS_AT_THE_START, "an appended record is lost or torn"),
    ("EXCLUSIVE.create-second-client", NOT_EXCLUSIVE + LOSES, "O_EXCL with several winners"),
    ("MKDIR.race-second-client", LOSES + MKDIR_OF_WHAT_IS_THERE, "mkdir with several winners"),
    ("MKDIR.race-second-client", LOSES + LOSER_IS_BLIND, "directory that was just made cannot be used"),
    ("NAMES.second-client", LISTS_ONE_TWICE, "name listed twice"),
])  # fmt: skip
def test_faults_of_the_other_client_are_found(check, code, kind, tmp_path):
    # Without this limit, the check would wait for a listing that never agrees.
    assert kind in anomaly_kinds(
        run_check(check, tmp_path, *elsewhere(tmp_path, code), share=0.02, sabotage=patient(1))
    )


@pytest.mark.parametrize(("check", "code", "kind"), [
    ("EXCLUSIVE.create", NOT_EXCLUSIVE, "O_EXCL with several winners"),
    ("MKDIR.race", MKDIR_OF_WHAT_IS_THERE, "mkdir with several winners"),
    ("MKDIR.race", LOSER_IS_BLIND, "directory that was just made cannot be used"),
])  # fmt: skip
def test_faults_of_processes_on_this_host_are_found(check, code, kind, tmp_path):
    assert kind in anomaly_kinds(run_check(check, tmp_path, sabotage=every_agent(code), share=0.02))


@pytest.mark.thorough
@pytest.mark.parametrize(("check", "code"), [
    ("STALE.attributes", STALE_LOOKS),
    ("STALE.names", STALE_LOOKS),
    ("STALE.names", STALE_LISTS),
    ("STALE.names", STALE_BYTES),
    ("STALE.negative-names", STALE_LOOKS),
    ("POINTER.overwrite-second-client", STALE_BYTES),
])  # fmt: skip
def test_staleness_of_more_than_a_second_is_measured(check, code, tmp_path):
    # On a busy machine, the first look after a change may come two seconds late.
    code = code.replace("1.2", "3")
    seen = run_check(check, tmp_path, *elsewhere(tmp_path, code), share=0.02, sabotage=patient(5))
    assert seen.measured > 1.0
    assert not anomaly_kinds(seen)


def test_a_permanently_stale_name_ends_the_wait(tmp_path):
    stale = elsewhere(tmp_path, STALE_LOOKS.replace("1.2", "1e9"))
    seen = run_check("STALE.attributes", tmp_path, *stale, share=0.02, sabotage=patient(0.5))
    assert seen.anomalies[0].kind == "stale size"
    found = re.search(r"size still 1000 after ([\d.]+) s, when the check gave up", seen.anomalies[0].seen)
    assert found
    assert 0.5 <= float(found[1]) < patience(1)
    assert seen.anomalies[0].expected == "5096 within 1 s"
    here = mount_of(tmp_path.resolve())
    assert seen.facts[SECOND_MOUNT] == f"{here.file_system} {here.options}"


def test_each_kind_of_damaged_page_is_identified():
    right = pages_of(7, [1, 1, 2])
    assert page_fault(right, 7, [1, 1, 2]) is None
    flipped = bytearray(right)
    flipped[5000] ^= 4
    swapped = right[4096:8192] + right[:4096] + right[8192:]
    zeros = right[:4096] + bytes(4096) + right[8192:]
    assert page_fault(b"", 7, [1]) == ("file empty", 0, "no bytes")
    assert page_fault(right[:5000], 7, [1, 1, 2]) == ("file too short", 5000, "the end after 5,000 of 12,288 bytes")
    assert page_fault(right + b"x", 7, [1, 1, 2])[:2] == ("file too long", 12288)
    assert page_fault(bytes(flipped), 7, [1, 1, 2]) == ("damaged bytes", 5000, "1 wrong of 4,096 bytes")
    assert page_fault(swapped, 7, [1, 1, 2]) == ("page in the wrong place", 0, "page 1 of version 1")
    assert page_fault(zeros, 7, [1, 1, 2]) == ("zeros instead of data", 4096, "4,096 zeros")
    assert page_fault(right, 7, [1, 1, 3])[:2] == ("bytes of an older version", 8192)
    assert page_fault(right, 7, [1, 1, 1])[:2] == ("bytes of two versions", 8192)
    assert version_of(right) == 1
    assert version_of(b"other") is None
    # Bytes of another seed belong to another run, so they count as damaged.
    assert page_fault(right, 8, [1, 1, 2])[0] == "damaged bytes"


# The writer commits before its last file exists, and pauses for long enough that a reader looks.
COMMITTED_TOO_EARLY = """
import time
import pytest_ckpt.conformance.posix.commit as commit
true_commit = commit._commit
def late_commit(context, findings, way, draft, final, lengths, calls):
    last = draft / "shard-15"
    content = last.read_bytes()
    last.unlink()
    true_commit(context, findings, way, draft, final, lengths, calls)
    time.sleep(0.5)
    (final / "shard-15").write_bytes(content)
commit._commit = late_commit
"""
LIMIT_OF_A_MOMENT = """
import dataclasses
import pytest_ckpt.conformance.posix.commit as commit
commit.BY_NAME = {name: dataclasses.replace(row, limit=0.2) for name, row in commit.BY_NAME.items()}
"""
SEES_LATE = """
true_open = os.open
def late(path, *flags):
    if str(path).endswith("/.metadata"):
        raise FileNotFoundError(2, "No such file or directory", path)
    return true_open(path, *flags)
os.open = late
"""


@pytest.mark.parametrize("way", first_few(["marker", "directory", "pointer"]))
def test_a_checkpoint_that_shows_before_its_files_is_found(way, tmp_path):
    seen = run_check(f"PUBLISH.{way}", tmp_path, *elsewhere(tmp_path), sabotage=COMMITTED_TOO_EARLY)
    assert anomaly_kinds(seen) == {"marker visible before its data"}
    assert "shard-15" in seen.anomalies[0].where
    assert seen.anomalies[0].seen == "No such file or directory (errno 2)"


@pytest.mark.thorough
def test_how_late_a_checkpoint_shows_is_measured_and_its_end_is_not_waited_for(tmp_path):
    more = elsewhere(tmp_path, SEES_LATE)
    seen = run_check("PUBLISH.marker", tmp_path, *more, sabotage=LIMIT_OF_A_MOMENT)
    assert (seen.trials, seen.anomalies) == (1, ())
    assert seen.measured >= 0.2
