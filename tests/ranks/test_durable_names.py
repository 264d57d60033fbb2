"""One rank of each host that wrote files fsyncs the directory of a checkpoint.

This fsync happens after the last file of the host is written, and before the commit.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.facts.subject import Subject
from pytest_ckpt.facts.targets import CheckpointRef
from pytest_ckpt.ranks.content import Content
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.operations import summed
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.strategies.protocol import save_and_commit
from pytest_ckpt.targets.posix.store import PosixStore
from tests.support.forked_ranks import HOSTS, fork_ranks, relay_until, results_of
from tests.support.self_committing_engine import FILES, CommitOmittingEngine

SUBJECT = Subject(model="made", mode="test")
REF = CheckpointRef(subject=SUBJECT.slug, number=1)
EVERY_RANK = range(len(HOSTS))


def save_in(directory: Path, group: Any, writers: Sequence[int], fails: int | None = None) -> dict[str, int]:
    """Save as one rank of ``group``; return {name of a fact: a count, or whether the fact is true}.

    Each fsync and the commit are recorded in a file that all ranks share. ``writers`` are the ranks that save.
    ``fails`` is the rank whose fsync of a directory fails.
    """
    noted, fsync, rename = directory / "noted", os.fsync, Path.rename

    def note(what: str) -> None:
        with noted.open("a") as out:
            out.write(f"{what} {group.rank}\n")

    def noting_fsync(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        is_file = name.endswith(".bin")
        if fails == group.rank and not is_file:
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)
        note("file" if is_file else "parent" if name == SUBJECT.slug else "directory")

    def noting_rename(path: Path, target: Path) -> Path:
        note("rename")
        return rename(path, target)

    os.fsync, Path.rename = noting_fsync, noting_rename  # type: ignore[assignment, method-assign]
    store = PosixStore(directory)
    store.prepare(SUBJECT.slug)
    engine, clock = CommitOmittingEngine(rank=group.rank, content=Content(3), group=group), Clock(activity=Activity())
    engine.fill(1)
    is_saving_rank = group.rank in writers
    saved = save_and_commit(engine, store, group, REF, clock, start=0.0, is_saving_rank=is_saving_rank)
    durability = summed([(saved.durability, saved.commit)], saves=1, commits=1)
    return {
        "files": durability.files_synced,
        "attempted": durability.directories,
        "returned": durability.directories_synced,
        "has_proof": saved.durability is not None,
        "is_timed": saved.timing.names_seconds > 0,
    }


def noted_in(directory: Path) -> list[tuple[str, int]]:
    """Return (call, rank) for each recorded call, in order."""
    words = (line.split() for line in (directory / "noted").read_text().splitlines())
    return [(what, int(rank)) for what, rank in words]


def test_one_rank_of_each_host_fsyncs_the_directory_after_the_last_file_of_its_host(tmp_path: Path) -> None:
    found = results_of(lambda group: save_in(tmp_path, group, EVERY_RANK))
    calls = noted_in(tmp_path)
    assert sorted(rank for call, rank in calls if call == "directory") == [0, 2], "the first rank of each host"
    for leader in (0, 2):
        behind = calls[calls.index(("directory", leader)) :]
        assert not [rank for call, rank in behind if call == "file" and HOSTS[rank] == HOSTS[leader]]
    assert calls[-2:] == [("rename", 0), ("parent", 0)]
    assert len(calls) == len(HOSTS) * FILES + 2 + 2
    assert [of_rank["files"] for of_rank in found] == [FILES] * len(HOSTS)
    assert [of_rank["returned"] for of_rank in found] == [2, 0, 1], "rank 0 fsyncs the parent, too"
    assert [of_rank["attempted"] for of_rank in found] == [2, 0, 1]
    assert [of_rank["is_timed"] for of_rank in found] == [True, False, True]


@pytest.mark.parametrize(("writers", "leaders"), [((1,), [0]), ((2,), [2]), ((0, 2), [0, 2])])
def test_a_host_that_wrote_nothing_fsyncs_no_directory(tmp_path: Path, writers: Sequence[int], leaders: Any) -> None:
    found = results_of(lambda group: save_in(tmp_path, group, writers))
    calls = noted_in(tmp_path)
    assert sorted(rank for call, rank in calls if call == "directory") == leaders
    assert [of_rank["has_proof"] for of_rank in found] == [rank in (*writers, *leaders) for rank in EVERY_RANK]
    assert sum(of_rank["returned"] for of_rank in found) == len(leaders) + 1


@pytest.mark.parametrize("fails", [0, 2])
def test_a_directory_that_one_host_cannot_fsync_is_not_committed(tmp_path: Path, fails: int) -> None:
    children = fork_ranks(lambda group: save_in(tmp_path, group, EVERY_RANK, fails))
    others = [child for rank, child in enumerate(children) if rank != fails]
    try:
        relay_until(children, lambda: bool(children[fails].error) and all(child.is_waiting() for child in others))
        assert children[fails].error == "OSError: [Errno 5] Input/output error"
        assert "rename" not in {call for call, _ in noted_in(tmp_path)}
        assert not PosixStore(tmp_path).is_committed(REF)
    finally:
        for child in children:
            child.kill()
