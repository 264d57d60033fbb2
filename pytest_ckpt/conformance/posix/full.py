"""ERRORS, FULL and COMMIT-FULL: errors that must be reported, and volumes or quotas without free space.

ERRORS: write, fsync and close report every error; if these calls succeed, the bytes are stored. FULL: the volume
becomes full while files of a checkpoint are written. COMMIT-FULL: the volume becomes full in a phase of a commit: data,
metadata, marker, or the pointer to the newest checkpoint. The previous checkpoint must remain, and later saves must
succeed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import random_bytes, read_file
from pytest_ckpt.conformance.context import NotRun
from pytest_ckpt.conformance.posix.checkpoints import (
    Calls,
    Checkpoint,
    ReportedCommitCalls,
    sync_directory,
    write_all,
    write_durably,
    wrong_bytes,
)
from pytest_ckpt.support.units import format_bytes, format_seconds
from pytest_ckpt.targets.posix.direct_io import NOT_OFFERED
from pytest_ckpt.targets.posix.target import MAXIMUM_TO_FILL_BYTES

if TYPE_CHECKING:
    from pytest_ckpt.conformance.context import CheckContext, Findings

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors by which a volume or a quota reports that it is full."""

PIECE_BYTES = 1 << 20
# A volume with more free space is not filled: it would take too long, and is probably not the intended volume.
MAXIMUM_FREE = MAXIMUM_TO_FILL_BYTES
_MINIMUM_FREE = 24 << 20
# The time during which the last handle of an ended process may still use space.
_STILL_OPEN_SECONDS, _POLL_SECONDS = 5.0, 0.1
_RETRY_SECONDS = 0.25
_LIBC = ctypes.CDLL(None, use_errno=True)


def small_directory(context: CheckContext) -> tuple[Path, int]:
    """Return the directory that may be filled, and its free bytes.

    Raises NotRun without such a directory, or if its volume is too large or too small.
    """
    if not context.small_directory:
        raise NotRun("no small volume or quota that may be filled")
    free = free_bytes(context.small_directory)
    if free > MAXIMUM_FREE:
        raise NotRun(
            f"{context.small_directory.parent} has {format_bytes(free)} free, and no more than "
            f"{format_bytes(MAXIMUM_FREE)} are filled: give a smaller volume, or a quota that statvfs shows"
        )
    if free < _MINIMUM_FREE:
        raise NotRun(
            f"{context.small_directory.parent} has {format_bytes(free)} free, {format_bytes(_MINIMUM_FREE)} are needed"
        )
    return context.small_directory, free


def free_bytes(directory: Path) -> int:
    """Return the number of free bytes that this user may use."""
    found = os.statvfs(directory)
    # Root may use the reserved space.
    return found.f_frsize * (found.f_bavail if os.geteuid() else found.f_bfree)


def fill_up_to(directory: Path, free_after: int, free: int, calls: Calls) -> None:
    """Fill a volume with a ballast file so that ``free_after`` bytes remain free.

    ``free`` is the number of free bytes before the call.
    """
    # The file "room" reserves the space. It is removed, not shortened: a truncation may itself need space.
    try:
        write_durably(directory / "room", random_bytes(free_after, free_after), calls)
    except OSError as error:
        if error.errno not in FULL:
            raise
        # A quota that statvfs does not show leaves less than ``free_after`` bytes free, so no ballast is needed.
        remove(directory / "room", calls)
        return
    _fill_with_ballast(directory / "ballast", free, calls)
    remove(directory / "room", calls)


def _fill_with_ballast(path: Path, free: int, calls: Calls) -> None:
    """Create a file that uses all free space, first with fallocate, then with writes.

    ``free`` is the number of free bytes before the call.
    """
    calls("open", path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        length = 0
        piece = max(PIECE_BYTES, free // 2)
        while piece >= PIECE_BYTES and length <= free * 1.25:
            calls("fallocate", path)
            number = _fallocate(descriptor, length, piece)
            if number in NOT_OFFERED:
                break
            if number and number not in FULL:
                raise OSError(number, os.strerror(number), str(path))
            length, piece = (length, piece // 2) if number else (length + piece, piece)
        os.lseek(descriptor, 0, os.SEEK_END)
        _write_until_full(descriptor, free + free // 4, calls, path)
    finally:
        # NFS reports a full volume at close.
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _write_until_full(descriptor: int, maximum_bytes: int, calls: Calls, path: Path) -> None:
    block = random_bytes(PIECE_BYTES, path)
    piece = written = 0
    # Each piece begins at another offset of the block: deduplicating storage may need no space for repeated content.
    size = PIECE_BYTES
    while size >= 4096 and written < maximum_bytes:
        if not piece % 64:
            calls("write", path)
        piece += 1
        start = (piece * 8191) % PIECE_BYTES
        try:
            write_all(descriptor, (block[start:] + block[:start])[:size])
            if not piece % 64:
                os.fsync(descriptor)
        except OSError as error:
            if error.errno not in FULL:
                raise
            size //= 2
        written += size
    with contextlib.suppress(OSError):
        os.fsync(descriptor)


def _fallocate(descriptor: int, offset: int, length: int) -> int:
    """Reserve space in a file; return 0 or the errno.

    fallocate is used because posix_fallocate writes zeros if the file system cannot reserve space.
    """
    done = _LIBC.fallocate(descriptor, 0, ctypes.c_long(offset), ctypes.c_long(length))
    return ctypes.get_errno() if done else 0


def remove(path: Path, calls: Calls) -> None:
    """Remove a file, or a directory with its content.

    An NFS client keeps a deleted file under another name while a process has it open. The removal of a directory that
    is not empty is therefore repeated for some time.
    """
    calls("remove", path)
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    until = time.monotonic() + _STILL_OPEN_SECONDS
    while True:
        try:
            shutil.rmtree(path)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or time.monotonic() > until:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return


def retry_with_space(save: Callable[[], object], undo: Callable[[], object], patience_seconds: float) -> float | None:
    """Repeat a save until it succeeds, after space was freed. Return the elapsed seconds.

    Returns None if space is still missing after ``patience_seconds``. ``undo`` removes the remains of a failed save.
    """
    began = time.monotonic()
    while True:
        try:
            save()
        except OSError as error:
            if error.errno not in FULL:
                raise
        else:
            return time.monotonic() - began
        if time.monotonic() - began > patience_seconds:
            return None
        undo()
        time.sleep(_RETRY_SECONDS)


def note_no_space(findings: Findings, directory: Path, calls: Calls, patience_seconds: float) -> None:
    """Record the anomaly that freed space is still missing after ``patience_seconds``."""
    findings.wrong(
        "no save succeeds after space was given back",
        where=f"{calls.call} of {calls.path}, {format_seconds(patience_seconds)} after files were removed",
        seen=f"still no space; statvfs reports {format_bytes(free_bytes(directory))} free",
        expected="that a small checkpoint can be saved",
    )


def note_refusal(findings: Findings, error: OSError, calls: Calls, expected: str) -> None:
    """Record the anomaly that a call failed with an unexpected error."""
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    findings.wrong(
        f"a call failed: {name} in {calls.call}",
        where=calls.path,
        seen=f"{name}: {error.strerror}",
        expected=expected,
    )


def note_missing(findings: Findings, where: str, when: str, seen: str) -> None:
    """Record the anomaly that bytes are missing although all calls reported success."""
    findings.wrong(
        "acknowledged bytes are not there",
        where=f"{where}, {when}",
        seen=seen,
        expected="the bytes for which write, fsync and close had returned without error, or an error from one of them",
    )


# The bytes written as files that can be verified; ballast takes the other space.
_ROOM = 16 << 20
_MAXIMUM_ERRORS = 3

_SIZES = (1, 4096, 1 << 20, (4 << 20) + 17)


def acknowledged(context: CheckContext, findings: Findings) -> None:
    """Write files in the ways that checkpoint software uses. Data written without an error must be on the target."""
    calls = Calls(context.report_call)
    ways = {
        "in pieces of 1 MiB": {},
        "in pieces of 4 KiB": {"piece_bytes": 4096},
        "in pieces of 4 KiB, appended": {"piece_bytes": 4096, "flags": os.O_CREAT | os.O_EXCL | os.O_APPEND},
        "synchronously": {"flags": os.O_CREAT | os.O_EXCL | os.O_DSYNC, "sync": False},
        "over older bytes": {"flags": 0},
    }
    for turn, (way, how), size in itertools.product(range(context.count(4)), ways.items(), _SIZES):
        path = context.directory / f"file-{findings.trials}"
        findings.trials += 1
        data = random_bytes(size, context.seed, turn, way, size)
        try:
            if how.get("flags") == 0:
                write_durably(path, random_bytes(size, context.seed, turn, way, size, "old"), calls)
            write_durably(path, data, calls, **how)  # type: ignore[arg-type]
            wrong = wrong_bytes(path, data, calls)
        except OSError as error:
            note_refusal(findings, error, calls, "the target is neither full nor read-only")
            if findings.anomaly_count >= _MAXIMUM_ERRORS:
                return
            continue
        if wrong:
            note_missing(findings, wrong.where, f"written {way}", wrong.seen)
        path.unlink()


def fill(context: CheckContext, findings: Findings) -> None:
    """Fill a volume with files until a call fails. Files that were written without an error must be complete."""
    directory, free = small_directory(context)
    calls = Calls(context.report_call)
    chance = random.Random(context.seed)
    for trial in range(context.count(4)):
        here = directory / f"trial-{trial}"
        here.mkdir()
        fill_up_to(here, _ROOM, free, calls)
        acknowledged_bytes, error = 0, ""
        sizes: list[int] = []
        while not error and acknowledged_bytes <= free * 1.25 + _ROOM:
            number, size = len(sizes), chance.choice((5000, 100_000, PIECE_BYTES, 3 * PIECE_BYTES + 17))
            data = random_bytes(size, context.seed, trial, number)
            try:
                write_durably(here / f"file-{number}", data, calls, piece_bytes=chance.choice((4096, PIECE_BYTES)))
            except OSError as refusal:
                if refusal.errno not in FULL:
                    note_refusal(findings, refusal, calls, "only the error of a full volume or quota")
                    return
                error = f"{errno.errorcode[refusal.errno]} in {calls.call}"
            else:
                sizes.append(size)
                acknowledged_bytes += size
        for number, size in enumerate(sizes):
            wrong = wrong_bytes(here / f"file-{number}", random_bytes(size, context.seed, trial, number), calls)
            if wrong:
                note_missing(
                    findings, wrong.where, f"written until {error or 'more was taken than was free'}", wrong.seen
                )
        if not error and not findings.anomaly_count:
            raise NotRun(
                f"{directory.parent} does not fill: {format_bytes(acknowledged_bytes)} were written and are there, "
                f"{format_bytes(free)} were free"
            )
        findings.trials += 1
        findings.facts["how the volume was full"] = error or "no error"
        remove(here, calls)


def mid_save(context: CheckContext, findings: Findings) -> None:
    """Fill the volume in the middle of a save, check the previous checkpoint, free the space, and save again."""
    directory, free = small_directory(context)
    calls = Calls(context.report_call)
    chance = random.Random(context.seed)

    def checkpoint(number: int) -> Checkpoint:
        return Checkpoint(number=number, seed=context.seed, file_bytes=PIECE_BYTES, commit=context.commit)

    context.note_commit(findings)
    kept = checkpoint(1)
    kept.save(directory, calls)
    errors: set[str] = set()
    longest = 0.0
    for trial in range(context.count(8, minimum=2)):
        fill_up_to(directory, int(chance.uniform(0.1, 0.9) * 4 * PIECE_BYTES), free, calls)
        broken = checkpoint(2 * trial + 2)
        try:
            broken.save(directory, calls)
        except OSError as error:
            if error.errno not in FULL:
                note_refusal(findings, error, calls, "only the error of a full volume or quota")
                return
            findings.trials += 1
            errors.add(f"{errno.errorcode[error.errno]} in {calls.call}")
            moment = f"a save into a volume without space ({errno.errorcode[error.errno]} in {calls.call})"
            # If all files exist, only the acknowledgement after the commit can have failed.
            if broken.is_committed(directory) and broken.wrongs(directory, calls):
                findings.wrong(
                    f"a broken checkpoint has its {context.commit.sign}",
                    where=f"{context.commit.evidence_of(directory / broken.name)}, after {moment}",
                    seen="that name",
                    expected="no such name",
                )
        else:
            moment = "a save that succeeded although there was too little space"
            for wrong in broken.wrongs(directory, calls):
                note_missing(findings, wrong.where, moment, wrong.seen)
        for wrong in kept.wrongs(directory, calls):
            findings.wrong(
                "the checkpoint before is damaged by a save without space",
                where=f"{wrong.where}, after {moment}",
                seen=wrong.seen,
                expected=wrong.expected,
            )
        remove(directory / "ballast", calls)
        _remove_checkpoint(broken, directory, calls)
        after = checkpoint(2 * trial + 3)
        seconds = retry_with_space(
            partial(after.save, directory, calls),
            partial(_remove_checkpoint, after, directory, calls),
            context.space_seconds,
        )
        if seconds is None:
            note_no_space(findings, directory, calls, context.space_seconds)
            return
        longest = max(longest, seconds)
        wrongs = after.wrongs(directory, calls)
        for wrong in wrongs:
            note_missing(findings, wrong.where, "saved after space was given back", wrong.seen)
        if wrongs:
            # Later faults could not be distinguished from this one.
            return
        remove(directory / kept.name, calls)
        kept = after
    if not findings.trials and not findings.anomaly_count:
        raise NotRun(f"{directory.parent} never ran out of space, although it was filled before each save")
    findings.facts["how space ended"] = ", ".join(sorted(errors)) or "no error"
    findings.facts["space was back after"] = f"at most {format_seconds(longest)}"


def _remove_checkpoint(checkpoint: Checkpoint, directory: Path, calls: Calls) -> None:
    for place in checkpoint.places(directory):
        remove(place, calls)


_POINTER, _NEXT_POINTER = "latest", "latest.tmp"


@dataclass(slots=True)
class _Commit:
    """A save of one checkpoint in phases: data, metadata, marker, and the pointer to the newest checkpoint.

    ``phases`` is {name of a phase: the function that performs it}. The last file of the checkpoint represents the
    metadata. If ``in_place`` is true, the pointer is overwritten with a text of the same length. Otherwise, the pointer
    is replaced by rename.
    """

    directory: Path
    checkpoint: Checkpoint
    calls: Calls
    in_place: bool
    phases: dict[str, Callable[[], None]] = field(init=False)

    def __post_init__(self) -> None:
        *data, metadata = self.checkpoint.contents().items()
        final = self.directory / self.checkpoint.name
        draft = self.checkpoint.commit.draft_of(final)
        pointer, following = self.directory / _POINTER, self.directory / _NEXT_POINTER
        text = self.checkpoint.name.encode()

        def write(files: list[tuple[str, bytes]]) -> None:
            if not draft.exists():
                self.calls("mkdir", draft)
                draft.mkdir()
            for name, content in files:
                write_durably(draft / name, content, self.calls)
            sync_directory(draft, self.calls)

        def replace() -> None:
            self.calls("rename", pointer)
            following.replace(pointer)
            sync_directory(self.directory, self.calls)

        self.phases = {
            "data": lambda: write(data),
            "metadata": lambda: write([metadata]),
            "marker": lambda: self.checkpoint.commit.perform(final, ReportedCommitCalls(self.calls)),
        }
        if self.in_place:
            self.phases["pointer in place"] = lambda: write_durably(pointer, text, self.calls, flags=os.O_CREAT)
        else:
            self.phases["pointer's text"] = lambda: write_durably(
                following, text, self.calls, flags=os.O_CREAT | os.O_TRUNC
            )
            self.phases["pointer"] = replace

    def save(self) -> None:
        """Perform all phases in order."""
        for do in self.phases.values():
            do()

    def undo(self) -> None:
        """Remove the remains of the checkpoint, like software does after a failed save."""
        _remove_checkpoint(self.checkpoint, self.directory, self.calls)
        remove(self.directory / _NEXT_POINTER, self.calls)


def each_phase(context: CheckContext, findings: Findings) -> None:
    """Fill the volume before each phase of a commit, and check the previous checkpoint.

    Then free the space and save again.
    """
    directory, free = small_directory(context)
    calls = Calls(context.report_call)

    renames_files = _renames_files(context, directory, findings)

    def commit_of(number: int, *, in_place: bool = False) -> _Commit:
        checkpoint = Checkpoint(number=number, seed=context.seed, files=5, commit=context.commit)
        return _Commit(directory, checkpoint, calls, in_place or not renames_files)

    context.note_commit(findings)
    kept = commit_of(1)
    kept.save()
    errors: set[str] = set()
    number, longest = 1, 0.0
    first_phases = [name for name in kept.phases if renames_files or name != "pointer in place"]
    for _ in range(context.count(4)):
        for phase, in_place in (*((name, False) for name in first_phases), ("pointer in place", True)):
            number += 1
            commit = commit_of(number, in_place=in_place)
            refusal = _without_space(commit, phase, free)
            if refusal and refusal.errno not in FULL:
                note_refusal(findings, refusal, calls, "only the error of a full volume or quota")
                return
            ended = f"{errno.errorcode[refusal.errno or 0]} in {calls.call}" if refusal else "no error"
            errors.add(ended)
            findings.trials += 1
            _check_checkpoints(
                findings, kept, commit, f"without space for the {phase} ({ended})", refused=refusal is not None
            )
            remove(directory / "ballast", calls)
            number += 1
            after = commit_of(number)

            def again(refused: _Commit = commit, following: _Commit = after) -> None:
                refused.undo()
                following.save()

            seconds = retry_with_space(again, after.undo, context.space_seconds)
            if seconds is None:
                note_no_space(findings, directory, calls, context.space_seconds)
                return
            longest = max(longest, seconds)
            _check_checkpoints(findings, None, after, "saved after space was given back")
            if findings.anomaly_count:
                return
            remove(directory / kept.checkpoint.name, calls)
            kept = after
    if errors == {"no error"}:
        raise NotRun(f"{directory.parent} never ran out of space, although it was filled before each phase of a commit")
    findings.facts["how space ended"] = ", ".join(sorted(errors))
    findings.facts["space was back after"] = f"at most {format_seconds(longest)}"


def _renames_files(context: CheckContext, directory: Path, findings: Findings) -> bool:
    """Return whether the target permits the rename of a file. The test uses a separate file."""
    old, new = directory / "rename", directory / "renamed"
    old.touch()
    if renames := context.rename_file(old, new, findings):
        new.unlink()
    return renames


def _without_space(commit: _Commit, phase: str, free: int) -> OSError | None:
    """Save a checkpoint, and fill the volume before the phase ``phase``.

    Return the error that ended the save; None if the save succeeded.
    """
    for name, do in commit.phases.items():
        if name == phase:
            # Some of the data fit, so that the error comes in the middle of them.
            fill_up_to(commit.directory, commit.checkpoint.file_bytes if name == "data" else 0, free, commit.calls)
        try:
            do()
        except OSError as error:
            return error
    return None


def _check_checkpoints(
    findings: Findings, kept: _Commit | None, commit: _Commit, when: str, *, refused: bool = False
) -> None:
    """Record an anomaly if a checkpoint or the pointer contradicts the results of the calls.

    ``kept`` is the previous checkpoint, ``commit`` the new checkpoint. ``refused`` is true if the save of the new
    checkpoint failed.
    """
    directory, calls = commit.directory, commit.calls
    for wrong in kept.checkpoint.wrongs(directory, calls) if kept else ():
        findings.wrong(
            "the checkpoint before is damaged by a commit without space",
            where=f"{wrong.where}, {when}",
            seen=wrong.seen,
            expected=wrong.expected,
        )
    is_committed = commit.checkpoint.is_committed(directory)
    wrongs = commit.checkpoint.wrongs(directory, calls) if not refused or is_committed else []
    for wrong in wrongs:
        note_missing(findings, wrong.where, when, wrong.seen)
    # A failed operation may have been performed or not, so the pointer may name either checkpoint.
    allowed = [kept.checkpoint.name] if kept and refused else []
    allowed.append(commit.checkpoint.name)
    calls("read", directory / _POINTER)
    try:
        text = read_file(directory / _POINTER).decode("utf-8", "replace")
    except OSError as error:
        text = f"{error.strerror} (errno {error.errno})"
    if text not in allowed or (text == commit.checkpoint.name and not is_committed):
        findings.wrong(
            "the pointer to the newest checkpoint is lost in a commit without space",
            where=f"{directory / _POINTER}, {when}",
            seen=repr(text),
            expected=" or ".join(allowed),
        )
