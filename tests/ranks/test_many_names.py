"""One rank's calls on many names: detection of wrong names, waits for names of other hosts, and phases of errors."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.facts.many_names import Metadata
from pytest_ckpt.facts.subject import OperationRef, Subject
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.scenarios import many_names
from pytest_ckpt.ranks.scenarios.many_names import ManyNamesScenario
from pytest_ckpt.sizing.many_names import REMOVALS, STEPS, ManyNames
from pytest_ckpt.targets.posix.store import PosixNames
from tests.support.one_rank import SingleRankGroup

SUBJECT = Subject(model="made", mode="test")
NAMES = ManyNames(files=40, directories=4, checkpoint_files=5)
FILE = "group-0000/directory-0000001/file-00000013"


class AmongHosts(SingleRankGroup):
    """A group of one rank that claims to span several hosts, so that the rank waits for names."""

    spans_hosts = True


class RecordedOperations:
    """Fake operations of a subject; they record the steps and results that rank 0 reports."""

    subject = SUBJECT

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.found: list[Metadata] = []

    def one(self, scenario: str, action: Any, index: int) -> OperationRef:
        return OperationRef(subject=SUBJECT, scenario=scenario, action=action, index=index)

    def stage(self, spent_on: str, at: OperationRef | None) -> Any:
        return nullcontext()

    def step(self, kind: str, index: int, seconds: float) -> None:
        self.steps.append(index)

    def send(self, event: Any) -> None:
        self.found.append(event.found)


class Cache:
    names_dropped = False

    def forget_names(self) -> None: ...


class Forgetful(PosixNames):
    """A directory that hides one file in the first ``hidden_looks`` look-ups.

    ``refused`` is the name of a call that fails.
    """

    def __init__(self, directory: Path, *, hidden_looks: int = 0, refused: str = "") -> None:
        super().__init__(directory)
        self.looks, self.refused = hidden_looks, refused

    def has_name(self, path: str) -> bool:
        return super().has_name(path) and not self._hides(path)

    def names(self, path: str) -> Any:
        return [name for name in super().names(path) if not self._hides(f"{path}/{name}")]

    def remove_directory(self, path: str = "") -> None:
        if self.refused == "rmdir":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        super().remove_directory(path)

    def _hides(self, path: str) -> bool:
        if path != FILE or self.looks == 0:
            return False
        self.looks -= 1
        return True


def measured(tree: PosixNames, group: SingleRankGroup | None = None) -> tuple[Metadata, RecordedOperations]:
    told = RecordedOperations()
    ManyNamesScenario(
        group or SingleRankGroup(), Activity(), told, Cache(), tree=tree, names=NAMES,  # type: ignore[arg-type]
    ).measure()  # fmt: skip
    (found,) = told.found
    return found, told


def test_every_step_is_performed_and_nothing_is_left(tmp_path: Path) -> None:
    found, told = measured(PosixNames(tmp_path / "top"))
    assert [(step.call, step.count) for step in found.steps] == [
        ("mkdir", 4), ("create", 40), ("stat", 40), ("list", 40), ("unlink", 40), ("rmdir", 4),
    ]  # fmt: skip
    assert told.steps == list(range(1, STEPS + REMOVALS + 1))
    assert (found.faults, found.late, found.failure, found.by_other_hosts) == ((), 0, None, False)
    assert found.names_dropped is False
    assert len(found.removal_seconds) == REMOVALS
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("looks", "kinds"), [(1, ["not found"]), (2, ["not found", "not listed"])])
def test_on_one_host_a_name_that_is_missing_once_is_a_fault(tmp_path: Path, looks: int, kinds: list[str]) -> None:
    found, _ = measured(Forgetful(tmp_path / "top", hidden_looks=looks))
    assert [(fault.kind, fault.name, fault.count) for fault in found.faults] == [(kind, FILE, 1) for kind in kinds]
    assert (found.fault_count, found.late) == (len(kinds), 0)


def test_a_name_that_another_host_sees_late_is_counted_and_is_no_fault(tmp_path: Path) -> None:
    found, _ = measured(Forgetful(tmp_path / "top", hidden_looks=3), AmongHosts())
    assert (found.faults, found.late) == ((), 1)


def test_a_name_that_another_host_does_not_see_in_time_is_a_fault(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(many_names, "VISIBLE_WITHIN_SECONDS", 0.0)
    found, _ = measured(Forgetful(tmp_path / "top", hidden_looks=2), AmongHosts())
    assert [fault.kind for fault in found.faults] == ["not found", "not listed"]


def test_an_error_ends_the_steps_and_is_the_result_s(tmp_path: Path) -> None:
    found, told = measured(Forgetful(tmp_path / "top", refused="rmdir"))
    assert [step.call for step in found.steps] == ["mkdir", "create", "stat", "list", "unlink"]
    failure = found.failure
    assert failure is not None
    assert (failure.errno, failure.phase, failure.file) == ("EBUSY", "rmdir", "group-0000/directory-0000000")
    assert (failure.rank, failure.kind) == (0, "error")
    assert (found.removal_seconds, told.steps) == ((), [1, 2, 3, 4, 5])
