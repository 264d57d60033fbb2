"""A draft that stands before the draft of a store: all but its files is passed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.proofs import CommitProof, DurabilityProof, Entry
    from pytest_ckpt.targets.protocol import Draft


class WrappedDraft:
    """Passes the end of a draft on to ``draft``. A subclass creates the files."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def written(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Return this rank's entries and the durable calls on its files."""
        return self._draft.written()

    def seal(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Make names durable."""
        return self._draft.seal()

    def commit(self, entries: Sequence[Entry]) -> CommitProof:
        """Commit the checkpoint."""
        return self._draft.commit(entries)

    def abort(self) -> None:
        """Remove this rank's files of the checkpoint."""
        self._draft.abort()
