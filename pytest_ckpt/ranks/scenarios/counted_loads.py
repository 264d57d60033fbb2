"""The subject's own loads: cold, each from the storage and, if no other method can prove that, by another host."""

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

    ``loader`` makes a loader for another rank's shard; None if ranks cannot load other shards. ``drop`` empties the
    caches of the files that this rank is about to read; ``take_in`` receives every load. If ranks differ in size, a
    rank may load a larger shard than its own only if memory was planned for that: ``lends_memory``. ``knows_bytes``:
    files have the layout's sizes, so the bytes that passed a cache can be added up.
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
        """Load ``count`` times; return whether hosts loaded other hosts' files, and the bytes that each host moved.

        If possible, ranks of several hosts load files that another host has written, because a host does not cache data
        that it has not read. The moved bytes are required only if some host does not count its cached pages; they are
        known on rank 0.
        """
        order = [kept[number % len(kept)] for number in range(count)]
        wants_another = self.cache.wants_proof or self.group.spans_hosts
        swapped = self._of_another_host() if wants_another and len(kept) == count else None
        names = self.do.names_of_loads([swapped]) if swapped else None
        # Files that were read once may be in the cache. So if files are read repeatedly, caches are dropped before each
        # load. The same is done if a file of this host is below the target, because the kernel reads ahead there,
        # beyond the end of the loaded files.
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
        # The volume that passes caches between two reads of the same bytes is only known if all loads read the same
        # amount.
        if has_chains:
            return False, ()
        if not self.knows_bytes or not self.cache.wants_proof:
            return swapped is not None, ()
        moved = self.cache.moved(self.layout.rank(self.group.rank).bytes, minimum_moved(kept, order))
        return swapped is not None, tuple({each.host: each for each in self.group.gather(moved)}.values())

    def _of_another_host(self) -> RankLayout | None:
        """Return the shard of another host that this rank loads; None unless every rank can load one.

        Containers of one kernel may read through one client, whatever their names, so they count as one host here.
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
