"""Example jobs that save a checkpoint, and functions that record these jobs with ``pytest-ckpt record``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_ckpt.recording.files import CALLS, JobFiles
from pytest_ckpt.recording.strace_log import BIRTHS, Threads
from pytest_ckpt.recording.trace import calls_of
from pytest_ckpt.sizing.models import Layout
from tests.support.one_rank import area_in, as_one_rank

SECRET = "customer-model-of-alice"
# Two processes are ranks; the first has two threads, and commits when the other has ended.
PLAIN = """
import os, subprocess, sys, threading
directory = sys.argv[1] + "/customer-model-of-alice"
os.makedirs(directory, exist_ok=True)

def write(name, sizes, sync=True):
    with open(f"{directory}/{name}", "wb", buffering=0) as out:
        for size in sizes:
            out.write(b"customer-data" + bytes(size - 13))
        if sync:
            os.fsync(out.fileno())

def together(*calls):
    gate = threading.Barrier(len(calls))
    threads = [threading.Thread(target=lambda call=call: (gate.wait(), call())) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

if len(sys.argv) == 2:
    ranks = [subprocess.Popen([*sys.orig_argv, str(n)], stdin=-1, stdout=-1) for n in range(2)]
    # Each rank reports that it is ready, and continues when all ranks are ready.
    for word in range(3):
        for rank in ranks:
            rank.stdout.read(1)
        for rank in ranks:
            rank.stdin.write(b"!")
            rank.stdin.flush()
    for rank in ranks:
        rank.wait()
    sys.exit()

def barrier():
    os.write(1, b"!")
    os.read(0, 1)

rank = int(sys.argv[2])
if rank:
    # It is at its file from before the other begins until after that has ended: the same order in every run.
    out = open(f"{directory}/alice-shard-1.bin", "wb", buffering=0)
barrier()
if not rank:
    together(*(lambda n=n: write(f"alice-{n}.bin", [1000000] * 3) for n in (1, 2)))
barrier()
if rank:
    for size in (704, 2000000, 873):
        out.write(b"customer-data" + bytes(size - 13))
    os.fsync(out.fileno())
    out.close()
barrier()
if rank == 0:
    write("alice.index.tmp", [5000], sync=False)
    os.rename(f"{directory}/alice.index.tmp", f"{directory}/alice.index")
"""


def need_strace() -> None:
    """Skip the test if strace is missing or not permitted on this machine."""
    strace = shutil.which("strace")
    if not strace or subprocess.run([strace, "-q", "-o", "/dev/null", "true"], check=False).returncode:
        pytest.skip("no strace that may trace")


def record(
    directory: Path, script: str, *words: str, label: str = "", options: Sequence[str] = ("--no-pauses",)
) -> subprocess.CompletedProcess[str]:
    """Record a job script with ``pytest-ckpt record``; return the completed command.

    The script saves below its first argument. The pattern of the job is written to ``job.pattern.json`` in
    ``directory``. By default the pattern contains no pauses, because pauses differ between runs.
    """
    job, under = directory / "job.py", directory / "saved"
    job.write_text(script)
    under.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pytest_ckpt.cli.main", "record", *options, "--under", str(under)]
    command += ["--label", label, "--out", str(directory / "job.pattern.json"), "--"]
    command += [sys.executable, str(job), str(under), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def calls_by_file(found: JobFiles) -> dict[str, list[tuple[str, int]]]:
    """Return {file name: (call, bytes) of each call}, in the order of the files' first calls."""
    paths = {number: path for path, number in found.numbers.items()}
    made: dict[str, list[tuple[str, int]]] = {}
    for act in found.acts:
        # Calls on directories do not belong to a file.
        if act.file in paths:
            made.setdefault(Path(paths[act.file]).name, []).append((act.call, act.bytes))
    return made


def traced_save(directory: Path, engine: str, whole: Layout, pattern: str = "") -> JobFiles:
    """Save below ``directory`` as one rank under strace; return the recorded calls on the saved files."""
    target, log = directory / "target", directory / "log"
    target.mkdir()
    names = ",".join(f"?{call}" for call in sorted(CALLS | BIRTHS))
    # The kernel filters the calls, because a job that imports torch makes a hundred other calls for each recorded one.
    front = ("strace", "-f", "--seccomp-bpf", "-y", "-ttt", "-s", "0", "-e", f"trace={names}", "-o", str(log))
    as_one_rank(engine, whole, area_in(target), "save", front=front, pattern=pattern)
    calls = calls_of(log)
    found = JobFiles(under=str(target), process=Threads(calls).process)
    for call in calls:
        found.record(call)
    return found
