"""CLONE-FRESH: a file is copied as soon as it was written; the copy holds every byte (OpenZFS issue 15526).

Tools that copy ask the file system where a file has data (cp), or have it copy or clone the bytes itself. A file system
that answers from what it has stored, and not from what was written, makes a copy of zeros and reports no error.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import compare, random_bytes
from pytest_ckpt.conformance.posix.checks.capabilities import FICLONE
from pytest_ckpt.conformance.reading import read_to_end

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_ckpt.conformance.context import CheckContext, Findings

_TRIALS = 240
_READ_BYTES = 1 << 20
# The parts of a file that are written, in bytes; what lies between them is a hole.
_SHAPES: tuple[tuple[tuple[int, int], ...], ...] = (
    ((0, 100),),
    ((0, 65_536),),
    ((0, 131_073),),
    ((0, 1_048_583),),
    ((0, 200_000), (1_048_576, 1_300_000)),
)
# A file system, or this file at this moment, does not offer the call; a program then copies in another way.
_NOT_OFFERED = frozenset((errno.ENOTSUP, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EXDEV))


def copy(context: CheckContext, findings: Findings) -> None:
    """Write files of several sizes, copy each at once in one way, and compare every byte of the copy.

    The writer calls no fsync. It still has the file open while the copy is made, or has closed it right before.
    """
    cases = list(itertools.product(_SHAPES, (True, False), _WAYS))
    copies = dict.fromkeys(_WAYS, 0)
    refusals: dict[str, list[str]] = {way: [] for way in _WAYS}
    for number in range(context.count(_TRIALS, minimum=len(cases))):
        shape, is_open, way = cases[number % len(cases)]
        path, target = (context.folder / f"{what}-{number}" for what in ("fresh", "copy"))
        content = _content(shape, context.seed, path.name)
        context.tell("write", str(path))
        with path.open("xb") as writer:
            for start, stop in shape:
                writer.seek(start)
                writer.write(content[start:stop])
            writer.flush()
            if not is_open:
                writer.close()
            refusal = _copied(context, path, target, way)
        if refusal:
            refusals[way].append(refusal)
        else:
            state = "which its writer had open" if is_open else "right after it was closed"
            when = f"copied by {way} from a file of {len(content):,} bytes, {state}, without fsync"
            _compare(context, findings, target, content, when)
            copies[way] += 1
            findings.trials += 1
        target.unlink()
        path.unlink()
    findings.facts |= {way: _outcome(copies[way], refusals[way]) for way in _WAYS}


def _outcome(copies: int, refusals: list[str]) -> str:
    """Return how often a way to copy worked and, if it was refused, the error of the last refusal."""
    if not refusals:
        return f"{copies:,} copies"
    why = f"not offered: {refusals[-1]}"
    return f"{copies:,} copies, {len(refusals):,} times {why}" if copies else why


def _content(shape: tuple[tuple[int, int], ...], *words: object) -> bytes:
    """Return the bytes of a file, with zeros in its holes."""
    content = bytearray(shape[-1][1])
    for start, stop in shape:
        content[start:stop] = random_bytes(stop - start, *words, start)
    return bytes(content)


def _copied(context: CheckContext, path: Path, target: Path, way: str) -> str:
    """Copy a file in one way; return why the way is not offered, empty if the copy was made."""
    context.tell(f"copy by {way}", str(path))
    with path.open("rb") as source, target.open("xb") as copied:
        try:
            _WAYS[way](source.fileno(), copied.fileno())
        except OSError as error:
            if error.errno not in _NOT_OFFERED:
                raise
            return f"{error.strerror} (errno {error.errno})"
    return ""


def _compare(context: CheckContext, findings: Findings, target: Path, content: bytes, when: str) -> None:
    """Compare the copy as the page cache has it, then as storage has it."""
    context.tell("read", str(target))
    descriptor = os.open(target, os.O_RDONLY)
    try:
        if compare(findings, read_to_end(descriptor), content, path=target, when=when):
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            when = f"{when}, read past the cache"
            compare(findings, read_to_end(descriptor), content, path=target, when=when)
    finally:
        os.close(descriptor)


def _by_holes(source: int, target: int) -> None:
    """Copy only what is data by SEEK_DATA and SEEK_HOLE, and give the copy the file's size."""
    size, at = os.fstat(source).st_size, 0
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole to the end
                break
            raise
        end = os.lseek(source, start, os.SEEK_HOLE)
        if end <= at:  # data without a length: a copier that went on would not end
            break
        at = end
        while start < end and (piece := os.pread(source, min(end - start, _READ_BYTES), start)):
            start += os.pwrite(target, piece, start)
    os.ftruncate(target, size)


def _by_range(source: int, target: int) -> None:
    """Have the file system copy the bytes."""
    left = os.fstat(source).st_size
    while left and (done := os.copy_file_range(source, target, left)):
        left -= done


def _by_clone(source: int, target: int) -> None:
    """Have both files share their blocks."""
    fcntl.ioctl(target, FICLONE, source)


_WAYS: dict[str, Callable[[int, int], None]] = {
    "SEEK_DATA and SEEK_HOLE": _by_holes,
    "copy_file_range": _by_range,
    "FICLONE": _by_clone,
}
