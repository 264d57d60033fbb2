"""Direct I/O: its alignment, the errors of file systems that refuse it, and writes that use the page cache."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.conformance.posix.checkpoints import read_past_caches
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.targets.posix import direct_io
from pytest_ckpt.targets.posix.direct_io import NOT_OFFERED, DirectFile, DirectSupport, stated_alignment
from tests.support.check_command import anomaly_kinds, run_check

REFUSALS = [errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS]


def direct_open_answers(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Make every open with O_DIRECT fail with errno ``number``."""
    real = os.open

    def refuse(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(number, os.strerror(number))
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refuse)


def test_the_refusals_are_those_of_the_kernel_of_networks_and_of_user_space() -> None:
    assert set(NOT_OFFERED) == {*REFUSALS, errno.ENOTSUP}


@pytest.mark.parametrize("number", REFUSALS, ids=errno.errorcode.get)
def test_ranks_and_checks_continue_without_direct_io_where_it_is_not_offered(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct_open_answers(monkeypatch, number)
    way = DirectSupport()
    file = DirectFile(tmp_path / "file", os.O_CREAT | os.O_WRONLY, way, Clock(activity=Activity()))
    assert not file.direct
    assert os.strerror(number) in way.refused
    assert os.write(file.descriptor, b"bytes") == 5
    os.close(file.descriptor)
    assert read_past_caches(tmp_path / "file") == b"bytes"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_another_error_is_none(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    direct_open_answers(monkeypatch, number)
    with pytest.raises(OSError, match=os.strerror(number)):
        DirectFile(tmp_path / "file", os.O_CREAT | os.O_WRONLY, DirectSupport(), Clock(activity=Activity()))


@pytest.mark.parametrize("name", ["EINVAL", "EOPNOTSUPP", "ENOSYS"])
def test_the_check_of_direct_io_names_the_refusal(name: str, create_home: Any) -> None:
    lie = (
        "import errno, os\n"
        "real = os.open\n"
        "def lie(path, flags, *more, **named):\n"
        f"    if flags & os.O_DIRECT: raise OSError(errno.{name}, os.strerror(errno.{name}))\n"
        "    return real(path, flags, *more, **named)\n"
        "os.open = lie"
    )
    assert anomaly_kinds(run_check("DIRECT.aligned", create_home("refused"), sabotage=lie)) == {"O_DIRECT refused"}


def test_the_kernel_requires_the_alignment_that_it_reports(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    try:
        stated = stated_alignment(descriptor)
        if not stated:
            pytest.skip("the file system of the temporary directory states no alignment of direct requests")
        with mmap.mmap(-1, mmap.PAGESIZE) as page:
            assert os.pwrite(descriptor, memoryview(page)[:stated], 0) == stated
            with pytest.raises(OSError, match="Invalid argument"):
                os.pwrite(descriptor, memoryview(page)[: stated // 2], 0)
    finally:
        os.close(descriptor)


def test_a_file_system_without_direct_io_reports_no_alignment() -> None:
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        assert not stated_alignment(file.fileno())


SIZE = 3 * (64 << 10) + 4096
"""Three blocks of 64 KiB, and the end of a file that fills none."""


def written_as_stated(stated: int | None, path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[DirectFile, list[Any]]:
    """Write a file on a file system for which the kernel states the direct I/O alignment ``stated``.

    Returns the file and its write requests as (offset, bytes, whether direct).
    """
    requests = []

    def write(descriptor: int, part: memoryview, offset: int) -> int:
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        requests.append((offset, len(part), bool(flags & os.O_DIRECT)))
        return os.pwrite(descriptor, part, offset)

    monkeypatch.setattr(direct_io, "stated_alignment", lambda _: stated)
    file = DirectFile(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, DirectSupport(), Clock(activity=Activity()))
    with mmap.mmap(-1, SIZE) as data:
        data.write(os.urandom(SIZE))
        assert file.transfer(os.pwrite if stated is None else write, data, 0, SIZE) == SIZE
        file.sync()
        file.close()
        assert path.read_bytes() == data[:]
    return file, requests


def test_only_an_incomplete_last_block_goes_through_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, requests = written_as_stated(64 << 10, tmp_path / "file", monkeypatch)
    assert requests == [(0, 3 * (64 << 10), True), (3 * (64 << 10), 4096, False)]
    assert file.io_mode.endswith(": direct requests are multiples of 65,536 bytes")
    assert file.io_mode.startswith("not direct throughout: O_DIRECT for 98 % of the bytes")


def test_ends_of_files_within_the_bound_are_called_direct(tmp_path: Path) -> None:
    way = DirectSupport(refused="direct requests are multiples of 65,536 bytes")
    way.moved(995, direct=True)
    way.moved(5, direct=False)
    assert way.io_mode.startswith("O_DIRECT for 99.5 % of the bytes; the others")
    way.moved(6, direct=False)
    assert way.io_mode.startswith("not direct throughout: O_DIRECT for ")


def test_a_file_is_not_called_direct_if_the_kernel_reports_no_direct_io(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, requests = written_as_stated(0, tmp_path / "file", monkeypatch)
    assert requests == [(0, SIZE, False)]
    assert not file.direct
    assert file.io_mode.startswith("not direct: the kernel states that the file has no direct I/O; ")


def test_direct_io_is_tried_if_the_kernel_reports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, _ = written_as_stated(None, tmp_path / "file", monkeypatch)
    assert file.direct
    assert file.io_mode == "O_DIRECT, around the client's page cache"
