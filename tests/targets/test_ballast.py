"""Ballast (a file that fills the target) is written in order into a new file. Errors of the storage are raised."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_ckpt.targets.posix.store import write_ballast


def pieces(texts: list[bytes]) -> Iterator[bytearray]:
    """Yield each text in the same buffer, which is overwritten each time, as ranks do with content."""
    memory = bytearray(4)
    for text in texts:
        memory[:] = text
        yield memory


def test_pieces_that_share_their_memory_are_written_in_order(tmp_path: Path) -> None:
    write_ballast(tmp_path / "ballast", pieces([b"abcd", b"efgh", b"ijkl"]))
    assert (tmp_path / "ballast").read_bytes() == b"abcdefghijkl"


def test_a_file_that_exists_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "ballast").write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        write_ballast(tmp_path / "ballast", pieces([b"abcd"]))
    assert (tmp_path / "ballast").read_bytes() == b"theirs"


def test_an_error_of_the_storage_ends_it_and_leaves_no_descriptor_open(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    descriptors = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (6, hard))
    try:
        with pytest.raises(OSError, match="too large") as failed:
            write_ballast(tmp_path / "ballast", pieces([b"abcd", b"efgh"]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert failed.value.errno == errno.EFBIG
    assert len(os.listdir("/proc/self/fd")) == descriptors
