"""What the tests of single faults share: writing, comparing, looking on while something is done."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MIB = 1 << 20


def of(name: str, *more: str):
    """Say which faults a test is about: test_all_faults.py reads that none is left out."""
    return pytest.mark.parametrize("fault", [name, *more])


def write(path: Path, content: bytes, sync: bool = False) -> None:
    with path.open("wb", buffering=0) as file:
        assert file.write(content) == len(content)
        if sync:
            os.fsync(file.fileno())


def differing(seen: bytes, content: bytes) -> list[int]:
    assert len(seen) == len(content)
    return [place for place, (one, other) in enumerate(zip(seen, content, strict=True)) if one != other]


@contextlib.contextmanager
def fails_with(number: int) -> Iterator[None]:
    with pytest.raises(OSError, match=r".*") as raised:
        yield
    assert raised.value.errno == number, errno.errorcode[raised.value.errno]


def polled(look: Callable[[], object], deed: Callable[[], None], times: int) -> list[object]:
    """Return all that somebody who looks all the time sees while something is done a number of times."""
    seen: list[object] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            seen.append(look())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(times):
            deed()
    finally:
        over.set()
        watcher.join()
    return seen


CONTENT = os.urandom(300_000)
