"""SPARSE: files that are not written from front to back, and not by one writer."""

from __future__ import annotations

import itertools
import mmap
import os
import random
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import compare, random_bytes
from pytest_ckpt.conformance.reading import read_file, read_to_end
from pytest_ckpt.conformance.workers import gather, working

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ckpt.conformance.context import CheckContext, Findings
    from pytest_ckpt.conformance.workers import Ended, Talk

_FILES = 60
_FILE_BYTES = 2 << 20
_WRITERS = 4
_STRIPES = 64
_ROUNDS = 12


def tail_first(context: CheckContext, findings: Findings) -> None:
    """Write a file's tail, look, then write the rest in pieces of any length and order, and look after some."""
    chance = random.Random(context.seed)
    for number in range(context.count(_FILES, minimum=5)):
        path = context.folder / f"sparse-{number}"
        context.tell("write", str(path))
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
    """Write interleaved stripes of one file from several processes at once; stripes of any length share pages."""
    chance = random.Random(context.seed)
    for number in range(context.count(_ROUNDS, minimum=2)):
        path = context.folder / f"striped-{number}"
        stripe = chance.choice([mmap.PAGESIZE, 1 << 16, chance.randrange(500, 50_000)])
        content = random_bytes(stripe * _STRIPES, context.seed, path.name)
        context.tell("write stripes", str(path))
        writers = [
            partial(_write_stripes, path, content, stripe, range(n, _STRIPES, _WRITERS)) for n in range(_WRITERS)
        ]
        with working(writers) as workers:
            ends = gather(workers, context.tell)
        _fine(findings, ends)
        findings.trials += _STRIPES
        when = f"after {_WRITERS} processes wrote stripes of {stripe:,} bytes at once"
        _read_twice(findings, path, content, when)
        path.unlink()


def disjoint_writers_second(context: CheckContext, findings: Findings) -> None:
    """Write interleaved stripes of one file from two clients at once; both read it when both have closed it.

    The stripes are whole pages: two clients that write to the same page need locks on every network file system.
    """
    assert context.other
    chance = random.Random(context.seed)
    for number in range(context.count(_ROUNDS, minimum=2)):
        path = context.folder / f"shared-{number}"
        there = f"{context.other_folder}/{path.name}"
        stripe = chance.choice([1, 8, 16]) * mmap.PAGESIZE
        words = (context.seed, path.name)
        content = random_bytes(stripe * _STRIPES, *words)
        path.touch()
        context.other.start("sparse:write_odd_stripes", there, words=words, stripe=stripe)
        context.tell("write stripes", str(path))
        _write_stripes(path, content, stripe, range(0, _STRIPES, 2))
        context.other.finish()
        findings.trials += _STRIPES
        when = f"after two clients wrote stripes of {stripe:,} bytes at once"
        _read_twice(findings, path, content, when, unit_bytes=stripe)
        seen = context.other.read(there)
        compare(findings, seen, content, path=there, when=f"{when}, on the other client", unit_bytes=stripe)
        path.unlink()


def write_odd_stripes(path: str, *, words: list[object], stripe: int) -> None:
    """Write every other stripe of a file: the second client's part of ``disjoint_writers_second``."""
    _write_stripes(Path(path), random_bytes(stripe * _STRIPES, *words), stripe, range(1, _STRIPES, 2))


def _write_stripes(path: Path, content: bytes, stripe: int, numbers: Iterable[int], talk: Talk | None = None) -> None:
    def at(call: str) -> None:
        if talk:
            talk.at(call, path)

    at("open")
    # All may create it and none may cut it.
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
    """Read as the page cache has it, and once more as storage has it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        seen = read_to_end(descriptor)
        if compare(findings, seen, content, path=path, when=when, unit_bytes=unit_bytes):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            seen = read_to_end(descriptor)
            compare(findings, seen, content, path=path, when=f"{when}, past the cache", unit_bytes=unit_bytes)
    finally:
        os.close(descriptor)


def _fine(findings: Findings, ends: Iterable[Ended]) -> None:
    for end in ends:
        if end.error or end.signal:
            findings.wrong(
                "a call failed",
                where=end.where,
                seen=f"{end.error or end.signal} from: {end.call}",
                expected="no error",
            )
