"""Reads samples at random, as data loaders do, in a process of its own (``python -m`` this module).

What to read comes as one line of JSON on standard input; the reads go on until a second line, or the end of the input.
Then every read is told on standard output: when it began, on the monotonic clock of this host, and how long it took.
A process of its own, since in that of a rank the reads would wait for Python and not for the storage.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import random
import sys
import threading
import time
from dataclasses import dataclass, field

from pytest_ckpt.support.die_with_parent import die_with_parent

READ_BYTES = 128 << 10
READERS = 4
PAUSE_SECONDS = 0.01

_BLOCK_BYTES = 4096


@dataclass(slots=True)
class _Samples:
    """The files that are open, each with its size, and what has been read of them."""

    files: list[tuple[int, int]]
    is_direct: bool
    reads: list[tuple[float, float]] = field(default_factory=list)
    error: OSError | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def read(self, seed: int) -> None:
        """Read until it is over: a pause, a place at random, the time until its bytes are here."""
        chance = random.Random(seed)
        buffer = mmap.mmap(-1, READ_BYTES)
        weights = [size for _, size in self.files]
        while not self.over.wait(PAUSE_SECONDS):
            descriptor, size = chance.choices(self.files, weights)[0]
            offset = chance.randrange(max(1, (size - READ_BYTES) // _BLOCK_BYTES)) * _BLOCK_BYTES
            began = time.perf_counter()
            try:
                got = os.preadv(descriptor, [buffer], offset)
                if got < min(READ_BYTES, size - offset):
                    raise OSError(errno.EIO, f"a read of {READ_BYTES} bytes brought {got}")
                self.reads.append((began, time.perf_counter() - began))
                if not self.is_direct:
                    # What is read again must come from the storage again.
                    os.posix_fadvise(descriptor, offset, READ_BYTES, os.POSIX_FADV_DONTNEED)
            except OSError as error:
                self.error = error
                return


def _open(paths: list[str]) -> _Samples:
    """Open the files around the page cache, or without that where the target refuses it."""
    for flag in (os.O_DIRECT, 0):
        files: list[tuple[int, int]] = []
        try:
            for path in paths:
                descriptor = os.open(path, os.O_RDONLY | flag)
                files.append((descriptor, os.fstat(descriptor).st_size))
            os.preadv(files[0][0], [mmap.mmap(-1, _BLOCK_BYTES)], 0)
        except OSError as error:
            if not flag or error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            for descriptor, _ in files:
                os.close(descriptor)
            continue
        if not flag:
            for descriptor, _ in files:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return _Samples(files=files, is_direct=bool(flag))
    raise AssertionError("one of the two ways returns or raises")


def main() -> None:
    """Read what standard input names until it says otherwise."""
    # It must not go on reading when its rank is gone.
    die_with_parent()
    asked = json.loads(sys.stdin.readline())
    try:
        samples = _open(asked["paths"])
    except OSError as error:
        print(json.dumps({"errno": error.errno, "message": f"{error}"}), flush=True)
        return
    print("{}", flush=True)
    sys.stdin.readline()
    readers = [threading.Thread(target=samples.read, args=(asked["seed"] + n,)) for n in range(READERS)]
    for reader in readers:
        reader.start()
    sys.stdin.readline()
    samples.over.set()
    for reader in readers:
        reader.join()
    failed = {"errno": samples.error.errno, "message": f"{samples.error}"} if samples.error else {}
    print(json.dumps({"reads": samples.reads, "direct": samples.is_direct, **failed}), flush=True)


if __name__ == "__main__":
    main()
