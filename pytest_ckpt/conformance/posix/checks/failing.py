"""ERRORS and FULL: write, fsync and close report every error, so success means that the bytes are stored."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import random
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import random_bytes
from pytest_ckpt.conformance.not_run import NotRun
from pytest_ckpt.conformance.posix.checkpoints import Calls, Checkpoint, write_all, write_durably, wrong_bytes
from pytest_ckpt.support.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from pytest_ckpt.conformance.context import Book, CheckContext

_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_FALLOCATE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
# Bytes. More free space than this is not filled: it would take too long, and is hardly meant to be.
MOST_FREE = 64 << 30
_LEAST_FREE = 24 << 20
# Bytes that are written as files that can be checked; the space before them is taken by ballast.
_ROOM = 16 << 20
_PIECE_BYTES = 1 << 20
_POLL_SECONDS = 0.25
_MOST_ERRORS = 3
_LIBC = ctypes.CDLL(None, use_errno=True)

_SIZES = (1, 4096, 1 << 20, (4 << 20) + 17)


def acknowledged(context: CheckContext, book: Book) -> None:
    """Write files in the ways of checkpoint software; what got through without an error must be on the target."""
    calls = Calls(context.tell)
    ways = {
        "in pieces of 1 MiB": {},
        "in pieces of 4 KiB": {"piece_bytes": 4096},
        "in pieces of 4 KiB, appended": {"piece_bytes": 4096, "flags": os.O_CREAT | os.O_EXCL | os.O_APPEND},
        "synchronously": {"flags": os.O_CREAT | os.O_EXCL | os.O_DSYNC, "sync": False},
        "over older bytes": {"flags": 0},
    }
    for turn, (way, how), size in itertools.product(range(context.count(4)), ways.items(), _SIZES):
        path = context.folder / f"file-{book.trials}"
        book.trials += 1
        data = random_bytes(size, context.seed, turn, way, size)
        try:
            if how.get("flags") == 0:
                write_durably(path, random_bytes(size, context.seed, turn, way, size, "old"), calls)
            write_durably(path, data, calls, **how)  # type: ignore[arg-type]
            wrong = wrong_bytes(path, data, calls)
        except OSError as error:
            _refused(book, error, calls, "the target is neither full nor read-only")
            if book.anomaly_count >= _MOST_ERRORS:
                return
            continue
        if wrong:
            _missing(book, wrong.where, f"written {way}", wrong.seen)
        path.unlink()


def full(context: CheckContext, book: Book) -> None:
    """Fill a volume with files; those that got through without an error must be there, the next one must not."""
    folder, free = _small_folder(context)
    calls = Calls(context.tell)
    chance = random.Random(context.seed)
    for trial in range(context.count(4)):
        here = folder / f"trial-{trial}"
        here.mkdir()
        _leave_room(here, _ROOM, free, calls)
        acknowledged_bytes, error = 0, ""
        sizes: list[int] = []
        while not error and acknowledged_bytes <= free * 1.25 + _ROOM:
            number, size = len(sizes), chance.choice((5000, 100_000, _PIECE_BYTES, 3 * _PIECE_BYTES + 17))
            data = random_bytes(size, context.seed, trial, number)
            try:
                write_durably(here / f"file-{number}", data, calls, piece_bytes=chance.choice((4096, _PIECE_BYTES)))
            except OSError as refusal:
                if refusal.errno not in _FULL:
                    _refused(book, refusal, calls, "no other error than that of a full volume or quota")
                    return
                error = f"{errno.errorcode[refusal.errno]} in {calls.call}"
            else:
                sizes.append(size)
                acknowledged_bytes += size
        for number, size in enumerate(sizes):
            wrong = wrong_bytes(here / f"file-{number}", random_bytes(size, context.seed, trial, number), calls)
            if wrong:
                _missing(book, wrong.where, f"written until {error or 'more was taken than was free'}", wrong.seen)
        if not error and not book.anomaly_count:
            raise NotRun(
                f"{folder.parent} does not fill: {format_bytes(acknowledged_bytes)} were written and are there, "
                f"{format_bytes(free)} were free"
            )
        book.trials += 1
        book.facts["how the volume was full"] = error or "no error"
        _remove(here, calls)


def mid_save(context: CheckContext, book: Book) -> None:
    """Let space end in the middle of a save, look at the checkpoint before it, give space back and save again."""
    folder, free = _small_folder(context)
    calls = Calls(context.tell)
    chance = random.Random(context.seed)
    kept = Checkpoint(number=1, seed=context.seed, file_bytes=_PIECE_BYTES)
    kept.save(folder, calls)
    errors: set[str] = set()
    longest = 0.0
    for trial in range(context.count(8, minimum=2)):
        _leave_room(folder, int(chance.uniform(0.1, 0.9) * 4 * _PIECE_BYTES), free, calls)
        broken = Checkpoint(number=2 * trial + 2, seed=context.seed, file_bytes=_PIECE_BYTES)
        try:
            broken.save(folder, calls)
        except OSError as error:
            if error.errno not in _FULL:
                _refused(book, error, calls, "no other error than that of a full volume or quota")
                return
            book.trials += 1
            errors.add(f"{errno.errorcode[error.errno]} in {calls.call}")
            moment = f"a save into a volume without space ({errno.errorcode[error.errno]} in {calls.call})"
            # Only what is to be acknowledged after the rename may fail when all is there.
            if (folder / broken.name).exists() and broken.wrongs(folder, calls):
                book.wrong(
                    "a broken checkpoint has its final name",
                    where=f"{folder / broken.name}, after {moment}",
                    seen="a folder of that name",
                    expected="no such name",
                )
        else:
            moment = "a save that succeeded although there was too little space"
            for wrong in broken.wrongs(folder, calls):
                _missing(book, wrong.where, moment, wrong.seen)
        for wrong in kept.wrongs(folder, calls):
            book.wrong(
                "the checkpoint before is damaged by a save without space",
                where=f"{wrong.where}, after {moment}",
                seen=wrong.seen,
                expected=wrong.expected,
            )
        _remove(folder / "ballast", calls)
        _remove(folder / broken.partial, calls)
        _remove(folder / broken.name, calls)
        after = Checkpoint(number=2 * trial + 3, seed=context.seed, file_bytes=_PIECE_BYTES)
        seconds = _save_when_there_is_space(folder, after, calls, context.space_seconds)
        if seconds is None:
            book.wrong(
                "no save succeeds after space was given back",
                where=f"{calls.call} of {calls.path}, {format_seconds(context.space_seconds)} after files were removed",
                seen=f"still no space; statvfs says {format_bytes(_free(folder))} are free",
                expected=f"that a checkpoint of {format_bytes(4 * _PIECE_BYTES)} can be saved",
            )
            return
        longest = max(longest, seconds)
        wrongs = after.wrongs(folder, calls)
        for wrong in wrongs:
            _missing(book, wrong.where, "saved after space was given back", wrong.seen)
        if wrongs:
            # Nothing that comes after it could be told from this.
            return
        _remove(folder / kept.name, calls)
        kept = after
    if not book.trials and not book.anomaly_count:
        raise NotRun(f"{folder.parent} never ran out of space, although it was filled before each save")
    book.facts["how space ended"] = ", ".join(sorted(errors)) or "no error"
    book.facts["space was back after"] = f"at most {format_seconds(longest)}"


def _small_folder(context: CheckContext) -> tuple[Path, int]:
    """Return the folder that may be filled and how many bytes are free there."""
    if not context.small_folder:
        raise NotRun("there is no small volume or quota that may be filled")
    free = _free(context.small_folder)
    if free > MOST_FREE:
        raise NotRun(
            f"{context.small_folder.parent} has {format_bytes(free)} free, and no more than {format_bytes(MOST_FREE)} "
            "are filled: give a smaller volume, or a quota that statvfs shows"
        )
    if free < _LEAST_FREE:
        raise NotRun(
            f"{context.small_folder.parent} has {format_bytes(free)} free, {format_bytes(_LEAST_FREE)} are needed"
        )
    return context.small_folder, free


def _free(folder: Path) -> int:
    said = os.statvfs(folder)
    # Root may take what is kept back for it.
    return said.f_frsize * (said.f_bavail if os.geteuid() else said.f_bfree)


def _leave_room(folder: Path, room: int, free: int, calls: Calls) -> None:
    """Fill a volume with ballast but for ``room`` bytes."""
    # Removed as a whole: to cut a file short may itself take space.
    try:
        write_durably(folder / "room", random.Random(room).randbytes(room), calls)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        # A quota that statvfs does not show leaves less than that from the start.
        _remove(folder / "room", calls)
        return
    _take_space(folder / "ballast", free, calls)
    _remove(folder / "room", calls)


def _take_space(path: Path, free: int, calls: Calls) -> None:
    """Make a file as large as the volume lets it become: by fallocate, where there is none by writing."""
    calls("open", path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        length = 0
        piece = max(_PIECE_BYTES, free // 2)
        while piece >= _PIECE_BYTES and length <= free * 1.25:
            calls("fallocate", path)
            number = _fallocate(descriptor, length, piece)
            if number in _NO_FALLOCATE:
                break
            if number and number not in _FULL:
                raise OSError(number, os.strerror(number), str(path))
            length, piece = (length, piece // 2) if number else (length + piece, piece)
        os.lseek(descriptor, 0, os.SEEK_END)
        _write_until_full(descriptor, free + free // 4, calls, path)
    finally:
        # NFS says here that there was no space.
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _write_until_full(descriptor: int, most_bytes: int, calls: Calls, path: Path) -> None:
    block = random.Random(str(path)).randbytes(_PIECE_BYTES)
    piece = written = 0
    # What is the same again and again may take no space: each piece begins elsewhere in the block.
    size = _PIECE_BYTES
    while size >= 4096 and written < most_bytes:
        if not piece % 64:
            calls("write", path)
        piece += 1
        start = (piece * 8191) % _PIECE_BYTES
        try:
            write_all(descriptor, (block[start:] + block[:start])[:size])
            if not piece % 64:
                os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            size //= 2
        written += size
    with contextlib.suppress(OSError):
        os.fsync(descriptor)


def _fallocate(descriptor: int, offset: int, length: int) -> int:
    """Return 0, or the error's number. The C library would write the bytes itself where the target cannot."""
    done = _LIBC.fallocate(descriptor, 0, ctypes.c_long(offset), ctypes.c_long(length))
    return ctypes.get_errno() if done else 0


def _save_when_there_is_space(
    folder: Path, checkpoint: Checkpoint, calls: Calls, patience_seconds: float
) -> float | None:
    """Save as soon as it is possible; return after how many seconds it was, None when it never was in that time."""
    began = time.monotonic()
    while True:
        try:
            checkpoint.save(folder, calls)
        except OSError as error:
            if error.errno not in _FULL:
                raise
        else:
            return time.monotonic() - began
        if time.monotonic() - began > patience_seconds:
            return None
        _remove(folder / checkpoint.partial, calls)
        time.sleep(_POLL_SECONDS)


def _remove(path: Path, calls: Calls) -> None:
    calls("remove", path)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _refused(book: Book, error: OSError, calls: Calls, expected: str) -> None:
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    book.wrong(
        f"a call failed: {name} in {calls.call}",
        where=calls.path,
        seen=f"{name}: {error.strerror}",
        expected=expected,
    )


def _missing(book: Book, where: str, when: str, seen: str) -> None:
    book.wrong(
        "acknowledged bytes are not there",
        where=f"{where}, {when}",
        seen=seen,
        expected="the bytes for which write, fsync and close had returned without error, or an error from one of them",
    )
