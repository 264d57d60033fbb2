"""Checks of bytes name the type of failure.

The types are a refused call, a limit that is too small, a fault between two clients, and wrong bytes.
"""

from __future__ import annotations

import shlex
import sys

import pytest

from tests.support.check_command import anomaly_kinds, run_check
from tests.support.checks_of_bytes import LIES
from tests.support.machine import file_system_of


@pytest.mark.thorough
def test_free_space_that_never_changes_is_reported(create_home):
    code = (
        "import os, pytest_ckpt.conformance.posix.capabilities as capabilities, dataclasses\n"
        "real = os.statvfs\n"
        "first = real('/')\n"
        "os.statvfs = lambda path: first\n"
        "name = 'CAPABILITIES.statfs'\n"
        "capabilities.BY_NAME[name] = dataclasses.replace(capabilities.BY_NAME[name], limit=1.0)"
    )
    seen = run_check("CAPABILITIES.statfs", create_home("space"), sabotage=code)
    assert anomaly_kinds(seen) == {"free space does not fall"}
    assert seen.measured is not None
    assert seen.measured > 1


def test_a_volume_that_is_nearly_full_is_no_place_to_measure_free_space(mount):
    seen = run_check("CAPABILITIES.statfs", mount("tmpfs", 16))
    assert "MB are free" in seen.not_run


def test_a_hard_link_that_is_read_as_it_was_before_is_called_older_and_not_unknown(create_home):
    """If a client returns old bytes through a hard link, the check reports "bytes of an older version".

    The client caches pages by file name, as encfs does with the option kernel_cache.
    """
    code = (
        "from pathlib import Path\n"
        "from pytest_ckpt.conformance.posix import capabilities\n"
        "link, read, cached = Path.hardlink_to, capabilities.read_file, {}\n"
        "def hardlink_to(self, target):\n"
        "    cached.setdefault(target, read(target))\n"
        "    link(self, target)\n"
        "def read_file(path):\n"
        "    return cached.get(path) or read(path)\n"
        "Path.hardlink_to, capabilities.read_file = hardlink_to, read_file"
    )
    assert anomaly_kinds(run_check("CAPABILITIES.links", create_home("links"), sabotage=code)) == {
        "bytes of an older version"
    }


def test_a_truncating_open_that_hangs_is_named_with_its_kernel_wait_state(create_home):
    """If an open with O_TRUNC hangs, the check names the call and the kernel's wait state.

    The test replaces the file by a pipe without a reader.
    """
    code = (
        "import contextlib, os\n"
        "real, calls = os.open, []\n"
        "def lie(path, flags, *mode, **more):\n"
        "    if flags & os.O_TRUNC and len(calls) == 5:\n"
        # Several threads reach this line concurrently; one of them creates the pipe.
        "        with contextlib.suppress(FileExistsError):\n"
        "            os.mkfifo(f'{path}.pipe')\n"
        "        path = f'{path}.pipe'\n"
        "    calls.append(path)\n"
        "    return real(path, flags, *mode, **more)\n"
        "os.open = lie"
    )
    seen = run_check("TRUNCATE.concurrent", create_home("hang"), "--patience=5", sabotage=code)
    assert anomaly_kinds(seen) == {"a call hangs"}
    assert seen.anomaly_count == 8
    assert seen.anomalies[0].where.startswith("open with O_TRUNC: ")
    assert "state S" in seen.anomalies[0].seen
    assert "wait_for_partner" in seen.anomalies[0].seen or "fifo_open" in seen.anomalies[0].seen
    assert seen.measured is not None
    assert seen.measured >= 1


def test_direct_io_that_is_refused_is_no_reason_to_call_it_incoherent(create_home):
    _, code, _ = LIES["no O_DIRECT"]
    assert "O_DIRECT is refused" in run_check("DIRECT.coherent", create_home("refused"), sabotage=code).not_run


def test_a_way_to_copy_that_is_not_offered_is_reported_and_no_fault(create_home):
    code = (
        "import errno, fcntl, os\n"
        "def lie(*_): raise OSError(errno.EOPNOTSUPP, 'Operation not supported')\n"
        "real, fcntl.ioctl = os.copy_file_range, lie\n"
        "os.copy_file_range = lambda *of: lie() if of[2] > 1_000_000 else real(*of)"
    )
    seen = run_check("CLONE-FRESH.copy", create_home("copies"), sabotage=code)
    assert seen.anomalies == ()
    assert seen.trials == 16
    refused = "not offered: Operation not supported (errno 95)"
    assert seen.facts == {
        "SEEK_DATA and SEEK_HOLE": "10 copies",
        "copy_file_range": f"6 copies, 4 times {refused}",
        "FICLONE": refused,
    }


def test_a_copy_that_fails_in_another_way_is_named(create_home):
    code = "import errno, os\ndef lie(*_): raise OSError(errno.EIO, 'Input/output error')\nos.copy_file_range = lie"
    seen = run_check("CLONE-FRESH.copy", create_home("copies"), sabotage=code)
    assert anomaly_kinds(seen) == {"a call failed"}
    assert "Input/output error (errno 5) from" in seen.anomalies[0].seen


def test_the_maximum_file_size_is_reported_as_a_fact(mount):
    """The maximum file size of a file system is reported as a fact, and does not count as a fault.

    The file system of this test is ext4 with blocks of 1 KiB. Its maximum file size is 4 TiB.
    """
    point = mount("ext4", 100)
    assert file_system_of(point) == "ext2/ext3"
    (point / "directory").mkdir()
    seen = run_check("LARGE.offsets", point / "directory")
    assert seen.anomalies == ()
    told = {words for name, words in seen.facts.items() if name.startswith("declared limit below 8 TiB")}
    assert told == {"the storage's maximum file size is below 8,796,093,546,496 bytes: File too large (EFBIG)"}, told


def test_a_limit_of_this_process_is_named_and_the_storage_is_not_blamed(create_home):
    code = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, resource.RLIM_INFINITY))"
    seen = run_check("LARGE.offsets", create_home("limited"), sabotage=code)
    assert seen.anomalies == ()
    assert seen.not_run.startswith("this process may write files of at most 1,099,511,627,776 bytes (RLIMIT_FSIZE")
    assert "ulimit -f unlimited" in seen.not_run


def test_a_volume_that_is_too_small_for_a_file_without_holes_is_named_and_not_blamed(mount):
    point = mount("ext4", 100)
    (point / "directory").mkdir()
    code = "import errno, os\ndef truncate(*_):\n    raise OSError(errno.ENOSPC, 'full')\nos.truncate = truncate"
    seen = run_check("LARGE.offsets", point / "directory", sabotage=code)
    assert seen.anomalies == ()
    assert "keeps no holes in files" in seen.not_run


# Two clients that do not see the same content of the same storage.
SECOND_LIES = {
    "the other client's stripes are lost": (
        "SPARSE.disjoint-writers-second-client",
        "from pytest_ckpt.conformance.posix import sparse\nsparse.write_odd_stripes = lambda path, **k: None",
        "zeros instead of data",
    ),
    "locks are each client's own": (
        "CAPABILITIES.flock-second-client",
        "import fcntl\nfcntl.flock = lambda descriptor, mode: None",
        "exclusive lock given twice",
    ),
    "a removed file reads as another": (
        "UNLINK.second-client",
        "import pytest_ckpt.conformance.actions as actions, os\n"
        "real = actions.read_at\n"
        "def lie(path, *, descriptor, **k):\n"
        "    if not os.path.exists(path): return real(path, descriptor=descriptor, **k)\n"
        "    with open(path, 'rb') as file: return real(path, descriptor=file.fileno(), **k)\n"
        "actions.read_at = lie",
        "wrong bytes",
    ),
    "a removed file fails in another way than ESTALE": (
        "UNLINK.second-client",
        "import pytest_ckpt.conformance.actions as actions, os, errno\n"
        "real = actions.read_at\n"
        "def lie(path, **k):\n"
        "    if not os.path.exists(path): raise OSError(errno.EIO, 'Input/output error', path)\n"
        "    return real(path, **k)\n"
        "actions.read_at = lie",
        "a call failed",
    ),
}


@pytest.mark.parametrize("lie", SECOND_LIES)
def test_misbehaviour_between_two_clients_is_named(lie, create_home, tmp_path):
    check, code, kind = SECOND_LIES[lie]
    agent = tmp_path / "agent.py"
    agent.write_text(f"{code}\nfrom pytest_ckpt.conformance.agent import main\nmain()\n")
    home = create_home("two")
    seen = run_check(
        check, home, f"--second-directory={home}", f"--second-command={shlex.join([sys.executable, str(agent)])}"
    )
    assert kind in anomaly_kinds(seen), seen.anomalies


def test_a_stale_handle_is_allowed_and_reported(create_home, tmp_path):
    agent = tmp_path / "agent.py"
    agent.write_text(
        "import pytest_ckpt.conformance.actions as actions, os, errno\n"
        "real = actions.read_at\n"
        "def stale(path, *, offset, length, **k):\n"
        "    if length > 1 << 17: raise OSError(errno.ESTALE, 'Stale file handle', path)\n"
        "    return real(path, offset=offset, length=length, **k)\n"
        "actions.read_at = stale\n"
        "from pytest_ckpt.conformance.agent import main\nmain()\n"
    )
    home = create_home("stale")
    seen = run_check(
        "UNLINK.second-client",
        home,
        f"--second-directory={home}",
        f"--second-command={shlex.join([sys.executable, str(agent)])}",
    )
    assert seen.anomalies == ()
    assert seen.facts == {"reads answered with ESTALE": "27 of 27"}
