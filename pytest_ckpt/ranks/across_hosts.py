"""Waits until this host sees the files that other hosts have just created, and reports these waits.

For about a second, a storage client may cache that a name is missing or that a file has its old size. Only the
requirement STALE judges such delays. Therefore the waits end before a clock starts, and the times of saves, loads and
patterns do not include them. Hosts query the storage only for files that they are about to use.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pytest_ckpt.facts.across_hosts import VISIBLE_WITHIN_SECONDS, DelayedHost
from pytest_ckpt.facts.events import HostsWaited

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pytest_ckpt.facts.across_hosts import Awaited
    from pytest_ckpt.facts.proofs import Entry
    from pytest_ckpt.facts.subject import Subject
    from pytest_ckpt.facts.targets import CheckpointRef
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import Files
    from pytest_ckpt.targets.protocol import Store

    Stage = Callable[[str, None], AbstractContextManager[None]]

_SPENT_ON = "other hosts"
_SHORTEST_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.001, 0.02


class AcrossHosts:
    """Makes the ranks of several hosts wait for files and directories that other hosts created.

    If all ranks are on one host or the target is a local tier, the methods do not wait. All ranks call each method
    together. ``stage`` returns a context manager that adds the duration of the waits to the measurement.
    """

    def __init__(
        self, group: Group, activity: Activity, subject: Subject, store: Store, stage: Stage, *, is_local: bool = False
    ) -> None:
        self._group, self._activity, self._subject, self._store = group, activity, subject, store
        self._stage = stage
        # A per-host local tier needs no cross-host wait.
        self._waits = group.spans_hosts and not is_local

    def prepare(self) -> None:
        """On every rank, create the directory for all checkpoints of the subject.

        Then wait until every host sees the directory.
        """
        slug = self._subject.slug
        self._store.prepare(slug)
        self._group.wait()
        if self._waits:
            with self._stage(_SPENT_ON, None):
                self._await_visible(
                    "directory", lambda: self._store.is_prepared(slug), is_requested=self._group.leads_host
                )

    def begin(self, ref: CheckpointRef) -> None:
        """Create the directory of a checkpoint on rank 0, and wait until every host sees the directory.

        If all ranks are on one host or the target is a local tier, do nothing.
        """
        if self._waits:
            with self._stage(_SPENT_ON, None):
                if self._group.rank == 0:
                    with self._activity.in_phase("open"):
                        self._store.announce(ref)
                self._group.wait()
                self._await_visible(
                    "directory", lambda: self._store.shows_draft(ref), is_requested=self._group.leads_host
                )

    def end(self, ref: CheckpointRef) -> None:
        """Wait until every host sees that a checkpoint has been committed."""
        if self._waits:
            with self._stage(_SPENT_ON, None):
                self._group.wait()
                self._await_visible("name", lambda: self._store.sees(ref, ()), is_requested=self._group.leads_host)

    def files(self, files: Sequence[Files], own: Mapping[int, Sequence[Entry]]) -> None:
        """Wait until every rank sees the files of other ranks that the rank will read.

        ``files`` are the files that this rank will read. ``own`` is {checkpoint number: files that this rank wrote}.
        """
        if self._waits:
            with self._stage(_SPENT_ON, None):
                self._await_files(files, own)

    def _await_files(self, files: Sequence[Files], own: Mapping[int, Sequence[Entry]]) -> None:
        foreign = {of.ref: _without_own(of.names, own.get(of.ref.number, ())) for of in files}
        if not self._group.any_of(any(foreign.values())):
            return
        written: dict[tuple[int, str], Entry] = {}
        for of_rank in self._group.share(self._group.gather({n: tuple(of) for n, of in own.items()})):
            written |= {(number, entry.name): entry for number, entries in of_rank.items() for entry in entries}
        # A file without an entry was written by another process, and its size is not known.
        awaited = {
            ref: [written[ref.number, name] for name in names if (ref.number, name) in written]
            for ref, names in foreign.items()
        }
        self._await_visible(
            "data", lambda: all(self._store.sees(ref, of) for ref, of in awaited.items()), is_requested=True
        )

    def _await_visible(self, awaited: Awaited, sees: Callable[[], bool], *, is_requested: bool) -> None:
        """Wait until ``sees`` returns True, and report the hosts that had to wait.

        Only ranks with ``is_requested`` call ``sees``. They call it repeatedly, for at most `VISIBLE_WITHIN_SECONDS`.
        ``awaited`` is the kind of object in the report.
        """
        late = self._waited(sees) if is_requested else None
        gathered = self._group.gather(late)
        by_host: dict[str, DelayedHost] = {}
        for of in filter(None, gathered):
            known = by_host.get(of.host)
            if known is None or of.waited_seconds > known.waited_seconds:
                by_host[of.host] = of
        if self._group.rank == 0:
            self._activity.report(HostsWaited(subject=self._subject, awaited=awaited, late=tuple(by_host.values())))

    def _waited(self, sees: Callable[[], bool]) -> DelayedHost | None:
        start, poll = time.monotonic(), _SHORTEST_POLL_SECONDS
        with self._activity.in_phase("name of another host"):
            if sees():
                return None
            while True:
                time.sleep(poll)
                poll = min(2 * poll, _LONGEST_POLL_SECONDS)
                is_seen, waited = sees(), time.monotonic() - start
                if is_seen or waited > VISIBLE_WITHIN_SECONDS:
                    return DelayedHost(host=self._group.host, waited_seconds=waited, is_seen=is_seen)


def _without_own(names: Collection[str], own: Collection[Entry]) -> list[str]:
    mine = {entry.name for entry in own}
    return [name for name in names if name not in mine]
