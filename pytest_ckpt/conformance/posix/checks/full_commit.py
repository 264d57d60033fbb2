"""COMMIT-FULL: space ends in any phase of a commit; the checkpoint before stays, and later saves work (semantics 5).

FULL takes the space while shards are written. Here it ends later, where checkpoint software is least prepared: when
all data are durable and metadata, the marker or the pointer to the newest checkpoint are to be written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.not_run import NotRun
from pytest_ckpt.conformance.posix.checkpoints import Calls, Checkpoint, sync_folder, write_durably
from pytest_ckpt.conformance.posix.full_volume import (
    FULL,
    leave_room,
    note_missing,
    note_no_space,
    note_refusal,
    remove,
    small_folder,
    when_there_is_space,
)
from pytest_ckpt.conformance.reading import read_file
from pytest_ckpt.support.units import format_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ckpt.conformance.context import CheckContext, Findings

_POINTER, _NEXT_POINTER = "latest", "latest.tmp"


@dataclass(slots=True)
class _Commit:
    """One checkpoint on its way to being the newest, phase by phase; the last of its files stands for metadata.

    The pointer is replaced by rename, or overwritten ``in_place`` with a text of the same length.
    """

    folder: Path
    checkpoint: Checkpoint
    calls: Calls
    in_place: bool = False
    phases: dict[str, Callable[[], None]] = field(init=False)

    def __post_init__(self) -> None:
        *data, metadata = self.checkpoint.contents().items()
        partial, final = self.folder / self.checkpoint.partial, self.folder / self.checkpoint.name
        pointer, following = self.folder / _POINTER, self.folder / _NEXT_POINTER
        text = self.checkpoint.name.encode()

        def write(files: list[tuple[str, bytes]]) -> None:
            if not partial.exists():
                self.calls("mkdir", partial)
                partial.mkdir()
            for name, content in files:
                write_durably(partial / name, content, self.calls)
            sync_folder(partial, self.calls)

        def rename(old: Path, new: Path) -> None:
            self.calls("rename", new)
            old.replace(new)
            sync_folder(self.folder, self.calls)

        self.phases = {
            "data": lambda: write(data),
            "metadata": lambda: write([metadata]),
            "marker": lambda: rename(partial, final),
        }
        if self.in_place:
            self.phases["pointer in place"] = lambda: write_durably(pointer, text, self.calls, flags=os.O_CREAT)
        else:
            self.phases["pointer's text"] = lambda: write_durably(
                following, text, self.calls, flags=os.O_CREAT | os.O_TRUNC
            )
            self.phases["pointer"] = lambda: rename(following, pointer)

    def save(self) -> None:
        """Do all phases."""
        for do in self.phases.values():
            do()

    def undo(self) -> None:
        """Remove what is there of it, as the software does that was refused a save."""
        for name in (self.checkpoint.partial, self.checkpoint.name, _NEXT_POINTER):
            remove(self.folder / name, self.calls)


def each_phase(context: CheckContext, findings: Findings) -> None:
    """Take all space before each phase of a commit in turn, look at the checkpoint before, give it back, save again."""
    folder, free = small_folder(context)
    calls = Calls(context.tell)
    kept = _Commit(folder, Checkpoint(number=1, seed=context.seed, files=5), calls)
    kept.save()
    errors: set[str] = set()
    number, longest = 1, 0.0
    by_rename = (*kept.phases,)
    for _ in range(context.count(4)):
        for phase, in_place in (*((name, False) for name in by_rename), ("pointer in place", True)):
            number += 1
            commit = _Commit(folder, Checkpoint(number=number, seed=context.seed, files=5), calls, in_place)
            refusal = _without_space(commit, phase, free)
            if refusal and refusal.errno not in FULL:
                note_refusal(findings, refusal, calls, "no other error than that of a full volume or quota")
                return
            ended = f"{errno.errorcode[refusal.errno or 0]} in {calls.call}" if refusal else "no error"
            errors.add(ended)
            findings.trials += 1
            _look(findings, kept, commit, f"without space for the {phase} ({ended})", refused=refusal is not None)
            remove(folder / "ballast", calls)
            number += 1
            after = _Commit(folder, Checkpoint(number=number, seed=context.seed, files=5), calls)

            def again(refused: _Commit = commit, following: _Commit = after) -> None:
                refused.undo()
                following.save()

            seconds = when_there_is_space(again, after.undo, context.space_seconds)
            if seconds is None:
                note_no_space(findings, folder, calls, context.space_seconds)
                return
            longest = max(longest, seconds)
            _look(findings, None, after, "saved after space was given back")
            if findings.anomaly_count:
                return
            remove(folder / kept.checkpoint.name, calls)
            kept = after
    if errors == {"no error"}:
        raise NotRun(f"{folder.parent} never ran out of space, although it was filled before each phase of a commit")
    findings.facts["how space ended"] = ", ".join(sorted(errors))
    findings.facts["space was back after"] = f"at most {format_seconds(longest)}"


def _without_space(commit: _Commit, phase: str, free: int) -> OSError | None:
    """Save with all space taken before a phase; return the error that ended it, None where it got through."""
    for name, do in commit.phases.items():
        if name == phase:
            # Some of the data fit: the refusal comes in the middle of them.
            leave_room(commit.folder, commit.checkpoint.file_bytes if name == "data" else 0, free, commit.calls)
        try:
            do()
        except OSError as error:
            return error
    return None


def _look(findings: Findings, kept: _Commit | None, commit: _Commit, when: str, *, refused: bool = False) -> None:
    """Hold what is on the volume against what calls have said: the checkpoint before, the new one, the pointer."""
    folder, calls = commit.folder, commit.calls
    for wrong in kept.checkpoint.wrongs(folder, calls) if kept else ():
        findings.wrong(
            "the checkpoint before is damaged by a commit without space",
            where=f"{wrong.where}, {when}",
            seen=wrong.seen,
            expected=wrong.expected,
        )
    final = folder / commit.checkpoint.name
    wrongs = commit.checkpoint.wrongs(folder, calls) if not refused or final.exists() else []
    for wrong in wrongs:
        note_missing(findings, wrong.where, when, wrong.seen)
    # What was refused may have been done or not: the pointer names either checkpoint.
    allowed = [kept.checkpoint.name] if kept and refused else []
    allowed.append(commit.checkpoint.name)
    calls("read", folder / _POINTER)
    try:
        text = read_file(folder / _POINTER).decode("utf-8", "replace")
    except OSError as error:
        text = f"{error.strerror} (errno {error.errno})"
    if text not in allowed or (text == commit.checkpoint.name and not final.exists()):
        findings.wrong(
            "the pointer to the newest checkpoint is lost in a commit without space",
            where=f"{folder / _POINTER}, {when}",
            seen=repr(text),
            expected=" or ".join(allowed),
        )
