"""If bytes in the files were changed, the engine stream finds the same faults as the engine torch."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.ranks.content import PAGE_BYTES, TensorKey
from pytest_ckpt.ranks.engines.stream.container_layout import container_of
from tests.support.posix_files import clock_of, committed_in
from tests.support.streaming import (
    CONTENT,
    MIDDLE,
    MIDDLE_NUMBER,
    MIDDLE_TENSOR,
    ODD,
    REQUEST,
    by_torch,
    failure_of,
    load,
    streaming,
    transfers,
)


def flip(directory, tensor_number, position, bit=0, shard=ODD):
    """Flip a bit of the byte at ``position`` in a tensor of the shard's first file."""
    file = directory / shard.files[0].name
    record = container_of(shard.files[0].tensors).records[tensor_number]
    change(file, record.offset + position, lambda byte: byte ^ 1 << bit)


def change(file, offset, how):
    with file.open("r+b") as both:
        both.seek(offset)
        (old,) = both.read(1)
        both.seek(offset)
        both.write(bytes([how(old)]))


def faults_of_both_engines(directory):
    """Load a directory with the engines torch and stream; return the two lists of faults, in this order."""
    return [load(engine, directory)[2] for engine in (by_torch(ODD), streaming(ODD))]


@settings(deadline=None, max_examples=25)
@given(data=st.data(), bit=st.integers(0, 7))
def test_both_engines_locate_any_flipped_bit_alike(tmp_path_factory, expected_files, data, bit):
    number = data.draw(st.integers(0, len(MIDDLE.tensors) - 1))
    position = data.draw(st.integers(0, MIDDLE.tensors[number].bytes - 1))
    directory = tmp_path_factory.getbasetemp() / "flipped"
    directory.mkdir(exist_ok=True)
    for name, content in expected_files.items():
        (directory / name).write_bytes(content)
    flip(directory, number, position, bit)
    by_torch, by_stream = faults_of_both_engines(directory)
    assert by_torch == by_stream
    (fault,) = by_stream
    assert (fault.kind, fault.file, fault.tensor) == ("flipped", MIDDLE.name, MIDDLE.tensors[number].name)
    assert fault.offset == position // PAGE_BYTES * PAGE_BYTES
    assert f"the first at byte {position}" in fault.detail


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        (bytes(PAGE_BYTES), "zeros"),
        (bytes(range(256)) * 16, "foreign"),
        (CONTENT.expected(TensorKey(checkpoint=1, rank=2, tensor=3), 0, PAGE_BYTES).tobytes(), "misplaced"),
        (CONTENT.expected(TensorKey(checkpoint=9, rank=2, tensor=3), 31 * PAGE_BYTES, PAGE_BYTES).tobytes(), "stale"),
    ],
)
def test_both_engines_call_a_wrong_page_the_same(saved, page, kind):
    start = container_of(MIDDLE.tensors).records[MIDDLE_NUMBER].offset + 31 * PAGE_BYTES
    with (saved / MIDDLE.name).open("r+b") as file:
        file.seek(start)
        file.write(page)
    by_torch, by_stream = faults_of_both_engines(saved)
    assert by_torch == by_stream
    (fault,) = by_stream
    assert (fault.kind, fault.tensor, fault.offset) == (kind, MIDDLE_TENSOR.name, 31 * PAGE_BYTES)


@pytest.mark.parametrize("left", [0, 1, 5_000, REQUEST, 2 * REQUEST, 2 * REQUEST + 700])
def test_a_truncated_file_is_reported_once_as_short_with_its_end(saved, left):
    size = container_of(MIDDLE.tensors).bytes
    os.truncate(saved / MIDDLE.name, left)
    _, _, (fault,) = load(streaming(ODD), saved)
    assert (fault.kind, fault.file, fault.tensor) == ("short", MIDDLE.name, "")
    assert (fault.offset, fault.bytes) == (left, size - left)
    assert fault.detail == f"the file ends at byte {left} of {size}"


@pytest.mark.parametrize("left", [0, 1, 5_000, REQUEST, 2 * REQUEST + 700])
def test_both_engines_call_a_file_short_that_was_cut_off(saved, left):
    os.truncate(saved / MIDDLE.name, left)
    for (fault,) in faults_of_both_engines(saved):
        assert (fault.kind, fault.file) == ("short", MIDDLE.name)


def test_a_file_that_lacks_its_last_byte_is_a_fault_to_both_engines(saved):
    size = container_of(MIDDLE.tensors).bytes
    os.truncate(saved / MIDDLE.name, size - 1)
    by_torch, by_stream = faults_of_both_engines(saved)
    assert [f.file for f in by_torch] == [MIDDLE.name]
    assert [(f.kind, f.file, f.offset, f.bytes) for f in by_stream] == [("short", MIDDLE.name, size - 1, 1)]


def test_the_rest_of_a_truncated_file_is_read_and_compared(saved):
    os.truncate(saved / MIDDLE.name, 2 * REQUEST + 700)
    flip(saved, MIDDLE_NUMBER, 40)
    loaded, checked, faults = load(streaming(ODD), saved)
    assert loaded == checked
    assert ODD.bytes - MIDDLE.bytes < loaded < ODD.bytes
    assert sorted(f.kind for f in faults) == ["flipped", "short"]


@pytest.mark.parametrize("more", [1, PAGE_BYTES, 3 * REQUEST])
def test_a_file_that_is_longer_than_it_was_written_is_a_fault(saved, more):
    size = container_of(MIDDLE.tensors).bytes
    os.truncate(saved / MIDDLE.name, size + more)
    loaded, checked, (fault,) = load(streaming(ODD), saved)
    assert (loaded, checked) == (ODD.bytes, ODD.bytes)
    assert (fault.kind, fault.file, fault.offset, fault.bytes) == ("foreign", MIDDLE.name, size, more)
    assert fault.detail == f"the file has {size + more} bytes, {size} were written"


@pytest.mark.parametrize("where", [0, -200], ids=["header", "directory"])
def test_both_engines_call_a_file_with_a_broken_container_unreadable(saved, where):
    file = saved / MIDDLE.name
    data = bytearray(file.read_bytes())
    start = where % len(data)
    data[start : start + 200] = bytes(range(55, 255))
    file.write_bytes(data)
    by_torch, by_stream = faults_of_both_engines(saved)
    for faults in (by_torch, by_stream):
        assert {(f.kind, f.file) for f in faults} == {("unreadable", MIDDLE.name)}


@settings(deadline=None, max_examples=40)
@given(data=st.data(), bit=st.integers(0, 7))
def test_no_bit_of_a_file_can_be_wrong_unseen(tmp_path_factory, expected_files, data, bit):
    """The engine stream finds a flipped bit at any offset of a file, including the bytes between the tensors."""
    name = data.draw(st.sampled_from(sorted(expected_files)))
    offset = data.draw(st.integers(0, len(expected_files[name]) - 1))
    directory = tmp_path_factory.getbasetemp() / "any-bit"
    directory.mkdir(exist_ok=True)
    for other, content in expected_files.items():
        (directory / other).write_bytes(content)
    change(directory / name, offset, lambda byte: byte ^ 1 << bit)
    _, _, (fault,) = load(streaming(ODD), directory)
    assert fault.file == name
    assert fault.kind in ("flipped", "unreadable", "zeros", "foreign")
    if not fault.tensor:
        assert fault.offset <= offset < fault.offset + fault.bytes


def test_the_first_of_very_many_faults_are_reported_and_all_are_counted(saved):
    (saved / MIDDLE.name).write_bytes(bytes(len((saved / MIDDLE.name).read_bytes())))
    engine = streaming(ODD)
    engine.expect(1)
    engine.load(committed_in(saved), 0, clock_of())
    check = engine.verify(1)
    engine.release()
    assert len(check.faults) == 20
    assert check.fault_count > 200


def test_a_missing_file_is_an_error_that_names_it(saved, capfd):
    (saved / MIDDLE.name).unlink()
    failure = failure_of(lambda activity: load_with(activity, saved), capfd)
    assert (failure["phase"], failure["file"], failure["errno"]) == ("open", MIDDLE.name, "ENOENT")


def load_with(activity, directory):
    clock = clock_of(activity)
    streaming(ODD).load(committed_in(directory, clock), 0, clock)


def name_of(descriptor):
    return Path(f"/proc/self/fd/{descriptor}").readlink().name


def test_a_read_that_fails_names_its_own_file_and_not_the_first_of_the_pass(saved, capfd):
    last = ODD.files[-1].name

    def read(_number, real, descriptor, buffers, offset):
        if name_of(descriptor) == last:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, buffers, offset)

    with transfers(read=read):
        failure = failure_of(lambda activity: load_with(activity, saved), capfd)
    assert (failure["phase"], failure["file"], failure["errno"]) == ("read", last, "EIO")


def test_a_file_that_is_short_until_its_size_is_requested_is_reported_as_short(saved, monkeypatch):
    """If reads end before the end of a file, the file counts as short, even if fstat would correct the length.

    In disorderfs, s3fs and sshfs, reads end at the length that the client has cached, until fstat is called.
    """
    known, true = 5000, os.fstat
    asked = set()

    def fstat(descriptor):
        asked.add(name_of(descriptor))
        return true(descriptor)

    def read(_number, real, descriptor, buffers, offset):
        done = real(descriptor, buffers, offset)
        if name_of(descriptor) != MIDDLE.name or MIDDLE.name in asked:
            return done
        return min(done, max(known - offset, 0))

    monkeypatch.setattr(os, "fstat", fstat)
    with transfers(read=read):
        _, _, faults = load(streaming(ODD), saved)
    assert {(fault.kind, fault.file) for fault in faults} == {("short", MIDDLE.name)}


@pytest.mark.parametrize("more", [1, PAGE_BYTES])
def test_a_file_that_is_longer_than_its_recorded_size_is_a_fault(saved, more, monkeypatch):
    size, true = container_of(MIDDLE.tensors).bytes, os.fstat
    with (saved / MIDDLE.name).open("ab") as file:
        file.write(bytes(more))

    def fstat(descriptor):
        seen = true(descriptor)
        return SimpleNamespace(st_size=min(seen.st_size, size)) if name_of(descriptor) == MIDDLE.name else seen

    monkeypatch.setattr(os, "fstat", fstat)
    loaded, checked, (fault,) = load(streaming(ODD), saved)
    assert (loaded, checked) == (ODD.bytes, ODD.bytes)
    assert (fault.kind, fault.file, fault.offset) == ("foreign", MIDDLE.name, size)
