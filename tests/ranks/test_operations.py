"""Saves and loads of all ranks: calls that make data durable are counted.

A checkpoint number that is saved again has a new reference.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from pytest_ckpt.facts.subject import Subject
from pytest_ckpt.ranks.content import Content
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.operations import Operations
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.strategies import protocol
from pytest_ckpt.ranks.strategies.sync import SyncStrategy
from pytest_ckpt.targets.posix.checkpoint import DirectorySyncs
from pytest_ckpt.targets.posix.store import PosixStore
from tests.support.one_rank import SingleRankGroup
from tests.support.self_committing_engine import FILES, CommitOmittingEngine, SelfCommittingEngine
from tests.support.synthetic_measurement import measurement, outcome

SUBJECT = Subject(model="made", mode="test")


class Shard:
    bytes, files = 0, ()


class StoreWithLostCommit(PosixStore):
    """A store whose commit returns without an error but does not take effect."""

    def is_committed(self, ref):
        return False


class StoreWithLeftover(SelfCommittingEngine):
    """An engine that begins one more file in each save and aborts this file."""

    def save(self, draft, clock):
        draft.create("begun", None).abort()
        return super().save(draft, clock)


@pytest.fixture
def activity(capfd):
    return Activity()


def saved(tmp_path, activity, kind=PosixStore, engine=SelfCommittingEngine):
    store = kind(tmp_path)
    store.prepare(SUBJECT.slug)
    do = Operations(SingleRankGroup(), activity, SUBJECT, Shard(), store)
    made = engine(rank=0, content=Content(3), group=SingleRankGroup())
    strategy = SyncStrategy(engine=made, store=store, group=SingleRankGroup(), activity=activity)
    operation = do.save(strategy, 1)
    return do, operation, strategy, store


ENGINES = pytest.mark.parametrize("engine", [SelfCommittingEngine, CommitOmittingEngine])


@ENGINES
def test_every_durable_call_is_counted_before_it_is_made_and_when_it_has_returned(tmp_path, activity, engine):
    durability = saved(tmp_path, activity, engine=engine)[0].durability()
    assert (durability.files, durability.files_synced) == (FILES, FILES)
    assert (durability.directories, durability.directories_synced) == (2, 2)
    assert (durability.saves, durability.commits) == (1, 1)
    assert outcome("DURABLE-CALLS", measurement(durability=durability)) == "met"


@pytest.fixture
def fsync_of_directories(monkeypatch):
    """Return a function that replaces os.fsync by another function, but only for directories.

    The function returns a list. Each later call of fsync on a directory adds the name of the directory to this list.
    """
    fsync, called = os.fsync, []

    def replace_by(what):
        def call(descriptor):
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                return fsync(descriptor)
            called.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
            return what(descriptor)

        monkeypatch.setattr(os, "fsync", call)
        return called

    return replace_by


@ENGINES
def test_the_directories_that_are_counted_are_those_that_fsync_was_called_for(
    tmp_path, activity, fsync_of_directories, engine
):
    called = fsync_of_directories(os.fsync)
    do, _, strategy, _ = saved(tmp_path, activity, engine=engine)
    do.save(strategy, 2)
    assert len(called) == 4, "two a save: the checkpoint's directory, and the directory that its final name is in"
    assert called[1] == called[3] == SUBJECT.slug
    durability = do.durability()
    assert (durability.directories, durability.directories_synced) == (4, 4)
    assert outcome("DURABLE-CALLS", measurement(durability=durability)) == "met"


@ENGINES
@pytest.mark.parametrize("which", [0, 1], ids=["the checkpoint's", "the one above"])
def test_an_fsync_of_a_directory_that_raises_is_no_save(tmp_path, activity, fsync_of_directories, which, engine):
    called = fsync_of_directories(lambda _: refuse() if len(called) > which else None)

    def refuse():
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        saved(tmp_path, activity, engine=engine)
    assert len(called) == which + 1


@ENGINES
@pytest.mark.parametrize("left_out", ["the checkpoint's", "the one above"])
def test_an_fsync_of_a_directory_that_is_left_out_fails(tmp_path, activity, monkeypatch, left_out, engine):
    sync = DirectorySyncs.sync

    def sometimes(self, directory):
        if (directory.name == SUBJECT.slug) == (left_out == "the checkpoint's"):
            sync(self, directory)

    monkeypatch.setattr(DirectorySyncs, "sync", sometimes)
    durability = saved(tmp_path, activity, engine=engine)[0].durability()
    assert (durability.directories, durability.directories_synced) == (2, 1)
    assert outcome("DURABLE-CALLS", measurement(durability=durability)) == "failed"


def test_a_strategy_that_leaves_names_pending_fails(tmp_path, activity, monkeypatch):
    monkeypatch.setattr(protocol, "await_durable_names", lambda saved, *_: saved)
    durability = saved(tmp_path, activity, engine=CommitOmittingEngine)[0].durability()
    assert (durability.directories, durability.directories_synced) == (2, 1)
    assert outcome("DURABLE-CALLS", measurement(durability=durability)) == "failed"


def test_the_report_is_told_how_long_the_fsync_of_the_directory_took(tmp_path, activity):
    do = saved(tmp_path, activity, engine=CommitOmittingEngine)[0]
    facts = do.added_facts()
    assert list(facts) == ["directory"]
    assert facts["directory"].startswith("fsync by one rank of each host")


def test_the_fsync_of_an_engine_that_commits_itself_is_not_one_of_ours(tmp_path, activity):
    assert saved(tmp_path, activity)[0].added_facts() == {}


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        (StoreWithLostCommit, SelfCommittingEngine),
        (PosixStore, StoreWithLeftover),
    ],
)
def test_a_durable_call_that_never_returned_fails(tmp_path, activity, kind, engine):
    durability = saved(tmp_path, activity, kind, engine)[0].durability()
    assert outcome("DURABLE-CALLS", measurement(durability=durability)) == "failed"


def test_a_save_that_is_none_of_the_subject_s_own_is_not_counted(tmp_path, activity):
    do, _, strategy, _ = saved(tmp_path, activity)
    do.save(strategy, 2, role="data")
    assert do.durability().saves == 1


def test_a_number_that_is_saved_again_has_another_reference_and_its_own_files(tmp_path, activity):
    do, _, strategy, store = saved(tmp_path, activity)
    first = do.files(1)
    do.delete(1)
    assert list(store.committed(SUBJECT.slug)) == []
    do.save(strategy, 1, role="endurance")
    again = do.files(1)
    assert (first.ref.attempt, again.ref.attempt, again.ref.role) == (0, 1, "endurance")
    assert not set(first.names) & set(again.names)
    assert {e.name for e in store.open(again.ref, Clock(activity=activity)).entries()} == set(again.names)


def test_a_save_that_blocks_separates_its_points(tmp_path, activity):
    _, operation, _, _ = saved(tmp_path, activity)
    assert operation.stored_seconds <= operation.seconds
    assert operation.returned_seconds == operation.staged_seconds >= operation.stored_seconds
