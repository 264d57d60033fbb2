"""What a store answers that has neither a cache on its clients nor local paths."""

from __future__ import annotations

from collections.abc import Collection

from pytest_ckpt.facts.proofs import Entry
from pytest_ckpt.facts.targets import CheckpointRef
from pytest_ckpt.targets.protocol import Resident


class StoreWithoutCache:
    """The part of a `Store` that is about the cache of this client, where there is none: nor does it remember names."""

    def is_prepared(self, subject: str) -> bool:
        """There are no folders."""
        return True

    def announce(self, ref: CheckpointRef) -> None:
        """There are no folders."""

    def sees_draft(self, ref: CheckpointRef) -> bool:
        """There are no folders."""
        return True

    def sees(self, ref: CheckpointRef, entries: Collection[Entry]) -> bool:
        """Every request is answered by the store, which shows what is committed at once, or is wrong."""
        return True

    def find_gauge(self, subject: str) -> str | None:
        """There is nothing to count."""
        return None

    def cached(self, ref: CheckpointRef, names: Collection[str], gauge: str) -> Resident:
        """There is no cache."""
        raise NotImplementedError

    def evict(self, ref: CheckpointRef, names: Collection[str]) -> str:
        """There is no cache."""
        raise NotImplementedError

    def drop_cache(self) -> str | None:
        """There is no cache."""
        raise NotImplementedError

    def drop_names(self) -> bool:
        """There is no cache."""
        raise NotImplementedError


class DraftWithoutPaths:
    """The part of a `Draft` that is about a library which writes files itself, where it cannot."""

    def location(self) -> str:
        """There are no paths."""
        raise NotImplementedError

    def adopt(self, names: Collection[str]) -> None:
        """There are no paths."""
        raise NotImplementedError
