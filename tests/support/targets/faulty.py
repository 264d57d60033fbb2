"""Common code for tests of single faults of the FUSE target."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MIB = 1 << 20


def with_faults(name: str, *more: str):
    """Return a decorator that runs a test once with each of these faults.

    test_all_faults.py reads these names to check that each fault has a test.
    """
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
    """Call ``deed`` ``times`` times, and return the results of ``look``.

    During these calls, a thread calls ``look`` repeatedly.
    """
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
