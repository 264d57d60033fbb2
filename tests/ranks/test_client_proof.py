"""The ranks' facts about fsync and clocks are combined: for each host, the worst value of its ranks counts."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.facts.proofs import ClockSpan, FsyncCounts, FsyncEffect, Interposed
from pytest_ckpt.ranks import client_proof
from pytest_ckpt.ranks.client_proof import ClientProof, fold

HOSTS = ("n1", "n2", "n3")
MOMENTS = ("before the saves", "after the saves")
LIBRARY = "/home/me/no_fsync.so"
PROFILER = "/opt/darshan/lib/libdarshan.so"


def effect(rank=0, host="n1", moment=MOMENTS[0], left=0, **changes):
    return FsyncEffect(rank=rank, host=host, moment=moment, dirty_bytes=4096, left_bytes=left, **changes)


def span(rank=0, host="n1", clock=1.0, uptime=1.0):
    return ClockSpan(rank=rank, host=host, of="save 1", clock_seconds=clock, uptime_seconds=uptime)


def facts_of_rank(*effects, clock=None, seconds=1.0, interposed=(), disclosed=()):
    return SimpleNamespace(
        fsyncs=effects, clock=clock or span(), seconds=seconds, interposed=interposed, disclosed=disclosed
    )


@st.composite
def effects(draw):
    counted = draw(st.booleans())
    return effect(
        rank=draw(st.integers(0, 99)),
        host=draw(st.sampled_from(HOSTS)),
        moment=draw(st.sampled_from(MOMENTS)),
        left=draw(st.integers(0, 4096)) if counted else 0,
        unobservable="" if counted else "no dirty page",
        unsafe_option=draw(st.sampled_from(["", "volatile"])),
    )


@st.composite
def spans(draw):
    return span(draw(st.integers(0, 99)), draw(st.sampled_from(HOSTS)), draw(st.floats(0, 99)), draw(st.floats(0, 99)))


@given(st.lists(st.lists(effects(), max_size=4), max_size=6))
def test_the_fsync_that_left_most_bytes_is_kept_for_each_host_and_moment(ranks):
    found = fold([facts_of_rank(*one) for one in ranks]).fsyncs
    every = [one for rank in ranks for one in rank]
    assert set(found) <= set(every)
    assert sorted((e.host, e.moment) for e in found) == sorted({(e.host, e.moment) for e in every})
    for kept in found:
        alike = [e for e in every if (e.host, e.moment) == (kept.host, kept.moment)]
        assert kept.left_bytes == max(e.left_bytes for e in alike)
        assert kept.is_missing == any(e.is_missing for e in alike)
        assert kept.is_seen == all(e.is_seen for e in alike)


@given(st.lists(spans(), max_size=9))
def test_the_clock_that_differs_most_is_kept_for_each_host(clocks):
    found = fold([facts_of_rank(clock=clock) for clock in clocks]).clocks
    assert set(found) <= set(clocks)
    assert sorted(s.host for s in found) == sorted({s.host for s in clocks})
    for kept in found:
        assert kept.difference_seconds == max(s.difference_seconds for s in clocks if s.host == kept.host)


@given(st.lists(st.lists(st.sampled_from(["a", "b", "c"]), max_size=3), max_size=6))
def test_each_preloaded_library_is_named_once_for_each_host(ranks):
    calls = [[Interposed(host="n1", by=name, calls=("fsync",)) for name in names] for names in ranks]
    found = fold([facts_of_rank(interposed=of, disclosed=names) for of, names in zip(calls, ranks, strict=True)])
    once = list(dict.fromkeys(name for names in ranks for name in names))
    assert [i.by for i in found.interposed] == once
    assert list(found.disclosed) == once


def test_the_same_library_on_two_hosts_is_named_for_both():
    found = fold(
        [facts_of_rank(interposed=(Interposed(host=host, by=LIBRARY, calls=("fsync",)),)) for host in ("n1", "n2")]
    )
    assert [i.host for i in found.interposed] == ["n1", "n2"]


class Store:
    """A fake target. Each query of the fsync counts returns the next of the given values."""

    def __init__(self, *counts):
        self.counts = list(counts)

    def fsync_counts(self, _subject):
        return self.counts.pop(0)


def proof_of(store):
    """Return the proof (facts about fsync and clocks) of a group that has one rank and uses the target ``store``."""
    return ClientProof(
        group=SimpleNamespace(rank=0, host="n1", gather=lambda facts: [facts]),
        activity=SimpleNamespace(in_phase=lambda *_: contextlib.nullcontext()),
        store=store,
        subject="subject",
        clock=SimpleNamespace(worst=span, seconds=lambda: 1.0),
    )


SEEN = FsyncCounts(dirty_bytes=4096)
LEFT = FsyncCounts(dirty_bytes=4096, left_bytes=4096)
UNSEEN = FsyncCounts(unobservable="no dirty page")


@pytest.mark.parametrize(("counts", "kept"), [
    ((SEEN,), SEEN),
    ((UNSEEN, SEEN), SEEN),  # the kernel had already written the pages back
    ((LEFT, LEFT, SEEN), SEEN),  # another process had written pages, or the count was too early
    ((LEFT,) * 5, LEFT),
    ((UNSEEN,) * 5, UNSEEN),
])  # fmt: skip
def test_an_fsync_whose_effect_was_not_counted_is_tried_again(counts, kept):
    proof = proof_of(Store(*counts))
    proof.try_fsync("before the saves")
    (found,) = proof.joined().fsyncs
    assert (found.left_bytes, found.unobservable) == (kept.left_bytes, kept.unobservable)
    assert proof.store.counts == []


def test_a_target_that_needs_no_fsync_has_no_file_of_it():
    proof = proof_of(object())
    proof.try_fsync("before the saves")
    assert proof.joined().fsyncs == ()


@pytest.mark.parametrize(("counts", "by"), [(SEEN, []), (LEFT, [PROFILER])])
def test_a_profiler_is_only_disclosed_as_long_as_fsync_has_its_effect(monkeypatch, counts, by):
    monkeypatch.setattr(client_proof, "interposed_calls", lambda: {PROFILER: ("fsync", "open")})
    proof = proof_of(Store(*[counts] * 5))
    proof.try_fsync("before the saves")
    assert [i.by for i in proof.joined().interposed] == by


def test_the_clock_with_the_most_unusual_span_is_kept_for_each_host():
    seconds = {("n1", 0): 10.0, ("n1", 1): 10.1, ("n2", 2): 1.0, ("n2", 3): 10.0}
    ranks = [facts_of_rank(clock=span(rank, host), seconds=took) for (host, rank), took in seconds.items()]
    assert [(s.host, s.rank, s.seconds) for s in fold(ranks).spans] == [("n1", 1, 10.1), ("n2", 2, 1.0)]
