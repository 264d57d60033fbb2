"""The engine replay with one rank: it saves a copy of the state while the job continues."""

from __future__ import annotations

import time

from pytest_ckpt.ranks.content import Content
from pytest_ckpt.ranks.engines.replay import make
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.ranks.training import change
from pytest_ckpt.sizing.models import layout
from tests.support.one_rank import SingleRankGroup
from tests.support.posix_files import clock_of, committed_in, draft_in
from tests.support.synthetic_job_patterns import PAUSED, TWO_RANKS

SHARD = layout("llama3-8b", mode="open", processes=1, scale=1e-5).rank(0)


class Group(SingleRankGroup):
    """A group of one rank. ``duplicate`` returns the group itself."""

    def duplicate(self, activity):
        del activity
        return self


def engine(*, stages=False, pattern=TWO_RANKS, pauses=False):
    options = EngineOptions(stages=stages, pattern=pattern, pauses=pauses)
    return make(shard=SHARD, content=Content(7), group=Group(), activity=Activity(), options=options)


def saved(made, directory, *, staged):
    """Save checkpoint 1 with the engine ``made``, after the job has changed its state.

    If ``staged`` is true, the engine copies the state before the change.
    """
    made.fill(1)
    if staged:
        assert made.stage() == sum(map(len, made.state()))
    for data in made.state():
        change(data)
    draft = draft_in(directory)
    made.save(draft, clock_of())
    draft.seal()
    made.release()


def faults(made, directory):
    made.load_steps()
    made.load(committed_in(directory), 0, clock_of())
    return made.verify(1).fault_count


def test_changes_after_the_copy_are_not_saved(tmp_path):
    saved(engine(stages=True), tmp_path, staged=True)
    assert faults(engine(stages=False), tmp_path) == 0


def test_without_a_copy_what_the_job_changes_is_found(tmp_path):
    saved(engine(stages=True), tmp_path, staged=False)
    assert faults(engine(stages=False), tmp_path) > 0


def test_a_copy_is_written_once_and_the_next_save_writes_the_state(tmp_path):
    made = engine(stages=True)
    made.fill(1)
    made.stage()
    for number in (1, 2):
        directory = tmp_path / str(number)
        directory.mkdir()
        made.fill(number)
        draft = draft_in(directory)
        made.save(draft, clock_of())
        draft.seal()
    # The second save had no copy, so it contains the latest state.
    made.load(committed_in(tmp_path / "2"), 0, clock_of())
    assert made.verify(2).fault_count == 0


def test_pauses_are_made_where_they_are_requested_and_stand_apart_in_the_phases(tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    for pauses, wanted in ((False, []), (True, [0.02] * 3)):
        made, clock = engine(pattern=PAUSED, pauses=pauses), clock_of()
        directory = tmp_path / str(pauses)
        directory.mkdir()
        made.fill(1)
        draft = draft_in(directory)
        made.save(draft, clock)
        draft.seal()
        made.release()
        assert slept == wanted
        assert ("pause" in clock.phases) == pauses
        assert ("pauses" in made.facts()) == pauses
        assert faults(made, directory) == 0
