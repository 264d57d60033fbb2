"""An engine whose files pass a codec: it saves and loads as it does alone, and other bytes reach the storage."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.compression import FRAME_BYTES
from pytest_ckpt.ranks.content import numbers
from pytest_ckpt.ranks.engines.compressed.codecs import CodecInUse
from pytest_ckpt.ranks.engines.compressed.files import CompressingDraft, DecompressingCheckpoint
from pytest_ckpt.ranks.engines.protocol import Clock, Comparison, LocalFault, state_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.proofs import CommitProof
    from pytest_ckpt.ranks.content.generator import Bytes
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.targets.protocol import Committed, Draft

_MAXIMUM_FAULTS = 20


class CompressedEngine:
    """Hands ``engine`` a draft that compresses and a checkpoint that decompresses.

    ``stored_bytes`` are those of the files of the last save.
    """

    def __init__(self, engine: Engine, stated: str) -> None:
        self._engine, self._codec = engine, CodecInUse(stated)
        self.stored_bytes = 0
        self._damage: list[LocalFault] = []

    @property
    def codec_seconds(self) -> float:
        """What the codec has taken of the processor so far."""
        return self._codec.seconds

    def facts(self) -> dict[str, str]:
        """Return what the engine says of itself, and what its files pass."""
        return self._engine.facts() | {
            "compression": f"{self._codec.words}; frames of {FRAME_BYTES >> 20} MiB, each with a checksum, written and "
            "read through the client's page cache; files keep their names",
            "content": f"{numbers.SAID}: the ratio of one measured state, and of no other job",
        }

    def fill(self, checkpoint: int) -> None:
        """Make the content of a checkpoint ready."""
        self._engine.fill(checkpoint)

    def state(self) -> Sequence[Bytes]:
        """Return the memory of the engine's state."""
        return state_of(self._engine)

    def save(self, draft: Draft, clock: Clock) -> CommitProof | None:
        """Save through the codec."""
        self.stored_bytes = 0
        return self._engine.save(CompressingDraft(draft, self._codec, self._count), clock)

    def load_steps(self) -> int:
        """Return the engine's steps."""
        return self._engine.load_steps()

    def load(self, committed: Committed, step: int, clock: Clock) -> int:
        """Read what belongs to a step, through the codec."""
        return self._engine.load(DecompressingCheckpoint(committed, self._codec, self._note), step, clock)

    def verify(self, checkpoint: int) -> Comparison:
        """Compare what the last step brought; what could not be decompressed is named first."""
        found, damage = self._engine.verify(checkpoint), self._damage
        self._damage = []
        faults = (*damage, *found.faults)[:_MAXIMUM_FAULTS]
        return replace(found, fault_count=found.fault_count + len(damage), faults=faults)

    def release(self) -> None:
        """Give back what the engine holds."""
        self._engine.release()

    def _count(self, stored: int) -> None:
        self.stored_bytes += stored

    def _note(self, file: str, offset: int, count: int, detail: str) -> None:
        fault = LocalFault(kind="unreadable", file=file, tensor="", offset=offset, bytes=count, detail=detail)
        # A frame that is read in parts is damaged once.
        if fault not in self._damage:
            self._damage.append(fault)
