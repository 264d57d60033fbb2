"""An engine that another package could define. It writes tensors one after the other, in its own file format."""

from __future__ import annotations

from pytest_ckpt.ranks.content import TensorKey, compare
from pytest_ckpt.ranks.engines.protocol import Comparison, LocalFault
from pytest_ckpt.vendors import EngineSpec, MemoryRule

SPEC = EngineSpec(
    name="dump",
    help="plain bytes, one write a tensor",
    make="tests.support.dump_engine:make",
    memory=MemoryRule(process_bytes=300_000_000, state_share=2.0),
)
MODEST = EngineSpec(name="modest", help="states less than it takes", make=SPEC.make, memory=MemoryRule(process_bytes=1))


class DumpEngine:
    """The engine of one rank. It keeps the state of the rank in memory."""

    def __init__(self, shard, content):
        self._content, self._state, self._loaded = content, {}, {}
        pairs = [(file.name, tensor) for file in shard.files for tensor in file.tensors]
        self._tensors = [(name, tensor, number, shard.rank) for number, (name, tensor) in enumerate(pairs)]
        self._names = [file.name for file in shard.files]

    def facts(self):
        return {"form": "plain bytes"}

    def fill(self, checkpoint):
        self._state = dict.fromkeys(self._names, b"")
        for name, tensor, number, rank in self._tensors:
            place = TensorKey(checkpoint=checkpoint, rank=rank, tensor=number)
            self._state[name] += self._content.expected(place, 0, tensor.bytes).tobytes()

    def save(self, draft, clock):
        for name, data in self._state.items():
            sink = draft.create(name, None)
            with clock.phase("write", name):
                sink.write(data)
            sink.finish()

    def load_steps(self):
        return 1

    def load(self, committed, step, clock):
        for name in self._names:
            source = committed.source(name)
            self._loaded[name] = bytearray(source.size)
            with clock.phase("read", name):
                source.read_into(0, self._loaded[name])
            source.close()
        return sum(map(len, self._loaded.values()))

    def verify(self, checkpoint):
        import numpy as np  # noqa: PLC0415 - in the ranks only

        checked, count, faults, at = 0, 0, [], dict.fromkeys(self._names, 0)
        for name, tensor, number, rank in self._tensors:
            data = np.frombuffer(self._loaded[name], dtype=np.uint8)[at[name] :][: tensor.bytes]
            at[name] += tensor.bytes
            pages, found = compare(self._content, data, TensorKey(checkpoint=checkpoint, rank=rank, tensor=number))
            checked, count = checked + len(data), count + pages
            faults += [
                LocalFault(kind=f.kind, file=name, tensor=tensor.name, offset=f.offset, bytes=f.bytes, detail=f.detail)
                for f in found
            ]
        return Comparison(bytes_checked=checked, fault_count=count, faults=tuple(faults))

    def release(self):
        self._state, self._loaded = {}, {}


def make(*, shard, content, **_beside):
    return DumpEngine(shard, content)
