"""The engine stream works on targets that refuse direct requests (O_DIRECT) or complete them only in part."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import tempfile
import threading
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.ranks.content import PAGE_BYTES
from pytest_ckpt.ranks.engines.stream import engine as stream
from pytest_ckpt.ranks.engines.stream.buffers import Buffers
from pytest_ckpt.targets.posix.checkpoint import SinkAtOffsets
from pytest_ckpt.targets.posix.direct_io import DirectFile
from tests.support.streaming import (
    MIDDLE,
    ODD,
    REQUEST,
    bytes_of,
    everything,
    failure_of,
    load,
    save,
    save_with,
    streaming,
    transfers,
)

PARTLY = (
    r"not direct throughout: O_DIRECT for [\d.]+ % of the bytes; the others through the client's page cache, "
    r"read without read-ahead \(POSIX_FADV_RANDOM\): the target refuses a direct request: Invalid argument"
)
READS = "; files are read without read-ahead (POSIX_FADV_RANDOM)"


@pytest.fixture
def direct(tmp_path):
    """Return a directory whose file system accepts O_DIRECT. If no such directory exists, skip the test."""
    try:
        os.close(os.open(tmp_path / "probe", os.O_WRONLY | os.O_CREAT | os.O_DIRECT))
    except OSError as error:
        pytest.skip(f"the temporary directory takes no direct requests: {error.strerror}")
    (tmp_path / "probe").unlink()
    return tmp_path


def is_direct(descriptor):
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)


@contextlib.contextmanager
def refusing_direct_opens(*, after_making=False, number=errno.EINVAL):
    """Let every open with O_DIRECT fail with the errno ``number``.

    If ``after_making`` is true, the file is created before the open fails, as on some targets.
    """
    real = os.open

    def refuse(path, flags, *rest, **how):
        if flags & os.O_DIRECT:
            if after_making:
                os.close(real(path, flags & ~os.O_DIRECT, *rest, **how))
            raise OSError(number, os.strerror(number))
        return real(path, flags, *rest, **how)

    with mock.patch.object(os, "open", refuse):
        yield


def short_write(length):
    """Return a fake write function that writes only the first ``length()`` bytes of each request.

    The fake writes through the page cache, because O_DIRECT does not permit such lengths.
    """

    def write(_number, real, descriptor, data, offset):
        count = max(1, min(length(), len(data)))
        other = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY)
        try:
            return real(other, data[:count], offset)
        finally:
            os.close(other)

    return write


def short_read(length):
    def read(_number, real, descriptor, parts, offset):
        (data,) = parts
        count = max(1, min(length(), len(data)))
        other = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
        try:
            return real(other, [data[:count]], offset)
        finally:
            os.close(other)

    return read


def save_and_load(directory, expected_files, engine=None):
    """Save and load, and check every byte; return the engine's sentence about direct requests (O_DIRECT)."""
    engine = engine or streaming(ODD)
    save(engine, directory)
    assert bytes_of(directory) == expected_files
    assert load(engine, directory) == everything(ODD)
    return engine.facts()["direct"]


def test_the_engine_reports_whether_direct_requests_are_accepted(direct, expected_files):
    flags = []

    def write(_number, real, descriptor, *rest):
        flags.append(is_direct(descriptor))
        return real(descriptor, *rest)

    with transfers(write):
        assert save_and_load(direct, expected_files) == "O_DIRECT, around the client's page cache"
    assert all(flags)


@pytest.mark.parametrize("after_making", [False, True])
@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP])
def test_a_target_without_direct_requests_is_written_through_its_cache(tmp_path, expected_files, after_making, number):
    with refusing_direct_opens(after_making=after_making, number=number):
        found = save_and_load(tmp_path, expected_files)
    assert found == f"not direct: the target refuses O_DIRECT: {os.strerror(number)}{READS}"


@pytest.mark.parametrize("refuses_opens", [True, False])
def test_buffered_reads_are_made_without_read_ahead(tmp_path, expected_files, monkeypatch, refuses_opens):
    advised, advise = [], os.posix_fadvise

    def record(descriptor, *rest):
        advised.append((fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE, *rest))
        return advise(descriptor, *rest)

    def refuse(_number, real, descriptor, *rest):
        if is_direct(descriptor):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(descriptor, *rest)

    engine = streaming(ODD)
    save(engine, tmp_path)
    monkeypatch.setattr(os, "posix_fadvise", record)
    with refusing_direct_opens() if refuses_opens else transfers(read=refuse):
        assert load(engine, tmp_path) == everything(ODD)
    assert set(advised) == {(os.O_RDONLY, 0, 0, os.POSIX_FADV_RANDOM)}
    assert len(advised) >= len(ODD.files)


def test_an_open_that_fails_for_another_reason_is_an_error(tmp_path):
    with refusing_direct_opens(number=errno.EACCES), pytest.raises(PermissionError):
        save(streaming(ODD), tmp_path)


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("kind", ["write", "read"])
def test_a_direct_request_that_is_refused_in_the_middle_is_made_again_through_the_cache(
    direct, expected_files, kind, nth
):
    def refuse(number, real, descriptor, *rest):
        if number >= nth and is_direct(descriptor):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(descriptor, *rest)

    with transfers(**{kind: refuse}):
        found = save_and_load(direct, expected_files)
    assert re.fullmatch(PARTLY, found), found


def test_the_engine_reports_that_every_direct_request_was_refused(direct, expected_files):
    def refuse(_number, real, descriptor, *rest):
        if is_direct(descriptor):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(descriptor, *rest)

    with transfers(refuse, refuse):
        found = save_and_load(direct, expected_files)
    assert found == f"not direct: the target refuses a direct request: Invalid argument{READS}"


@pytest.mark.parametrize("block", [16 << 10, 32 << 10, 64 << 10])
def test_a_target_with_larger_blocks_gets_only_what_does_not_fit_them_through_its_cache(direct, expected_files, block):
    fitting, refused, others = [], [], []

    def refuse(_number, real, descriptor, data, offset):
        (part,) = data if isinstance(data, list) else (data,)
        if len(part) % block == offset % block == 0:
            fitting.append(is_direct(descriptor))
        elif is_direct(descriptor):
            refused.append(offset)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        else:
            others.append(offset)
        return real(descriptor, data, offset)

    with transfers(refuse, refuse):
        assert re.fullmatch(PARTLY, save_and_load(direct, expected_files))
    assert fitting
    assert all(fitting)
    # A refused size is not tried again. Two requests in flight may get the same refusal.
    assert others
    assert len(refused) <= 2 * len({4 << 10, 8 << 10, 16 << 10, 32 << 10})


@pytest.mark.parametrize("kind", ["write", "read"])
def test_one_refusal_does_not_end_direct_requests_of_later_files(direct, expected_files, kind):
    paths = {}

    def refuse(number, real, descriptor, data, offset):
        if number == 1:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        (part,) = data if isinstance(data, list) else (data,)
        # A read of one byte tests whether the file ends there.
        if len(part) > 1:
            paths.setdefault(str(Path(f"/proc/self/fd/{descriptor}").readlink()), []).append(is_direct(descriptor))
        return real(descriptor, data, offset)

    with transfers(**{kind: refuse}):
        assert re.fullmatch(PARTLY, save_and_load(direct, expected_files))
    left = [path for path, flags in paths.items() if not all(flags)]
    assert len(left) == 1
    assert len(paths) > 1


def test_every_descriptor_that_wrote_is_synced(direct, monkeypatch):
    written, synced, sync = set(), set(), os.fsync

    def refuse(_number, real, descriptor, data, offset):
        if is_direct(descriptor) and len(data) % (64 << 10):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        written.add((str(Path(f"/proc/self/fd/{descriptor}").readlink()), is_direct(descriptor)))
        return real(descriptor, data, offset)

    def record(descriptor):
        synced.add((str(Path(f"/proc/self/fd/{descriptor}").readlink()), is_direct(descriptor)))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with transfers(refuse):
        save(streaming(ODD), direct)
    assert any(not way for _, way in written)
    assert written <= synced
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_two_direct_requests_that_are_refused_at_once_are_both_made_again(direct, expected_files, monkeypatch):
    both_refused, left = threading.Barrier(2), threading.Event()
    leave = DirectFile._leave_direct

    def leave_and_tell(*arguments):
        leave(*arguments)
        left.set()

    def refuse(number, real, *rest):
        if number <= 2:
            if both_refused.wait(60):
                # The second request gets its refusal after the first one has already switched to the page cache.
                left.wait(60)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(*rest)

    monkeypatch.setattr(DirectFile, "_leave_direct", leave_and_tell)
    with transfers(refuse):
        assert re.fullmatch(PARTLY, save_and_load(direct, expected_files))


def test_a_request_that_is_invalid_through_the_cache_too_is_an_error(tmp_path):
    def refuse(_number, _real, *_rest):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    with transfers(refuse), pytest.raises(OSError, match="Invalid argument"):
        save(streaming(ODD), tmp_path)


@pytest.mark.parametrize("kind", ["write", "read"])
def test_requests_that_end_short_at_a_block_continue_directly(direct, expected_files, kind):
    part = {"write": short_write, "read": short_read}[kind]
    with transfers(**{kind: part(lambda: 3 * PAGE_BYTES)}) as counts:
        assert save_and_load(direct, expected_files) == "O_DIRECT, around the client's page cache"
    assert counts[{"write": "pwrite", "read": "preadv"}[kind]] > ODD.bytes // (3 * PAGE_BYTES)


@pytest.mark.parametrize("kind", ["write", "read"])
def test_requests_that_end_inside_a_block_continue_through_the_cache(direct, expected_files, kind):
    part = {"write": short_write, "read": short_read}[kind]
    with transfers(**{kind: part(lambda: 5_001)}):
        found = save_and_load(direct, expected_files)
    assert found.startswith("not direct throughout: O_DIRECT for ")
    assert found.endswith("the target ended a direct request inside a block")


@settings(deadline=None, max_examples=15)
@given(lengths=st.lists(st.integers(1, 2 * REQUEST), min_size=1, max_size=8), has_direct=st.booleans())
def test_short_writes_and_reads_of_any_length_are_continued(tmp_path_factory, expected_files, lengths, has_direct):
    turn = iter(range(1 << 30))

    def length():
        return max(512, lengths[next(turn) % len(lengths)])

    refusing = contextlib.nullcontext() if has_direct else refusing_direct_opens()
    short = transfers(short_write(length), short_read(length))
    with tempfile.TemporaryDirectory(dir=tmp_path_factory.getbasetemp()) as name, refusing, short:
        save_and_load(Path(name), expected_files)


def test_a_write_that_returns_0_is_reported_as_eio(tmp_path, capfd):
    with transfers(lambda *_: 0):
        failure = failure_of(lambda activity: save_with(activity, tmp_path), capfd)
    assert (failure["phase"], failure["file"], failure["errno"]) == ("write", MIDDLE.name, "EIO")


def test_a_file_that_ends_while_it_is_read_is_short(saved):
    with transfers(read=lambda number, real, *rest: 0 if number == 2 else real(*rest)):
        _, _, (fault,) = load(streaming(ODD, depth=1), saved)
    assert (fault.kind, fault.file, fault.offset) == ("short", MIDDLE.name, REQUEST)


def test_a_save_in_parts_makes_no_buffers_on_the_clock(tmp_path, monkeypatch):
    """If the size of an object's parts is announced, the buffers for parts are created before the timed save.

    The parts may be larger than the requests of the engine.
    """
    monkeypatch.setattr(SinkAtOffsets, "part_bytes", 4 * REQUEST)
    made = mock.Mock(side_effect=Buffers)
    monkeypatch.setattr(stream, "Buffers", made)
    (tmp_path / "late").mkdir()
    save(late := streaming(ODD), tmp_path / "late")
    late.release()
    assert made.call_count > 1
    (tmp_path / "early").mkdir()
    engine = streaming(ODD)
    engine.expect_parts(lambda _size: 4 * REQUEST)
    made.reset_mock()
    save(engine, tmp_path / "early")
    engine.release()
    assert made.call_count == 0
