"""Saves and loads in a directory, for tests of engines without a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_ckpt.facts.proofs import CommitProof, DurabilityProof, Entry
from pytest_ckpt.ranks.engines.protocol import Clock, Comparison, Engine, expect
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.targets.posix.checkpoint import PosixCommitted, PosixDraft
from pytest_ckpt.targets.posix.direct_io import DirectSupport

CHECKPOINT = 5


def clock_of(activity: Activity | None = None) -> Clock:
    return Clock(activity=activity or Activity())


def draft_in(directory: Path, clock: Clock | None = None, way: DirectSupport | None = None) -> PosixDraft:
    """Return a draft (a checkpoint before its commit) whose files are in the directory."""
    return PosixDraft(directory, way or DirectSupport(), clock or clock_of(), lambda _: CommitProof(method="rename"))


def committed_in(directory: Path, clock: Clock | None = None, way: DirectSupport | None = None) -> PosixCommitted:
    """Return the directory as a committed checkpoint."""
    return PosixCommitted(directory, way or DirectSupport(), clock or clock_of())


def save(engine: Engine, directory: Path, number: int = CHECKPOINT) -> tuple[Sequence[Entry], DurabilityProof, Clock]:
    """Save as a rank does, without the commit; return the entries, the durability proof and the clock."""
    clock = clock_of()
    engine.fill(number)
    draft = draft_in(directory, clock)
    engine.save(draft, clock)
    return (*draft.seal(), clock)


def load(engine: Engine, directory: Path, number: int = CHECKPOINT) -> tuple[int, Comparison]:
    """Load and compare as a rank does; return (loaded bytes, comparison)."""
    assert engine.load_steps() == 1
    expect(engine, number)
    loaded = engine.load(committed_in(directory), 0, clock_of())
    return loaded, engine.verify(number)


def assert_each_checkpoint_loads(engine: Engine, directory: Path, wanted_bytes: int) -> None:
    """Assert that an engine loads the right bytes after it has released its resources.

    Saves two checkpoints of ``wanted_bytes`` bytes each, and loads them in the order 2, 1, 2.
    """
    for number in (1, 2):
        save(engine, directory / str(number), number)
    engine.release()
    for number in (2, 1, 2):
        loaded, check = load(engine, directory / str(number), number)
        assert loaded == check.bytes_checked == wanted_bytes
        assert check.faults == ()
