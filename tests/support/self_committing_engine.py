"""An engine for tests that commits its checkpoint itself.

Each rank saves three files, with new random names in each save.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

import numpy as np

from pytest_ckpt.ranks.content import TensorKey, compare
from pytest_ckpt.ranks.engines.protocol import Comparison

FILES, FILE_BYTES = 3, (1 << 20) + 12_345


class SelfCommittingEngine:
    """The engine of one rank. ``group`` is a rank group that no other code uses during a save."""

    def __init__(self, *, rank, content, group) -> None:
        self._rank, self._content, self._group = rank, content, group
        self._state = [np.empty(FILE_BYTES, np.uint8) for _ in range(FILES)]
        self._names: list[str] = []

    def facts(self):
        return {"commit": "by the engine"}

    def fill(self, checkpoint):
        for number, data in enumerate(self._state):
            self._content.fill(data, TensorKey(checkpoint=checkpoint, rank=self._rank, tensor=number))

    def write(self, draft, clock):
        self._names = [f"{secrets.token_hex(8)}.bin" for _ in range(FILES)]
        for name, data in zip(self._names, self._state, strict=True):
            sink = draft.create(name, None)
            with clock.phase("write", name):
                sink.write(data)
            sink.finish()

    def save(self, draft, clock):
        self.write(draft, clock)
        entries, _ = draft.seal()
        everyone = self._group.gather(tuple(entries))
        if self._group.rank != 0:
            return None
        return replace(draft.commit([e for of_rank in everyone for e in of_rank]), method="engine")

    def load_steps(self):
        return 1

    def load(self, committed, step, clock):
        for name, data in zip(self._names, self._state, strict=True):
            data[:] = 0
            source = committed.source(name)
            # Requests are complete blocks, in memory aligned to blocks.
            with clock.phase("read", name):
                aligned = _aligned(-(-source.size // 4096) * 4096)
                count = source.read_into(0, aligned)
                data[:] = aligned[:count]
            source.close()
        return sum(data.nbytes for data in self._state)

    def verify(self, checkpoint):
        faults = 0
        for number, data in enumerate(self._state):
            key = TensorKey(checkpoint=checkpoint, rank=self._rank, tensor=number)
            faults += compare(self._content, data, key, 0)[0]
        return Comparison(bytes_checked=sum(data.nbytes for data in self._state), fault_count=faults, faults=())

    def release(self):
        self._names = self._names[:]


class CommitOmittingEngine(SelfCommittingEngine):
    """A variant of the engine that only writes its files. The strategy commits them."""

    def save(self, draft, clock):
        self.write(draft, clock)


def _aligned(size):
    memory = np.empty(size + 4096, np.uint8)
    return memory[-memory.ctypes.data % 4096 :][:size]
