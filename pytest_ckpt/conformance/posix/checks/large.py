"""LARGE: offsets at which 32 bits, signed or not, of bytes or of sectors, run out."""

from __future__ import annotations

import errno
import os
import resource
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import compare, difference, random_bytes
from pytest_ckpt.conformance.not_run import NotRun
from pytest_ckpt.conformance.reading import read_at

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ckpt.conformance.context import CheckContext, Findings

_GIB, _TIB = 1 << 30, 1 << 40
_BOUNDARIES = (("2 GiB", 2 * _GIB), ("4 GiB", 4 * _GIB), ("2 TiB", 2 * _TIB), ("8 TiB", 8 * _TIB))
# A limit that is told is a fact, unless no single file of a large model fits below it.
_MINIMUM_BYTES = _TIB
_PIECE_BYTES = 64 << 10
# The piece that crosses the boundary begins so far before it: inside of a page and of a sector.
_BEFORE_BYTES = 30_001
_AROUND_BYTES = 256 << 10


def offsets(context: CheckContext, findings: Findings) -> None:
    """Write a sparse file's head and pieces before, across and behind each boundary; read them and its size back."""
    _need_large_files_of_this_process()
    for name, boundary in _BOUNDARIES:
        path = context.folder / f"large-{name.replace(' ', '-')}"
        context.tell("truncate", f"{path} to {name}")
        stored = _one_file(context, findings, path, name, boundary)
        path.unlink(missing_ok=True)
        if stored > boundary // 2:
            findings.facts["sparse files"] = f"none: a file of {name} with a few KiB of data takes {stored:,} bytes"
            return


def _need_large_files_of_this_process() -> None:
    """Raise NotRun if this process may not write such files: the kernel's EFBIG would say nothing of the storage."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = _size(_BOUNDARIES[-1][1])
    if limit != resource.RLIM_INFINITY and limit < largest:
        raise NotRun(
            f"this process may write files of at most {limit:,} bytes (RLIMIT_FSIZE, its limit and not the storage's), "
            f"and the check writes up to byte {largest:,}: run 'ulimit -f unlimited' in the shell that starts it"
        )


def _size(boundary: int) -> int:
    """Return the size in bytes of the file that crosses a boundary."""
    return boundary + 2 * _AROUND_BYTES


def _one_file(context: CheckContext, findings: Findings, path: Path, name: str, boundary: int) -> int:
    """Return how many bytes the file takes on storage."""
    size = _size(boundary)
    pieces = {
        at: random_bytes(_PIECE_BYTES, context.seed, name, at)
        for at in (
            0,
            boundary - _AROUND_BYTES,
            boundary - _BEFORE_BYTES,
            boundary + _AROUND_BYTES,
            size - _PIECE_BYTES,
        )
    }
    with path.open("xb", buffering=0) as file:
        try:
            os.truncate(file.fileno(), size)
            # It may be so large. How large it becomes is up to the writes.
            os.truncate(file.fileno(), 0)
        except OSError as error:
            if error.errno == errno.ENOSPC and (free := _free_bytes(path)) < size:
                raise NotRun(
                    f"the file system keeps no holes in files, and {free:,} bytes are free: a file that crosses {name} "
                    f"takes {size:,}; name a target with that much free space"
                ) from None
            if error.errno != errno.EFBIG:
                raise
            refused = f"the storage's maximum file size is below {size:,} bytes: {error.strerror} (EFBIG)"
            findings.facts[f"declared limit below {name}"] = refused
            if boundary < _MINIMUM_BYTES:
                findings.wrong(
                    "file size limited", where=str(path), seen=refused, expected="files as large as one rank's shard"
                )
            return 0
        for at, piece in pieces.items():
            context.tell("write", f"{path} at byte {at:,}")
            try:
                done = os.pwrite(file.fileno(), piece, at)
            except OSError as error:
                if error.errno not in {errno.EFBIG, errno.EINVAL, errno.EOVERFLOW}:
                    raise
                findings.wrong(
                    "large offset refused",
                    where=f"{path}, write at byte {at:,}",
                    seen=f"{error.strerror} (errno {error.errno}), although a file may be {size:,} bytes long",
                    expected="the bytes are taken",
                )
                return os.fstat(file.fileno()).st_blocks * 512
            if done != len(piece):
                findings.wrong(
                    "short write",
                    where=f"{path} at byte {at:,}",
                    seen=f"{done:,} bytes were taken",
                    expected=f"{len(piece):,} bytes",
                )
            findings.trials += 1
        context.tell("fsync", str(path))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return _look(context, findings, path, boundary, size, pieces)


def _free_bytes(path: Path) -> int:
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


def _look(
    context: CheckContext, findings: Findings, path: Path, boundary: int, size: int, pieces: dict[int, bytes]
) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # Where the boundary's offsets come out again if their upper bits are lost: behind the head there is a hole.
        for start, length in ((0, 4 * _AROUND_BYTES), (boundary - 2 * _AROUND_BYTES, 4 * _AROUND_BYTES)):
            context.tell("read", f"{path} at byte {start:,}")
            expected = bytearray(length)
            for at, piece in pieces.items():
                if start <= at < start + length:
                    expected[at - start : at - start + len(piece)] = piece
            _note(findings, read_at(descriptor, start, length), bytes(expected), path, start, pieces)
        # The sizes come last: some clients update what they remember of a file only when they are asked for its size.
        status = path.stat()
        for found, what in ((status.st_size, "stat"), (os.lseek(descriptor, 0, os.SEEK_END), "a seek to the end")):
            if found != size:
                findings.wrong(
                    "wrong size", where=f"{path}, told by {what}", seen=f"{found:,} bytes", expected=f"{size:,}"
                )
    finally:
        os.close(descriptor)
    return status.st_blocks * 512


def _note(findings: Findings, seen: bytes, expected: bytes, path: Path, start: int, pieces: dict[int, bytes]) -> None:
    """Note what is wrong; bytes of another offset that stand here are told as a wrapped offset."""
    found = difference(seen, expected, offset=start)
    if not found:
        return
    here = seen[found.at : found.at + 16]
    for at, piece in pieces.items():
        inside = piece.find(here) if any(here) else -1
        # Bits of the offset are lost, so it is far from where it belongs.
        if inside >= 0 and at + inside - (start + found.at) >= _BOUNDARIES[0][1] // 2:
            findings.wrong(
                "wrapped offset",
                where=f"{path} at byte {start + found.at:,}",
                seen=f"the bytes that were written at byte {at + inside:,}",
                expected=found.expected,
            )
            return
    compare(findings, seen, expected, path=path, offset=start)
