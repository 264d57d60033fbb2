"""SPARSE, CLONE-FRESH and LARGE: files with holes.

SPARSE: files are written out of order, or by several writers. CLONE-FRESH: a file is copied immediately after it was
written, and the copy must contain all bytes. Copy tools such as cp query the data ranges of the file, or let the file
system copy or clone it. If the file system ignores pending writes, the copy contains zeros without an error (OpenZFS
issue 15526). LARGE: large offsets, at which 32-bit counts of bytes or sectors overflow.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import mmap
import os
import random
import resource
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import compare, difference, opened, random_bytes, read_at, read_file, read_to_end
from pytest_ckpt.conformance.context import NotRun
from pytest_ckpt.conformance.workers import gather, working

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_ckpt.conformance.context import CheckContext, Findings
    from pytest_ckpt.conformance.workers import WorkerChannel, WorkerEnd

_FILES = 60
_FILE_BYTES = 2 << 20
_WRITERS = 4
_STRIPES = 64
_ROUNDS = 12


def tail_first(context: CheckContext, findings: Findings) -> None:
    """Write the tail of a file first, then the rest in pieces of random length and order.

    After each write, the complete file is read and compared.
    """
    chance = random.Random(context.seed)
    for number in range(context.count(_FILES, minimum=5)):
        path = context.directory / f"sparse-{number}"
        context.report_call("write", str(path))
        size = chance.randrange(1000, _FILE_BYTES)
        content = random_bytes(size, context.seed, path.name)
        cuts = sorted({0, size, *(chance.randrange(size) for _ in range(chance.randrange(1, 12)))})
        pieces = list(itertools.pairwise(cuts))
        tail = pieces.pop()
        chance.shuffle(pieces)
        expected = bytearray(size)
        for at, (start, stop) in enumerate((tail, *pieces)):
            with path.open("r+b" if at else "xb", buffering=0) as file:
                file.seek(start)
                file.write(content[start:stop])
                os.fsync(file.fileno())
                if at % 2:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            expected[start:stop] = content[start:stop]
            findings.trials += 1
            when = f"after bytes {start:,} to {stop:,} were written" if at else "after only its tail was written"
            if not compare(findings, read_file(path), bytes(expected), path=path, when=when):
                break
        path.unlink()


def disjoint_writers(context: CheckContext, findings: Findings) -> None:
    """Write interleaved stripes of one file from several processes concurrently. Two stripes may share a page."""
    chance = random.Random(context.seed)
    for number in range(context.count(_ROUNDS, minimum=2)):
        path = context.directory / f"striped-{number}"
        stripe = chance.choice([mmap.PAGESIZE, 1 << 16, chance.randrange(500, 50_000)])
        content = random_bytes(stripe * _STRIPES, context.seed, path.name)
        context.report_call("write stripes", str(path))
        writers = [
            partial(_write_stripes, path, content, stripe, range(n, _STRIPES, _WRITERS)) for n in range(_WRITERS)
        ]
        with working(writers) as workers:
            ends = gather(workers, context.report_call)
        _fine(findings, ends)
        findings.trials += _STRIPES
        when = f"after {_WRITERS} processes wrote stripes of {stripe:,} bytes at once"
        _read_twice(findings, path, content, when)
        path.unlink()


def disjoint_writers_second(context: CheckContext, findings: Findings) -> None:
    """Write interleaved stripes of one file from two clients concurrently. Then both clients read the closed file.

    The stripes are complete pages, because writes of two clients to one page would need locks on network file systems.
    """
    assert context.other
    chance = random.Random(context.seed)
    for number in range(context.count(_ROUNDS, minimum=2)):
        path = context.directory / f"shared-{number}"
        there = f"{context.other_directory}/{path.name}"
        stripe = chance.choice([1, 8, 16]) * mmap.PAGESIZE
        words = (context.seed, path.name)
        content = random_bytes(stripe * _STRIPES, *words)
        path.touch()
        context.other.start("sparse:write_odd_stripes", there, words=words, stripe=stripe)
        context.report_call("write stripes", str(path))
        _write_stripes(path, content, stripe, range(0, _STRIPES, 2))
        context.other.finish()
        findings.trials += _STRIPES
        when = f"after two clients wrote stripes of {stripe:,} bytes at once"
        _read_twice(findings, path, content, when, unit_bytes=stripe)
        seen = context.other.read(there)
        compare(findings, seen, content, path=there, when=f"{when}, on the other client", unit_bytes=stripe)
        path.unlink()


def write_odd_stripes(path: str, *, words: list[object], stripe: int) -> None:
    """Write the odd stripes of a file. For ``disjoint_writers_second``, the second client calls this function."""
    _write_stripes(Path(path), random_bytes(stripe * _STRIPES, *words), stripe, range(1, _STRIPES, 2))


def _write_stripes(
    path: Path, content: bytes, stripe: int, numbers: Iterable[int], talk: WorkerChannel | None = None
) -> None:
    def at(call: str) -> None:
        if talk:
            talk.at(call, path)

    at("open")
    # Each worker may create the file but must not truncate it.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    for number in numbers:
        start = number * stripe
        at("write")
        os.pwrite(descriptor, content[start : start + stripe], start)
    at("fsync")
    os.fsync(descriptor)
    at("close")
    os.close(descriptor)


def _read_twice(findings: Findings, path: Path, content: bytes, when: str, *, unit_bytes: int = 0) -> None:
    """Read a file through the page cache, then drop its cached pages and read it from the storage.

    The first fault is recorded. ``when`` describes the time of the read in messages.
    """
    with opened(path, os.O_RDONLY) as descriptor:
        seen = read_to_end(descriptor)
        if compare(findings, seen, content, path=path, when=when, unit_bytes=unit_bytes):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            seen = read_to_end(descriptor)
            compare(findings, seen, content, path=path, when=f"{when}, past the cache", unit_bytes=unit_bytes)


def _fine(findings: Findings, ends: Iterable[WorkerEnd]) -> None:
    for end in ends:
        if end.error or end.signal:
            findings.wrong(
                "a call failed",
                where=end.where,
                seen=f"{end.error or end.signal} from: {end.call}",
                expected="no error",
            )


_TRIALS = 240
_READ_BYTES = 1 << 20
# The written parts of the file, in bytes; holes are between them.
_SHAPES: tuple[tuple[tuple[int, int], ...], ...] = (
    ((0, 100),),
    ((0, 65_536),),
    ((0, 131_073),),
    ((0, 1_048_583),),
    ((0, 200_000), (1_048_576, 1_300_000)),
)
# The file system does not offer the call, or not for this file now; a program then copies in another way. FICLONE, the
# ioctl(2) request that clones a whole file, is from linux/fs.h.
FICLONE = 0x40049409
_NOT_OFFERED = frozenset((errno.ENOTSUP, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EXDEV))


def copy_fresh(context: CheckContext, findings: Findings) -> None:
    """Write files of several sizes, copy each file immediately with one method, and compare all bytes of the copy.

    The writer does not call fsync. The writer still has the file open during the copy, or has closed the file
    immediately before the copy.
    """
    cases = list(itertools.product(_SHAPES, (True, False), _METHODS))
    copies = dict.fromkeys(_METHODS, 0)
    refusals: dict[str, list[str]] = {method: [] for method in _METHODS}
    for number in range(context.count(_TRIALS, minimum=len(cases))):
        shape, is_open, method = cases[number % len(cases)]
        path, target = (context.directory / f"{what}-{number}" for what in ("fresh", "copy"))
        content = _content(shape, context.seed, path.name)
        context.report_call("write", str(path))
        with path.open("xb") as writer:
            for start, stop in shape:
                writer.seek(start)
                writer.write(content[start:stop])
            writer.flush()
            if not is_open:
                writer.close()
            refusal = _copied(context, path, target, method)
        if refusal:
            refusals[method].append(refusal)
        else:
            state = "which its writer had open" if is_open else "right after it was closed"
            when = f"copied by {method} from a file of {len(content):,} bytes, {state}, without fsync"
            _compare(context, findings, target, content, when)
            copies[method] += 1
            findings.trials += 1
        target.unlink()
        path.unlink()
    findings.facts |= {method: _outcome(copies[method], refusals[method]) for method in _METHODS}


def _outcome(copies: int, refusals: list[str]) -> str:
    """Return a text on one copy method: the number of copies, and the last error if the method was refused."""
    if not refusals:
        return f"{copies:,} copies"
    reason = f"not offered: {refusals[-1]}"
    return f"{copies:,} copies, {len(refusals):,} times {reason}" if copies else reason


def _content(shape: tuple[tuple[int, int], ...], *words: object) -> bytes:
    """Return the bytes of a file, with zeros in its holes. ``shape`` lists (start, stop) of each range with data."""
    content = bytearray(shape[-1][1])
    for start, stop in shape:
        content[start:stop] = random_bytes(stop - start, *words, start)
    return bytes(content)


def _copied(context: CheckContext, path: Path, target: Path, method: str) -> str:
    """Copy a file with one method. Return an empty text, or the reason if the file system does not offer the method."""
    context.report_call(f"copy by {method}", str(path))
    with path.open("rb") as source, target.open("xb") as copied:
        try:
            _METHODS[method](source.fileno(), copied.fileno())
        except OSError as error:
            if error.errno not in _NOT_OFFERED:
                raise
            return f"{error.strerror} (errno {error.errno})"
    return ""


def _compare(context: CheckContext, findings: Findings, target: Path, content: bytes, when: str) -> None:
    """Compare a copy with the original: through the page cache, then from the storage. Record the first fault."""
    context.report_call("read", str(target))
    with opened(target, os.O_RDONLY) as descriptor:
        if compare(findings, read_to_end(descriptor), content, path=target, when=when):
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            when = f"{when}, read past the cache"
            compare(findings, read_to_end(descriptor), content, path=target, when=when)


def _by_holes(source: int, target: int) -> None:
    """Copy the data ranges that SEEK_DATA and SEEK_HOLE report. Extend the copy to the size of the file."""
    size, at = os.fstat(source).st_size, 0
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole up to the end
                break
            raise
        end = os.lseek(source, start, os.SEEK_HOLE)
        if end <= at:  # data of length zero: a copy loop would not end
            break
        at = end
        while start < end and (piece := os.pread(source, min(end - start, _READ_BYTES), start)):
            start += os.pwrite(target, piece, start)
    os.ftruncate(target, size)


def _by_range(source: int, target: int) -> None:
    """Let the file system copy the bytes (copy_file_range)."""
    left = os.fstat(source).st_size
    while left and (done := os.copy_file_range(source, target, left)):
        left -= done


def _by_clone(source: int, target: int) -> None:
    """Let the file system clone the file, so that both files share their blocks (FICLONE)."""
    fcntl.ioctl(target, FICLONE, source)


_METHODS: dict[str, Callable[[int, int], None]] = {
    "SEEK_DATA and SEEK_HOLE": _by_holes,
    "copy_file_range": _by_range,
    "FICLONE": _by_clone,
}


_GIB, _TIB = 1 << 30, 1 << 40
_BOUNDARIES = (("2 GiB", 2 * _GIB), ("4 GiB", 4 * _GIB), ("2 TiB", 2 * _TIB), ("8 TiB", 8 * _TIB))
# A size limit of the storage below this size is a fault: one rank's file of a large model may exceed it.
_MINIMUM_BYTES = _TIB
_PIECE_BYTES = 64 << 10
# The piece that crosses the boundary begins this many bytes before it, within a page and within a sector.
_BEFORE_BYTES = 30_001
_AROUND_BYTES = 256 << 10


def large_offsets(context: CheckContext, findings: Findings) -> None:
    """For each boundary, such as 4 GiB, write a sparse file across the boundary, and check its data and size.

    The file has data at its start, and before, across and after the boundary.
    """
    _need_large_files_of_this_process()
    for name, boundary in _BOUNDARIES:
        path = context.directory / f"large-{name.replace(' ', '-')}"
        context.report_call("truncate", f"{path} to {name}")
        stored = _one_file(context, findings, path, name, boundary)
        path.unlink(missing_ok=True)
        if stored > boundary // 2:
            findings.facts["sparse files"] = f"none: a file of {name} with a few KiB of data takes {stored:,} bytes"
            return


def _need_large_files_of_this_process() -> None:
    """Raise NotRun if a limit of this process forbids large files.

    The error EFBIG would then come from this limit, and not from the storage.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = _size(_BOUNDARIES[-1][1])
    if limit != resource.RLIM_INFINITY and limit < largest:
        raise NotRun(
            f"this process may write files of at most {limit:,} bytes (RLIMIT_FSIZE, its limit and not the storage's), "
            f"and the check writes up to byte {largest:,}: run 'ulimit -f unlimited' in the shell that starts it"
        )


def _size(boundary: int) -> int:
    return boundary + 2 * _AROUND_BYTES


def _one_file(context: CheckContext, findings: Findings, path: Path, name: str, boundary: int) -> int:
    """Write and check one sparse file that crosses ``boundary``. Return the bytes that the file uses on the storage."""
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
            # The target permits a file of this size. Shrink it again: the writes determine the size that is checked.
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
            context.report_call("write", f"{path} at byte {at:,}")
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
        context.report_call("fsync", str(path))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return _check_around(context, findings, path, boundary, size, pieces)


def _free_bytes(path: Path) -> int:
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


def _check_around(
    context: CheckContext, findings: Findings, path: Path, boundary: int, size: int, pieces: dict[int, bytes]
) -> int:
    with opened(path, os.O_RDONLY) as descriptor:
        # The boundary's offsets without their upper bits would be written here; after the head there must be a hole.
        for start, length in ((0, 4 * _AROUND_BYTES), (boundary - 2 * _AROUND_BYTES, 4 * _AROUND_BYTES)):
            context.report_call("read", f"{path} at byte {start:,}")
            expected = bytearray(length)
            for at, piece in pieces.items():
                if start <= at < start + length:
                    expected[at - start : at - start + len(piece)] = piece
            _note_wrapped(findings, read_at(descriptor, start, length), bytes(expected), path, start, pieces)
        # The sizes are queried last: some clients update the cached attributes of a file only when its size is queried.
        status = path.stat()
        for found, what in ((status.st_size, "stat"), (os.lseek(descriptor, 0, os.SEEK_END), "a seek to the end")):
            if found != size:
                findings.wrong(
                    "wrong size", where=f"{path}, reported by {what}", seen=f"{found:,} bytes", expected=f"{size:,}"
                )
    return status.st_blocks * 512


def _note_wrapped(
    findings: Findings, seen: bytes, expected: bytes, path: Path, start: int, pieces: dict[int, bytes]
) -> None:
    """Record the first fault of bytes that were read from ``start``, if any.

    Bytes that were written at a much larger offset are reported as a wrapped (overflowed) offset.
    """
    found = difference(seen, expected, offset=start)
    if not found:
        return
    here = seen[found.at : found.at + 16]
    for at, piece in pieces.items():
        inside = piece.find(here) if any(here) else -1
        # The lost bits of the offset move it far from its place.
        if inside >= 0 and at + inside - (start + found.at) >= _BOUNDARIES[0][1] // 2:
            findings.wrong(
                "wrapped offset",
                where=f"{path} at byte {start + found.at:,}",
                seen=f"the bytes that were written at byte {at + inside:,}",
                expected=found.expected,
            )
            return
    compare(findings, seen, expected, path=path, offset=start)
