"""Waits of a rank until its host sees a name that another host has created.

The waits are outside of timed sections, limited in time, and recorded.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from pytest_ckpt.facts.across_hosts import DelayedHost, HostWait, HostWaits, added_up
from pytest_ckpt.facts.events import HostsWaited
from pytest_ckpt.facts.proofs import Entry
from pytest_ckpt.facts.subject import Subject
from pytest_ckpt.facts.targets import CheckpointRef
from pytest_ckpt.ranks import across_hosts
from pytest_ckpt.ranks.across_hosts import AcrossHosts
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.process.host_cache import Files

SUBJECT = Subject(model="made", mode="test")
REF = CheckpointRef(subject=SUBJECT.slug, number=1)
BY_ANOTHER = {1: (Entry(name="theirs", bytes=10),)}


class TwoHosts:
    """A group of two ranks on two hosts. ``other`` is the value that the other rank contributes."""

    size, spans_hosts, leads_host = 2, True, True

    def __init__(self, rank: int, other: Any = None) -> None:
        self.rank, self.host, self.other = rank, f"h{rank + 1}", other

    def wait(self) -> None: ...

    def gather(self, value: Any) -> list[Any]:
        return [value, self.other if type(value) is type(self.other) or isinstance(self.other, DelayedHost) else None]

    def share(self, value: Any) -> Any:
        return value

    def any_of(self, value: bool) -> bool:
        return value


class StoreWithLateNames:
    """A store whose client sees a new name only after the name has been looked up ``looks`` times."""

    def __init__(self, looks: int) -> None:
        self.looks, self.announced, self.asked, self.prepared = looks, [], [], []

    def prepare(self, subject: str) -> None:
        self.prepared.append(subject)

    def is_prepared(self, subject: str) -> bool:
        return self.sees(CheckpointRef(subject=subject, number=0), ())

    def announce(self, ref: CheckpointRef) -> None:
        self.announced.append(ref)

    def shows_draft(self, ref: CheckpointRef) -> bool:
        return self.sees(ref, ())

    def sees(self, ref: CheckpointRef, entries: Any) -> bool:
        self.asked.append((ref, tuple(entries)))
        return len(self.asked) > self.looks


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return an empty list, to which `waiting` adds recorded waits. Replace the clock of the waits."""
    monkeypatch.setattr(across_hosts, "time", Clock())
    return []


def waiting(
    store: StoreWithLateNames,
    records: list[Any],
    rank: int = 0,
    other: Any = None,
    *,
    is_local: bool = False,
    spans: bool = True,
) -> AcrossHosts:
    group = TwoHosts(rank, other)
    group.spans_hosts = spans
    activity = Activity()
    activity.report_through(records.append)
    return AcrossHosts(group, activity, SUBJECT, store, lambda *_: nullcontext(), is_local=is_local)  # type: ignore[arg-type]


def test_every_rank_prepares_and_waits_for_what_another_host_made(records: list[Any]) -> None:
    store = StoreWithLateNames(2)
    waiting(store, records, rank=1).prepare()
    assert store.prepared == [SUBJECT.slug]
    assert len(store.asked) == 3
    waiting(StoreWithLateNames(0), records).prepare()
    assert records == [HostsWaited(subject=SUBJECT, awaited="directory")]


def test_rank_0_makes_the_directory_that_all_wait_for(records: list[Any]) -> None:
    store = StoreWithLateNames(0)
    waiting(store, records).begin(REF)
    assert store.announced == [REF]
    assert records == [HostsWaited(subject=SUBJECT, awaited="directory")]
    other = StoreWithLateNames(0)
    waiting(other, [], rank=1).begin(REF)
    assert other.announced == []


def test_a_host_that_had_to_wait_is_reported_with_its_time(records: list[Any]) -> None:
    late = DelayedHost(host="h2", waited_seconds=0.25)
    waiting(StoreWithLateNames(3), records, other=late).end(REF)
    (event,) = records
    assert event.awaited == "name"
    assert [(of.host, of.is_seen) for of in event.late] == [("h1", True), ("h2", True)]
    assert event.late[0].waited_seconds == pytest.approx(0.001 + 0.002 + 0.004)


def test_nobody_waits_for_longer_than_twice_what_stale_allows(records: list[Any]) -> None:
    waiting(StoreWithLateNames(10**9), records).end(REF)
    ((late,),) = (event.late for event in records)
    assert not late.is_seen
    assert 2.0 < late.waited_seconds < 2.1


def test_a_rank_waits_only_for_files_that_others_wrote(records: list[Any]) -> None:
    store = StoreWithLateNames(0)
    waiting(store, records, other=BY_ANOTHER).files(
        [Files(ref=REF, names=("ours", "theirs"))], {1: (Entry(name="ours", bytes=5),)}
    )
    assert store.asked == [(REF, BY_ANOTHER[1])]
    assert [event.awaited for event in records] == ["data"]


def test_a_rank_that_reads_its_own_files_waits_for_nothing(records: list[Any]) -> None:
    store = StoreWithLateNames(0)
    waiting(store, records, other=BY_ANOTHER).files(
        [Files(ref=REF, names=("ours",))], {1: (Entry(name="ours", bytes=5),)}
    )
    assert (store.asked, records) == ([], [])


@pytest.mark.parametrize("alone", [{"is_local": True}, {"spans": False}])
def test_on_one_host_and_in_its_local_tier_nothing_is_made_or_looked_for(
    records: list[Any], alone: dict[str, bool]
) -> None:
    store = StoreWithLateNames(0)
    of = waiting(store, records, other=BY_ANOTHER, **alone)
    of.prepare()
    of.begin(REF)
    of.end(REF)
    of.files([Files(ref=REF, names=("theirs",))], {})
    assert (store.announced, store.asked, records) == ([], [], [])


def test_waits_are_added_up_by_host_and_by_what_was_awaited() -> None:
    one, two = DelayedHost(host="h2", waited_seconds=0.5), DelayedHost(host="h2", waited_seconds=2.0, is_seen=False)
    found = added_up([("directory", ()), ("directory", (one,)), ("name", (one,)), ("directory", (two,))])
    assert found == HostWaits(
        looks=4,
        late=(
            HostWait(host="h2", awaited="directory", times=2, waited_seconds=2.5, longest_seconds=2.0, unseen=1),
            HostWait(host="h2", awaited="name", times=1, waited_seconds=0.5, longest_seconds=0.5),
        ),
    )
    assert added_up([]) is None
