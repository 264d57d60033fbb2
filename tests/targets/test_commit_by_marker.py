"""A file system that refuses to rename directories: its detection, and the commit by a marker file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pytest_ckpt.facts.targets import CheckpointRef
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.targets.owner import OWNER
from pytest_ckpt.targets.posix.names import MARKER, OPENER, OPENER_BY_MARKER, RENAME_REFUSED
from pytest_ckpt.targets.posix.run_directory import refuses_to_rename
from pytest_ckpt.targets.posix.store import PosixStoreByMarker
from pytest_ckpt.targets.posix.target import PosixTarget

REF = CheckpointRef(subject="m", number=1)


def rename_answers(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(path: Path, _: Path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "rename", refuse)


def test_a_file_system_that_renames_a_directory_commits_by_rename(tmp_path: Path) -> None:
    assert not refuses_to_rename(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert PosixTarget(str(tmp_path)).create_area("r1").opener == OPENER


@pytest.mark.parametrize("number", sorted(RENAME_REFUSED), ids=errno.errorcode.get)
def test_a_refusal_is_found_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    rename_answers(monkeypatch, number)
    area = PosixTarget(str(tmp_path)).create_area("r1")
    assert area.opener == OPENER_BY_MARKER
    assert [entry.name for entry in Path(area.location).iterdir()] == [OWNER]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.ESTALE], ids=errno.errorcode.get)
def test_another_error_is_no_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    rename_answers(monkeypatch, number)
    assert not refuses_to_rename(tmp_path)


def committed(directory: Path) -> PosixStoreByMarker:
    """Save and commit a checkpoint by a marker file; return the store."""
    store, clock = PosixStoreByMarker(directory), Clock(activity=Activity())
    store.prepare("m")
    sink = store.begin(REF, clock).create("a", None)
    sink.write(b"bytes")
    sink.finish()
    assert not store.is_committed(REF)
    assert list(store.committed("m")) == []
    proof = store.commit(REF, (), clock)
    assert (proof.method, proof.directories_attempted, proof.directories_returned) == ("marker", 2, 2)
    return store


def test_the_marker_commits_and_is_no_file_of_the_checkpoint(tmp_path: Path) -> None:
    store = committed(tmp_path)
    assert store.is_committed(REF)
    assert list(store.committed("m")) == [1]
    entries = store.open(REF, Clock(activity=Activity())).entries()
    assert [(entry.name, entry.bytes) for entry in entries] == [("a", 5)]
    assert store.sees(REF, entries)


def test_the_marker_is_durable_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, fsync = [], os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    committed(tmp_path)
    assert synced == ["a", MARKER, "checkpoint-0001", "m"]


@pytest.mark.parametrize("cut", [0, 1, -1])
def test_a_marker_that_is_cut_short_commits_nothing(tmp_path: Path, cut: int) -> None:
    store = committed(tmp_path)
    marker = tmp_path / "m" / "checkpoint-0001" / MARKER
    marker.write_bytes(marker.read_bytes()[:cut])
    assert not store.is_committed(REF)
    assert not store.sees(REF, ())
    with pytest.raises(FileNotFoundError):
        store.open(REF, Clock(activity=Activity()))


def test_a_checkpoint_that_is_deleted_loses_its_marker_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, removed, unlink = committed(tmp_path), [], os.unlink

    def note(name: str, *, dir_fd: int) -> None:
        removed.append(name)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", note)
    store.delete(REF, ["a"])
    store.finish_delete(REF)
    assert removed == [MARKER, "a"]
    store.clear("m")
    assert list(tmp_path.iterdir()) == []
