"""The subject's own loads: cold, each from the storage and, where nothing else can show that, by another host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.sizing.caches import minimum_moved
from pytest_ckpt.sizing.reading import shifted
from pytest_ckpt.support.processes import boot_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ckpt.facts.proofs import MovedBytes
    from pytest_ckpt.ranks.engines.protocol import Loader
    from pytest_ckpt.ranks.operations import Loaded, Operations
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import Files, HostCache
    from pytest_ckpt.sizing.models import Layout, RankLayout


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedLoads:
    """Loads every checkpoint that is kept, in turns.

    ``loader`` makes what loads a shard of another rank, None where no rank can. ``drop`` empties the caches of what
    this rank is about to read, ``take_in`` is given every load. Where ranks differ in size, one may load a larger shard
    than its own only where memory was planned for that: ``lends_memory``. ``knows_bytes``: files are as large as the
    layout says, so that what passed a cache can be added up.
    """

    group: Group
    do: Operations
    cache: HostCache
    layout: Layout
    loader: Callable[[RankLayout], Loader] | None
    lends_memory: bool
    knows_bytes: bool
    drop: Callable[[Sequence[Files]], None]
    take_in: Callable[[Loaded], None]

    def measure(self, engine: Loader, kept: Sequence[int], count: int) -> tuple[bool, tuple[MovedBytes, ...]]:
        """Load ``count`` times; return whether hosts loaded what others had written, and what each moved meanwhile.

        Ranks of several hosts load so wherever they can: what a host has not read it has not cached. The second is
        asked for only where some host does not count what its cache holds; rank 0 knows it.
        """
        order = [kept[number % len(kept)] for number in range(count)]
        wants_another = self.cache.wants_proof or self.group.spans_hosts
        swapped = self._of_another_host() if wants_another and len(kept) == count else None
        names = self.do.names_of_loads([swapped]) if swapped else None
        # What was read once may be in the cache; so where files come again, there is a drop before each load. So it is
        # where a file of this host is below the target: the kernel reads ahead there, beyond the end of what is loaded.
        has_chains = any(len(self.do.files_of_load(each)) > 1 for each in kept)
        reads_ahead = self.group.any_of(bool(self.cache.storage and self.cache.storage.files))
        again = has_chains or len(kept) < count or reads_ahead
        reader = self.loader(swapped) if self.loader and swapped else engine
        for number, checkpoint in enumerate(order, start=1):
            if number == 1:
                self.drop([self.do.files(each, names) for each in kept])
            elif again:
                self.drop(self.do.files_of_load(checkpoint, names))
            self.take_in(self.do.load(reader, self.cache, number, checkpoint, names=names))
        reader.release()
        # What passes caches between two reads of the same bytes is known where every load reads as much.
        if has_chains:
            return False, ()
        if not self.knows_bytes or not self.cache.wants_proof:
            return swapped is not None, ()
        moved = self.cache.moved(self.layout.rank(self.group.rank).bytes, minimum_moved(kept, order))
        return swapped is not None, tuple({each.host: each for each in self.group.gather(moved)}.values())

    def _of_another_host(self) -> RankLayout | None:
        """Return the shard of another host that this rank loads; None where not every rank can load one.

        Containers of one kernel may read through one client, whatever they are called: they are one host here.
        """
        hosts: list[str] = self.group.share(self.group.gather(boot_id()))
        reading = shifted(self.layout, hosts)
        fits = self.lends_memory or len(set(self.layout.rank_bytes)) == 1
        if reading.not_run or not fits or self.loader is None:
            return None
        shards = [pieces[0].shard for pieces in reading.pieces]
        if any(hosts[shard.rank] == host for shard, host in zip(shards, hosts, strict=True)):
            return None
        return shards[self.group.rank]
