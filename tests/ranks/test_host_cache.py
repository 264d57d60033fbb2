"""The conditions under which a host's page cache must be dropped before loads."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from pytest_ckpt.facts.targets import CheckpointRef
from pytest_ckpt.ranks.process.host_cache import Files, HostCache
from pytest_ckpt.targets.protocol import CachedBytes

SIZE = 1000


class SingleRank:
    leads_host, host = True, "here"

    def any_of(self, value: bool) -> bool:
        return value

    def from_host_leader(self, value: Any) -> Any:
        return value


class IdleActivity:
    """A fake activity that does not record phases."""

    def in_phase(self, _name: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class Counted:
    """A fake store whose checkpoint number n has ``cached[n]`` bytes in the page cache."""

    capabilities = frozenset({"page cache"})

    def __init__(self, *cached: int, probe: str | None = "cachestat") -> None:
        self._cached, self._cache_probe = cached, probe

    def find_cache_probe(self, _subject: str) -> str | None:
        return self._cache_probe

    def cached(self, ref: CheckpointRef, _names: tuple[str, ...], _cache_probe: str) -> CachedBytes:
        return CachedBytes(resident_bytes=self._cached[ref.number], bytes=SIZE)

    def all_files(self) -> list[Files]:
        return [Files(ref=CheckpointRef(subject="subject", number=n), names=("a",)) for n in range(len(self._cached))]


@pytest.mark.parametrize(
    ("store", "holds"),
    [
        (Counted(0, 0, 0), False),
        (Counted(10, 10, 10), False),
        # One checkpoint of 200 is cached: 0.4 % of all bytes, but most of one load.
        (Counted(*[0] * 199, 800), True),
        (Counted(0, 11, 0), True),
        (Counted(SIZE, probe=None), False),
    ],
)
def test_a_cached_checkpoint_is_seen_among_many_that_are_not(store, holds):
    cache = HostCache(SingleRank(), IdleActivity(), store, "subject")
    assert cache.caches_more_than(0.01, store.all_files()) is holds
