"""If the target has no space, the engine stream names the file and does not commit the checkpoint."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from pytest_ckpt.facts.subject import Subject
from pytest_ckpt.ranks.operations import Operations
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.strategies.sync import SyncStrategy
from pytest_ckpt.targets.posix import checkpoint
from pytest_ckpt.targets.posix.names import checkpoint_name, partial_name
from pytest_ckpt.targets.posix.store import PosixStore
from tests.support.one_rank import SingleRankGroup
from tests.support.streaming import MIDDLE, ODD, failure_of, open_files, save_with, streaming, transfers


def no_space_left(number, real, *rest):
    if number > 3:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return real(*rest)


def test_a_target_that_fills_up_in_the_middle_is_named_with_phase_and_file(tmp_path, monkeypatch, capfd):
    """If one of several concurrent writes fails for lack of space, the failure names the phase and file of the write.

    The target does not reserve space in advance.
    """
    monkeypatch.setattr(checkpoint, "_allocate", lambda *_: None)
    descriptors, threads = open_files(), threading.active_count()
    with transfers(no_space_left):
        failure = failure_of(lambda activity: save_with(activity, tmp_path), capfd)
    assert (failure["phase"], failure["file"], failure["errno"]) == ("write", MIDDLE.name, "ENOSPC")
    assert failure["message"] == "No space left on device"
    assert [p.name for p in tmp_path.iterdir()] == [MIDDLE.name]
    assert open_files() == descriptors
    assert threading.active_count() == threads


def test_a_target_that_has_no_space_to_give_ahead_is_named_too(tmp_path, monkeypatch, capfd):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint, "_allocate", full)
    descriptors = open_files()
    failure = failure_of(lambda activity: save_with(activity, tmp_path), capfd)
    assert (failure["phase"], failure["file"], failure["errno"]) == ("open", MIDDLE.name, "ENOSPC")
    assert open_files() == descriptors


def test_a_save_without_space_commits_no_checkpoint(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(checkpoint, "_allocate", lambda *_: None)
    activity = Activity()
    store = PosixStore(tmp_path)
    store.prepare("odd-full")
    do = Operations(SingleRankGroup(), activity, Subject(model="odd", mode="full"), ODD, store)
    strategy = SyncStrategy(engine=streaming(ODD, depth=4), store=store, group=SingleRankGroup(), activity=activity)
    do.save(strategy, 1)
    with transfers(no_space_left), pytest.raises(OSError, match="No space left"):
        do.save(strategy, 2)
    assert {p.name for p in tmp_path.glob("odd-full/*")} == {checkpoint_name(1), partial_name(checkpoint_name(2))}
    assert do.durability().commits == 1
    capfd.readouterr()
