"""Checks read files as checkpoint loaders do: they do not call stat before a read, and continue after a short read."""

from __future__ import annotations

import ast
import os
import shlex
import sys

import pytest

from pytest_ckpt.conformance.content import read_at, read_file
from pytest_ckpt.conformance.posix.checkpoints import Checkpoint, read_past_caches
from tests.support import CHECKOUT
from tests.support.check_command import anomaly_kinds, run_check

CHECKS = sorted((CHECKOUT / "pytest_ckpt" / "conformance" / "posix").rglob("*.py"))

# As in disorderfs, s3fs and sshfs: reads end at the length that the client remembers, until a call requests the size.
CUT_UNTIL_ASKED = """
import io, os
true = {name: getattr(os, name) for name in ("open", "pread", "pwrite", "stat", "lstat", "fstat", "listdir", "scandir")}
true_io_open, known = io.open, {}
def path_of(descriptor):
    return os.readlink(f"/proc/self/fd/{descriptor}")
def cut_open(path, flags, *mode, **more):
    descriptor = true["open"](path, flags, *mode, **more)
    known.setdefault(path_of(descriptor), true["fstat"](descriptor).st_size)
    return descriptor
def cut_pread(descriptor, length, offset):
    left = known.get(path_of(descriptor), offset + length) - offset
    return true["pread"](descriptor, max(min(length, left), 0), offset)
def known_pwrite(descriptor, data, offset):
    done = true["pwrite"](descriptor, data, offset)
    known[path_of(descriptor)] = max(known.get(path_of(descriptor), 0), offset + done)
    return done
def asked(function):
    def ask(path=".", *more, **named):
        below = path_of(path) if isinstance(path, int) else os.fspath(path)
        for one in known:
            if one.startswith(below) and os.access(one, os.F_OK):
                known[one] = true["stat"](one).st_size
        return function(path, *more, **named)
    return ask
os.open, os.pread, os.pwrite = cut_open, cut_pread, known_pwrite
for name in ("stat", "lstat", "fstat", "listdir", "scandir"):
    setattr(os, name, asked(true[name]))
io.open = asked(true_io_open)  # it asks for the size itself
"""
SHORT_READS = """
import os
true_read, true_pread = os.read, os.pread
os.read = lambda fd, length: true_read(fd, min(length, 100) if os.path.isfile(f"/proc/self/fd/{fd}") else length)
os.pread = lambda fd, length, offset: true_pread(fd, min(length, 100), offset)
"""
# The loser of the race writes into the winner's file, and this client's cache reports that the file does not exist.
LOSER_WRITES = """
from pytest_ckpt.conformance.posix import races
true_create = races.create_names
def create_names(path, *, names, racer_name):
    done = true_create(path, names=names, racer_name=racer_name)
    for name in set(names) - set(done["won"]):
        with open(f"{path}/{name}", "w") as file:
            file.write(racer_name)
    return done
races.create_names = create_names
"""
NAME_IS_NOT_KNOWN = "from pathlib import Path\nPath.exists = lambda self, **more: False"


def agent(code):
    """Return the command that starts an agent, a second client's process. The agent first runs ``code``."""
    return [sys.executable, "-c", f"{code}\nfrom pytest_ckpt.conformance.agent import main; main()"]


def elsewhere(directory, code=""):
    """Return the options of a check for a second client in ``directory``.

    The client is an agent on this host that first runs ``code``.
    """
    return (f"--second-directory={directory}", f"--second-command={shlex.join(agent(code))}")


def every_agent(code):
    """Return Python code that a check runs first. Each agent that the check starts then runs ``code`` first."""
    return f"from pytest_ckpt.conformance.client import Client\nClient.__init__.__defaults__ = ({agent(code)!r},)"


def test_the_sabotage_cuts_until_the_file_is_asked_about(tmp_path):
    path = tmp_path / "file"
    code = f"""{CUT_UNTIL_ASKED}
from pathlib import Path
from pytest_ckpt.conformance.content import read_file
path = Path({str(path)!r})
def grow():
    os.system(f"printf 123 >> {{path}}")
    return len(read_file(path))
path.touch()
read_file(path)
cut = grow()
os.path.exists(path)
assert (cut, len(read_file(path)), grow(), len(path.read_bytes())) == (0, 3, 3, 6)
"""
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0


@pytest.mark.parametrize(("check", "here", "there", "kind"), [
    ("POINTER.overwrite-second-client", "", CUT_UNTIL_ASKED, "longer text is cut"),
    ("SPARSE.disjoint-writers-second-client", CUT_UNTIL_ASKED, "", "file cut short"),
    ("VISIBLE.append", "", CUT_UNTIL_ASKED, "appended bytes are not seen"),
    ("VISIBLE.read-after-close", "", CUT_UNTIL_ASKED, "file too short at the first open"),
])  # fmt: skip
def test_a_file_that_is_short_until_its_size_is_requested_is_found(check, here, there, kind, tmp_path):
    seen = run_check(check, tmp_path, *elsewhere(tmp_path, there), sabotage=here, share=0.02)
    assert kind in anomaly_kinds(seen), seen


def test_a_longer_text_that_a_reader_of_this_host_gets_cut_is_found(tmp_path):
    seen = run_check("POINTER.overwrite", tmp_path, sabotage=every_agent(CUT_UNTIL_ASKED), share=0.02)
    assert anomaly_kinds(seen) == {"longer text is cut"}
    assert seen.anomalies[0].seen == "b'global_step2', 12 bytes"
    assert seen.anomalies[0].expected == "b'global_step25', 13 bytes; the text before had 12"


def test_a_file_of_the_winner_is_read_also_if_its_name_is_not_known_here(tmp_path):
    sabotage = f"{every_agent(LOSER_WRITES)}\n{NAME_IS_NOT_KNOWN}"
    seen = run_check("EXCLUSIVE.create", tmp_path, sabotage=sabotage, share=0.02)
    assert anomaly_kinds(seen) == {"file of the winner of O_EXCL was replaced"}


@pytest.mark.parametrize(
    "check", ["PUBLISH.marker", "PUBLISH.directory", "PUBLISH.pointer", "COMMIT.file-second-client"]
)
def test_short_reads_are_no_fault(check, tmp_path):
    seen = run_check(check, tmp_path, *elsewhere(tmp_path, SHORT_READS), sabotage=SHORT_READS, share=0.02)
    assert (seen.anomalies, seen.not_run) == ((), "")
    assert seen.trials > 0


def test_a_checkpoint_is_read_before_its_directory_is_listed(tmp_path):
    checkpoint, calls = Checkpoint(number=1, seed=7), []
    checkpoint.save(tmp_path, lambda *_: None)
    assert checkpoint.wrongs(tmp_path, lambda call, _: calls.append(call)) == []
    assert calls == ["read"] * checkpoint.files + ["list"]


@pytest.mark.parametrize("step", [4096, 1000, 1 << 20])
def test_a_direct_read_that_comes_short_is_continued(step, tmp_path, monkeypatch):
    path, true = tmp_path / "file", os.preadv
    path.write_bytes(os.urandom(100_001))
    calls = []

    def short(descriptor, views, offset):
        """Read like preadv, but the first read at each offset returns at most ``step`` bytes."""
        calls.append(offset)
        count = step if calls.count(offset) == 1 else len(views[0])
        return true(descriptor, [memoryview(views[0])[:count]], offset)

    monkeypatch.setattr("os.preadv", short)
    assert read_past_caches(path) == path.read_bytes()


def test_a_file_is_read_to_the_read_that_returns_nothing(tmp_path, monkeypatch):
    path, true = tmp_path / "file", os.pread
    path.write_bytes(os.urandom(5000))
    monkeypatch.setattr("os.pread", lambda descriptor, length, offset: true(descriptor, min(length, 7), offset))
    assert read_file(path) == path.read_bytes()
    descriptor = os.open(path, os.O_RDONLY)
    assert read_at(descriptor, 4990, 100) == path.read_bytes()[4990:]
    assert read_at(descriptor, 10, 20) == path.read_bytes()[10:30]
    os.close(descriptor)


@pytest.mark.parametrize("path", CHECKS, ids=lambda path: path.stem)
def test_no_check_requests_the_size_before_it_reads(path):
    """Checks do not use Path.read_bytes, read_text or readall, because these functions call fstat before the read.

    One check, durable, uses read_text for files that are not on the target.
    """
    elsewhere = {"durable": {"read_text"}}
    tree = ast.parse(path.read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert used & {"read_bytes", "read_text", "readall"} <= elsewhere.get(path.stem, set())
