"""What all ranks do together with a store: what is counted of durable calls, and under which reference a save goes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_ckpt.facts.subject import Subject
from pytest_ckpt.ranks.content.generator import Content
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.operations import Operations
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.strategies.sync import SyncStrategy
from pytest_ckpt.targets.posix.store import PosixStore
from tests.support.made_measurement import measurement, outcome
from tests.support.own_files_engine import FILES, OwnFilesEngine

SUBJECT = Subject(model="made", mode="test")


class Alone:
    """A group of one rank."""

    rank, size, host = 0, 1, "here"

    def wait(self): ...

    def start_together(self): ...

    def gather(self, value):
        return [value]


class Shard:
    bytes, files = 0, ()


class ForgetsItsOwnFolder(PosixStore):
    """Never calls fsync for the checkpoint's folder."""

    def begin(self, ref, phases):
        draft = super().begin(ref, phases)
        seal = draft.seal
        draft.seal = lambda: (seal()[0], replace(seal()[1], folders_returned=0))
        return draft


class ForgetsTheCommit(PosixStore):
    """Renames, and never calls fsync for the folder above."""

    def commit(self, ref, entries, phases):
        return replace(super().commit(ref, entries, phases), folders_returned=0)


class LosesTheCommit(PosixStore):
    """Says that it has committed, and has not."""

    def is_committed(self, ref):
        return False


class LeavesAFile(OwnFilesEngine):
    """Begins a file more than it finishes."""

    def save(self, draft, clock):
        draft.create("begun", None).abort()
        return super().save(draft, clock)


@pytest.fixture
def activity(capfd):
    return Activity()


def saved(tmp_path, activity, kind=PosixStore, engine=OwnFilesEngine):
    store = kind(tmp_path)
    store.prepare(SUBJECT.slug)
    do = Operations(Alone(), activity, SUBJECT, Shard(), store)
    made = engine(rank=0, content=Content(3), group=Alone())
    strategy = SyncStrategy(engine=made, store=store, group=Alone(), activity=activity)
    operation = do.save(strategy, 1)
    return do, operation, strategy, store


def test_every_durable_call_is_counted_before_it_is_made_and_when_it_has_returned(tmp_path, activity):
    durability = saved(tmp_path, activity)[0].durability()
    assert (durability.files, durability.files_synced) == (FILES, FILES)
    assert (durability.directories, durability.directories_synced) == (2, 2)
    assert (durability.saves, durability.commits) == (1, 1)
    assert outcome("DURABLE-CALLS", measurement(durability=durability)) == "met"


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        (ForgetsItsOwnFolder, OwnFilesEngine),
        (ForgetsTheCommit, OwnFilesEngine),
        (LosesTheCommit, OwnFilesEngine),
        (PosixStore, LeavesAFile),
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


def test_a_save_that_blocks_tells_its_points_apart(tmp_path, activity):
    _, operation, _, _ = saved(tmp_path, activity)
    assert operation.stored_seconds <= operation.committed_seconds == operation.seconds
    assert operation.returned_seconds == operation.staged_seconds >= operation.stored_seconds
