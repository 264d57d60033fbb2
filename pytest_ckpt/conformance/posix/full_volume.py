"""Fills a small volume or quota but for some room, as checks of ERRORS and FULL need it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import random_bytes
from pytest_ckpt.conformance.not_run import NotRun
from pytest_ckpt.conformance.posix.checkpoints import Calls, write_all, write_durably
from pytest_ckpt.support.units import format_bytes, format_seconds
from pytest_ckpt.targets.posix.direct_io import NOT_OFFERED
from pytest_ckpt.targets.posix.target import MAXIMUM_TO_FILL_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.conformance.context import CheckContext, Findings

FULL = (errno.ENOSPC, errno.EDQUOT)
"""How a volume or a quota says that it has no space."""

PIECE_BYTES = 1 << 20
# More free space than this is not filled: it would take too long, and is hardly meant to be.
MAXIMUM_FREE = MAXIMUM_TO_FILL_BYTES
_MINIMUM_FREE = 24 << 20
# What the last handle of a process that is gone keeps.
_STILL_OPEN_SECONDS, _POLL_SECONDS = 5.0, 0.1
_RETRY_SECONDS = 0.25
_LIBC = ctypes.CDLL(None, use_errno=True)


def small_folder(context: CheckContext) -> tuple[Path, int]:
    """Return the folder that may be filled and how many bytes are free there."""
    if not context.small_folder:
        raise NotRun("there is no small volume or quota that may be filled")
    free = free_bytes(context.small_folder)
    if free > MAXIMUM_FREE:
        raise NotRun(
            f"{context.small_folder.parent} has {format_bytes(free)} free, and no more than "
            f"{format_bytes(MAXIMUM_FREE)} are filled: give a smaller volume, or a quota that statvfs shows"
        )
    if free < _MINIMUM_FREE:
        raise NotRun(
            f"{context.small_folder.parent} has {format_bytes(free)} free, {format_bytes(_MINIMUM_FREE)} are needed"
        )
    return context.small_folder, free


def free_bytes(folder: Path) -> int:
    """Return the free space that this user may take."""
    found = os.statvfs(folder)
    # Root may take what is kept back for it.
    return found.f_frsize * (found.f_bavail if os.geteuid() else found.f_bfree)


def leave_room(folder: Path, room: int, free: int, calls: Calls) -> None:
    """Fill a volume with ballast but for ``room`` bytes."""
    # Removed as a whole: to cut a file short may itself take space.
    try:
        write_durably(folder / "room", random_bytes(room, room), calls)
    except OSError as error:
        if error.errno not in FULL:
            raise
        # A quota that statvfs does not show leaves less than that from the start.
        remove(folder / "room", calls)
        return
    _take_space(folder / "ballast", free, calls)
    remove(folder / "room", calls)


def _take_space(path: Path, free: int, calls: Calls) -> None:
    """Make a file as large as the volume lets it become: by fallocate, where there is none by writing."""
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
        # NFS says here that there was no space.
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _write_until_full(descriptor: int, maximum_bytes: int, calls: Calls, path: Path) -> None:
    block = random_bytes(PIECE_BYTES, path)
    piece = written = 0
    # What is the same again and again may take no space: each piece begins elsewhere in the block.
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
    """Return 0, or the error's number. The C library would write the bytes itself where the target cannot."""
    done = _LIBC.fallocate(descriptor, 0, ctypes.c_long(offset), ctypes.c_long(length))
    return ctypes.get_errno() if done else 0


def remove(path: Path, calls: Calls) -> None:
    """Remove a file or a folder with all in it.

    A client of NFS keeps a file that is deleted under another name for as long as somebody has it open, and be it one
    whose process is just ending: so a folder that is not empty is tried again for a while.
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


def when_there_is_space(
    save: Callable[[], object], undo: Callable[[], object], patience_seconds: float
) -> float | None:
    """Save as soon as it is possible; return after how many seconds it was, None when it never was in that time.

    ``undo`` removes what a save left that was refused for want of space.
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


def note_no_space(findings: Findings, folder: Path, calls: Calls, patience_seconds: float) -> None:
    """Note that space did not come back."""
    findings.wrong(
        "no save succeeds after space was given back",
        where=f"{calls.call} of {calls.path}, {format_seconds(patience_seconds)} after files were removed",
        seen=f"still no space; statvfs says {format_bytes(free_bytes(folder))} are free",
        expected="that a small checkpoint can be saved",
    )


def note_refusal(findings: Findings, error: OSError, calls: Calls, expected: str) -> None:
    """Note that a call failed with an error that it should not have given."""
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    findings.wrong(
        f"a call failed: {name} in {calls.call}",
        where=calls.path,
        seen=f"{name}: {error.strerror}",
        expected=expected,
    )


def note_missing(findings: Findings, where: str, when: str, seen: str) -> None:
    """Note that bytes are not there for which every call had said success."""
    findings.wrong(
        "acknowledged bytes are not there",
        where=f"{where}, {when}",
        seen=seen,
        expected="the bytes for which write, fsync and close had returned without error, or an error from one of them",
    )
