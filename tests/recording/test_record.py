"""``pytest-ckpt record`` and ``show``: a pattern contains the file calls of a job, but no names from the job."""

from __future__ import annotations

import getpass
import os
import platform
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.facts.pattern import Pattern, read_pattern
from pytest_ckpt.recording.files import ALIKE, REMOVED, UNLIKE
from tests.support.traced_jobs import PLAIN, SECRET, need_strace, record

pytestmark = pytest.mark.covers(commands=("record", "show"))
IN_PLACE = """
import os, sys
with open(sys.argv[1] + "/a", "wb", buffering=0) as out:
    {calls}
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return (text of the recorded pattern, output of the command)."""
    need_strace()
    directory = tmp_path_factory.mktemp("job")
    done = record(directory, PLAIN)
    assert done.returncode == 0, done.stderr
    return (directory / "job.pattern.json").read_text(), done.stdout


@pytest.fixture(scope="module")
def pattern(recorded: tuple[str, str]) -> Pattern:
    return read_pattern(recorded[0])


def calls_of(pattern: Pattern, rank: int, lane: int, phase: int) -> list[tuple[str, int, int]]:
    return [(s.call, s.bytes, s.count) for s in pattern.steps if (s.rank, s.lane, s.phase) == (rank, lane, phase)]


def test_the_calls_of_each_thread_stand_in_their_order(pattern: Pattern) -> None:
    assert pattern.ranks == 2
    both = [("create", 0, 1), ("write", 1_000_000, 3), ("fsync", 0, 1), ("close", 0, 1)]
    assert calls_of(pattern, 0, 0, 0) == calls_of(pattern, 0, 1, 0) == both
    one = [("create", 0, 1), ("write", 704, 1), ("write", 2_000_000, 1), ("write", 873, 1)]
    assert calls_of(pattern, 1, 0, 0) == [*one, ("fsync", 0, 1), ("close", 0, 1)]


def test_the_commit_after_all_ranks_is_a_separate_phase(pattern: Pattern) -> None:
    commit = [("create", 0, 1), ("write", 5000, 1), ("close", 0, 1), ("rename", 0, 1)]
    assert calls_of(pattern, 0, 0, 1) == commit
    assert {step.phase for step in pattern.steps} == {0, 1}


def test_no_name_and_no_data_is_in_the_pattern(recorded: tuple[str, str]) -> None:
    text, found = recorded
    planted = {SECRET, "alice", "customer-data", "job.py", socket.gethostname(), os.sep}
    planted |= {getpass.getuser()} if getpass.getuser() != "root" else {"root"}
    for word in planted:
        assert word not in text, word
    assert SECRET not in found


def test_show_says_it_in_words(recorded: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "j.json").write_text(recorded[0])
    assert main(["show", str(tmp_path / "j.json")]) == 0
    output = capsys.readouterr().out
    for line in (
        "2 ranks, 4 files, 8.01 MB a save",
        "rank 0, 2 threads:",
        "  file 0 (3 MB): create, 3 writes of 1,000,000 bytes, fsync, close",
        "  waits for all ranks, then",
        "commit: rank 0 renames a file when all others have ended",
        "durability: 1 of 4 files not flushed after the last write, 0 fsyncs of directories",
        "load: none recorded",
        "pauses: none recorded",
    ):
        assert line in output.splitlines()


def test_runs_of_one_job_give_one_pattern(recorded: tuple[str, str], tmp_path: Path) -> None:
    assert record(tmp_path, PLAIN).returncode == 0
    assert (tmp_path / "job.pattern.json").read_text() == recorded[0]


@pytest.mark.parametrize(
    ("calls", "expected_text"),
    [
        ("pass", "file 0 was left empty"),
        ("out.truncate(5000)", "no write covers byte 0 of file 0"),
        ("out.write(bytes(10)); out.seek(20); out.write(bytes(10))", "no write covers byte 10 of file 0"),
        ("[(out.seek(0), out.write(bytes(2000000))) for _ in range(5)]", "written more than 4 times over"),
        ("out.write(bytes(9)); os.rename(__file__, sys.argv[1] + '/b')", "wrote 1 file elsewhere and moved"),
        ("sys.exit(3)", "The job ended with 3"),
    ],
)
def test_a_job_that_is_no_save_is_refused(tmp_path: Path, calls: str, expected_text: str) -> None:
    need_strace()
    done = record(tmp_path, IN_PLACE.format(calls=calls))
    assert done.returncode == 4
    assert (expected_text if "empty" not in expected_text else "leaves no file with data") in done.stderr
    assert "Traceback" not in done.stderr.replace("Its output", "")
    assert not (tmp_path / "job.pattern.json").exists()


def test_without_strace_the_error_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["record", f"--under={tmp_path}", f"--out={tmp_path}/p.json", "--", "true"]) == 4
    assert "strace is not installed" in capsys.readouterr().err


def test_a_host_that_permits_no_ptrace_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in = tmp_path / "strace"
    stand_in.write_text("#!/bin/sh\necho 'strace: ptrace(PTRACE_TRACEME, ...): Operation not permitted' >&2\nexit 1\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert main(["record", f"--under={tmp_path}", f"--out={tmp_path}/p.json", "--", "true"]) == 4
    assert "--cap-add=SYS_PTRACE" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--from=log", "--", "true"]])
def test_record_requires_either_a_command_or_a_log(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", f"--under={tmp_path}", f"--out={tmp_path}/p.json", *words]) == 4
    assert "either a command after -- or --from" in capsys.readouterr().err


def test_logs_of_several_hosts_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", f"--under={tmp_path}", f"--out={tmp_path}/p.json", "--from=one", "--from=two"]) == 4
    assert "--from names 2 logs. Logs of several hosts cannot be joined" in capsys.readouterr().err


# A simulated rank on another host: no recorded process of the job writes its file.
ELSEWHERE = """
import os, sys, time
os.mkfifo(sys.argv[1] + "/ask")
with open(sys.argv[1] + "/ask", "w") as ask:
    ask.write(sys.argv[1] + "/b")
while not os.path.exists(sys.argv[1] + "/b.done"):
    time.sleep(0.01)
with open(sys.argv[1] + "/a", "wb", buffering=0) as out:
    out.write(bytes(10))
"""
OTHER_HOST = """
import os, sys
while not os.path.exists(sys.argv[1] + "/ask"):
    pass
with open(open(sys.argv[1] + "/ask").read(), "wb") as out:
    out.write(bytes(10))
os.mkdir(sys.argv[1] + "/b.done")
"""


def test_a_job_with_ranks_on_other_hosts_is_refused(tmp_path: Path) -> None:
    need_strace()
    other = subprocess.Popen([sys.executable, "-c", OTHER_HOST, str(tmp_path / "saved")])
    done = record(tmp_path, ELSEWHERE)
    assert other.wait() == 0
    assert done.returncode == 4
    assert "1 file was written below --under that no recorded call made, b first" in done.stderr
    assert "by processes on other hosts" in done.stderr
    assert not (tmp_path / "job.pattern.json").exists()


# The file has a recorded write and then one by libaio, as in FastPersist of DeepSpeed: a log of strace does not show
# the bytes of io_submit. The numbers are those of the system calls io_setup, io_submit and io_getevents on x86-64.
BY_LIBAIO = """
import ctypes, os, struct, sys
file = os.open(sys.argv[1] + "/a", os.O_CREAT | os.O_WRONLY)
os.write(file, bytes(10))
kernel, context, data = ctypes.CDLL(None, use_errno=True), ctypes.c_ulong(), ctypes.create_string_buffer(4096)
assert kernel.syscall(206, 1, ctypes.byref(context)) == 0
write, request = 1, "<QIIHhIQQqQII"
block = ctypes.create_string_buffer(
    struct.pack(request, 0, 0, 0, write, 0, file, ctypes.addressof(data), 4096, 10, 0, 0, 0)
)
assert kernel.syscall(209, context, ctypes.c_long(1), ctypes.byref(ctypes.pointer(block))) == 1
events = ctypes.create_string_buffer(32)
assert kernel.syscall(208, context, ctypes.c_long(1), ctypes.c_long(1), events, None) == 1
os.close(file)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the job uses the numbers of system calls of x86-64")
def test_a_file_that_a_job_extends_without_recorded_calls_is_refused(tmp_path: Path) -> None:
    need_strace()
    done = record(tmp_path, BY_LIBAIO)
    assert (tmp_path / "saved" / "a").stat().st_size == 10 + 4096
    assert done.returncode == 4, done.stdout
    assert "a has 4,106 bytes, and the recorded calls explain 10 bytes" in done.stderr
    assert not (tmp_path / "job.pattern.json").exists()


# Two processes write parts of one file, like jobs with a shared file.
SHARED = """
import os, sys
path = sys.argv[1] + "/shared"
children = []
for rank in range(2):
    children.append(os.fork())
    if not children[-1]:
        file = os.open(path, os.O_CREAT | os.O_WRONLY)
        os.pwrite(file, bytes(1000), 1000 * rank)
        os._exit(0)
for child in children:
    os.waitpid(child, 0)
"""


def test_a_file_that_ranks_share_is_refused(tmp_path: Path) -> None:
    need_strace()
    done = record(tmp_path, SHARED)
    assert done.returncode == 4, done.stdout
    assert "Several ranks work on 1 file in one save" in done.stderr
    assert not (tmp_path / "job.pattern.json").exists()


def test_a_log_that_is_there_already_is_read(tmp_path: Path) -> None:
    need_strace()
    script, log = IN_PLACE.format(calls="out.write(bytes(5000))"), tmp_path / "log"
    (tmp_path / "job.py").write_text(script)
    front = ["strace", "-f", "-y", "-ttt", "-s", "0", "-o", str(log)]
    subprocess.run([*front, sys.executable, str(tmp_path / "job.py"), str(tmp_path)], check=True)
    words = [f"--under={tmp_path}", f"--out={tmp_path}/p.json"]
    assert main(["record", *words, f"--from={log}"]) == 0
    assert [f.bytes for f in read_pattern((tmp_path / "p.json").read_text()).files] == [5000]
    log.write_text(log.read_text()[:-200])
    assert main(["record", *words, f"--from={log}"]) == 4


# Three saves, each written into a directory that is then renamed. The first save has one file more. A link names the
# newest save. The third save removes the oldest one.
SEVERAL = """
import os, shutil, sys
for step in range(3):
    directory = sys.argv[1] + "/passing"
    os.mkdir(directory)
    for name in ["weights"] + ["warm-up"] * (step == 0):
        with open(f"{directory}/{name}", "wb", buffering=0) as out:
            out.write(bytes(2000000))
            os.fsync(out.fileno())
    os.rename(directory, f"{sys.argv[1]}/step-{step}")
    with open(sys.argv[1] + "/latest", "wb", buffering=0) as out:
        out.write(b"step-%d" % step)
    if step == 2:
        shutil.rmtree(sys.argv[1] + "/step-0")
with open(f"{sys.argv[1]}/step-2/weights", "rb", buffering=0) as data:
    data.read(1000000)
"""


def test_the_newest_of_several_saves_is_the_pattern_and_the_others_are_counted(tmp_path: Path) -> None:
    need_strace()
    done = record(tmp_path, SEVERAL, options=("--each=step-*", "--no-pauses"))
    assert done.returncode == 0, done.stderr
    pattern = read_pattern((tmp_path / "job.pattern.json").read_text())
    assert [(f.bytes, f.kept) for f in pattern.files] == [(2_000_000, True), (6, True)]
    assert [s.call for s in pattern.steps] == ["create", "write", "fsync", "close", "create", "write", "close"]
    assert pattern.read_bytes == 1_000_000
    assert pattern.omitted == {"directories made": 1, "directories renamed": 1, ALIKE: 1, UNLIKE: 1, REMOVED: 3}
    assert f"{ALIKE}: 1" in done.stdout


def test_a_glob_that_no_directory_has_is_reported(tmp_path: Path) -> None:
    need_strace()
    done = record(tmp_path, SEVERAL, options=("--each=epoch-*",))
    assert done.returncode == 4
    assert "made no directory below --under whose name is epoch-*" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_pauses_of_a_job_are_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_strace()
    calls = "out.write(bytes(1000)); __import__('time').sleep(0.05); out.write(bytes(1000))"
    assert record(tmp_path, IN_PLACE.format(calls=calls), options=()).returncode == 0
    pattern = read_pattern((tmp_path / "job.pattern.json").read_text())
    assert sum(pattern.pauses_us().values()) >= 50_000
    assert main(["show", str(tmp_path / "job.pattern.json")]) == 0
    assert "between the calls of a thread of rank 0, the most of any" in capsys.readouterr().out
