"""A simulated host with little memory: its memory use stays below the limit, and programs see this limit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support import CHECKOUT
from tests.support.small_memory import cannot, meminfo, small_memory

pytestmark = pytest.mark.thorough
MIB = 1 << 20

READS_MORE_THAN_FITS = """
import os, subprocess, sys
from pathlib import Path
from pytest_ckpt.support.host_state import memory_limit_bytes, memory_of_host
from pytest_ckpt.targets.posix.page_cache import TRIES, resident_bytes
from tests.support.machine import unmount_inherited
from tests.support.small_memory import join

unmount_inherited()
group, little, file = map(Path, sys.argv[1:])
join(group)
subprocess.run(["mount", "--bind", little, "/proc/meminfo"], check=True)
with file.open("wb") as written:
    for _ in range(256):
        written.write(os.urandom(1 << 20))
    written.flush()
    os.fsync(written.fileno())
# Other tests drop the page cache of this machine.
for _ in range(TRIES):
    with file.open("rb") as read:
        while read.read(1 << 20):
            pass
    resident, size = resident_bytes(file, "mincore")
    if resident:
        break
print(resident, size, memory_of_host()["MemTotal"], memory_limit_bytes())
"""


@pytest.fixture
def group():
    if reason := cannot():
        pytest.skip(reason)
    with small_memory(96 * MIB) as made:
        yield made


def test_the_page_cache_counts_in_a_small_memory_and_its_size_is_reported(group, tmp_path):
    little = tmp_path / "meminfo"
    little.write_text(meminfo(96 * MIB))
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", READS_MORE_THAN_FITS, group, little, tmp_path / "large"],
        cwd=CHECKOUT,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    resident, size, total, limit = map(int, done.stdout.split())
    assert (size, total, limit) == (256 * MIB, 96 * MIB, 96 * MIB)
    assert 0 < resident < 96 * MIB


def test_processes_left_in_a_small_memory_are_ended():
    if reason := cannot():
        pytest.skip(reason)
    with small_memory(96 * MIB) as group:
        sleeper = subprocess.Popen(["sleep", "600"])
        (group / "cgroup.procs").write_text(str(sleeper.pid))
    assert sleeper.wait() == -9
    assert not group.exists()
