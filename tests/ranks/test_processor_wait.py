"""The seconds for which a rank was ready to run but had no CPU.

The kernel counts the waiting time of each thread. The value of a rank is the longest waiting time of its threads.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_ckpt.support import host_state
from pytest_ckpt.support.host_state import ProcessorWait, run_queue_waits
from tests.support.machine import patience

SECOND = 1_000_000_000

ONE_CPU = """
import os, sys, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from pytest_ckpt.support.host_state import ProcessorWait
"""

BUSY = "end = time.process_time() + 0.2\nwhile time.process_time() < end: pass\n"


@pytest.fixture
def read_from(monkeypatch):
    """Return a function that sets the directory from which waiting times are read, in place of /proc/self/task."""
    return lambda directory: monkeypatch.setattr(host_state, "run_queue_waits", lambda: run_queue_waits(directory))


def threads(directory, **waited):
    for name, nanoseconds in waited.items():
        (directory / name).mkdir(exist_ok=True)
        (directory / name / "schedstat").write_text(f"5 {nanoseconds} 7\n")


def test_the_longest_wait_of_one_thread_counts(tmp_path, read_from):
    read_from(tmp_path)
    threads(tmp_path, a=1 * SECOND, b=5 * SECOND)
    wait = ProcessorWait()
    wait.begin()
    threads(tmp_path, a=3 * SECOND, b=6 * SECOND, c=1 * SECOND)
    wait.end()
    assert wait.seconds(beyond=0.0) == pytest.approx(2.0)
    assert wait.seconds(beyond=0.5) == pytest.approx(1.5)
    assert wait.seconds(beyond=9.0) == 0.0


def test_waits_between_two_steps_do_not_count(tmp_path, read_from):
    read_from(tmp_path)
    wait = ProcessorWait()
    for before, after in ((0, 1), (8, 9)):
        threads(tmp_path, a=before * SECOND)
        wait.begin()
        threads(tmp_path, a=after * SECOND)
        wait.end()
    assert wait.seconds(beyond=0.0) == pytest.approx(2.0)


@pytest.mark.parametrize("directory", ["nowhere", "."], ids=["no directory", "no thread tells"])
def test_without_counts_of_the_kernel_the_wait_is_unknown(tmp_path, directory, read_from):
    read_from(tmp_path / directory)
    wait = ProcessorWait()
    wait.begin()
    wait.end()
    assert wait.seconds(beyond=0.0) is None


def waited(body, beside):
    """Run ``body`` in a process that shares a CPU with ``beside`` busy processes.

    Return the seconds for which the process waited for the CPU.
    """
    counted = ONE_CPU + f"wait = ProcessorWait()\nwait.begin()\n{body}wait.end()\nprint(wait.seconds(beyond=0.0))\n"
    endless = ONE_CPU + "print(flush=True)\nwhile True: pass\n"
    busy = [subprocess.Popen([sys.executable, "-c", endless], stdout=subprocess.PIPE) for _ in range(beside)]
    try:
        for process in busy:
            process.stdout.readline()
        out = subprocess.run(
            [sys.executable, "-c", counted], check=True, capture_output=True, text=True, timeout=patience(60)
        )
    finally:
        for process in busy:
            process.kill()
            process.communicate()
    return float(out.stdout)


needs_count = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this kernel does not count waits for CPUs"
)


@needs_count
def test_a_process_beside_busy_ones_has_waited():
    # Two other processes use two thirds of the CPU, so 0.2 s of work wait for 0.4 s. At least a quarter of that is
    # seen.
    assert waited(BUSY, beside=2) > 0.1


@needs_count
def test_time_asleep_or_in_input_is_no_wait_for_a_cpu():
    # Other work may let this process wait for a processor.
    assert any(share_waited_in_input() < 0.5 for _ in range(5))


def share_waited_in_input() -> float:
    """Wait for the end of a process that sleeps; return the share of this time that counts as a wait for a CPU."""
    read, write = os.pipe()
    before = ProcessorWait()
    start = time.perf_counter()
    before.begin()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)"], stdout=write)
    os.close(write)
    assert os.read(read, 1) == b""
    before.end()
    elapsed = time.perf_counter() - start
    os.close(read)
    child.wait()
    return before.seconds(beyond=0.0) / elapsed
