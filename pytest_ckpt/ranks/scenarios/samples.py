"""Reads samples at random, as data loaders do, in a process of its own (``python -m`` this module).

What to read comes as one line of JSON on standard input; the reads go on until a second line, or the end of the input.
Then every read is told on standard output: when it began, on the monotonic clock of this host, and how long it took.
A process of its own, since in that of a rank the reads would wait for Python and not for the storage.
"""

from __future__ import annotations

import errno
import json
import mmap
import random
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.failure import Phase
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.ranks.process.host_cache import Files
from pytest_ckpt.support.die_with_parent import die_with_parent
from pytest_ckpt.support.references import load
from pytest_ckpt.targets.protocol import Source, Store

READ_BYTES = 128 << 10
READERS = 4
PAUSE_SECONDS = 0.01

_BLOCK_BYTES = 4096


@dataclass(slots=True)
class _Samples:
    """The files that are open, and what has been read of them."""

    files: list[Source]
    reads: list[tuple[float, float]] = field(default_factory=list)
    error: OSError | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def read(self, seed: int) -> None:
        """Read until it is over: a pause, a place at random, the time until its bytes are here."""
        chance = random.Random(seed)
        buffer = mmap.mmap(-1, READ_BYTES)
        # Asked for once: a request for the size right before a timed read would warm the client's caches.
        sizes = [source.size for source in self.files]
        while not self.over.wait(PAUSE_SECONDS):
            ((source, size),) = chance.choices(list(zip(self.files, sizes, strict=True)), sizes)
            offset = chance.randrange(max(1, (size - READ_BYTES) // _BLOCK_BYTES)) * _BLOCK_BYTES
            began = time.perf_counter()
            try:
                got = source.read_into(offset, buffer)
                took = time.perf_counter() - began
                if got < min(READ_BYTES, size - offset):
                    raise OSError(errno.EIO, f"a read of {READ_BYTES} bytes brought {got}")
                self.reads.append((began, took))
            except OSError as error:
                self.error = error
                return


class _Untimed:
    """Nobody asks in which phase this process is."""

    def phase(self, name: Phase, file: str = "") -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def moved(self, count: int) -> None:
        """Do nothing."""


def _open(area: AreaRef, files: list[Files]) -> _Samples:
    """Open the files such that every read comes from the storage, and read a block to see whether that works."""
    store: Store = load(area.opener)(area)
    opened = [store.open(of.ref, _Untimed()).source(name, fresh=True) for of in files for name in of.names]
    opened[0].read_into(0, mmap.mmap(-1, _BLOCK_BYTES))
    return _Samples(files=opened)


def main() -> None:
    """Read what standard input names until it says otherwise."""
    # It must not go on reading when its rank is gone.
    die_with_parent()
    asked = json.loads(sys.stdin.readline())
    try:
        samples = _open(from_plain(AreaRef, asked["area"]), [from_plain(Files, of) for of in asked["files"]])
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
    print(json.dumps({"reads": samples.reads, "way": samples.files[0].way, **failed}), flush=True)


if __name__ == "__main__":
    main()
