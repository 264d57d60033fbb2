"""ERRORS and FULL: write, fsync and close report every error, so success means that the bytes are stored."""

from __future__ import annotations

import errno
import itertools
import os
import random
from functools import partial
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import random_bytes
from pytest_ckpt.conformance.not_run import NotRun
from pytest_ckpt.conformance.posix.checkpoints import Calls, Checkpoint, write_durably, wrong_bytes
from pytest_ckpt.conformance.posix.full_volume import (
    FULL,
    PIECE_BYTES,
    leave_room,
    note_missing,
    note_no_space,
    note_refusal,
    remove,
    small_folder,
    when_there_is_space,
)
from pytest_ckpt.support.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from pytest_ckpt.conformance.context import CheckContext, Findings

# Bytes that are written as files that can be checked; the space before them is taken by ballast.
_ROOM = 16 << 20
_MAXIMUM_ERRORS = 3

_SIZES = (1, 4096, 1 << 20, (4 << 20) + 17)


def acknowledged(context: CheckContext, findings: Findings) -> None:
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
        path = context.folder / f"file-{findings.trials}"
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


def full(context: CheckContext, findings: Findings) -> None:
    """Fill a volume with files; those that got through without an error must be there, the next one must not."""
    folder, free = small_folder(context)
    calls = Calls(context.tell)
    chance = random.Random(context.seed)
    for trial in range(context.count(4)):
        here = folder / f"trial-{trial}"
        here.mkdir()
        leave_room(here, _ROOM, free, calls)
        acknowledged_bytes, error = 0, ""
        sizes: list[int] = []
        while not error and acknowledged_bytes <= free * 1.25 + _ROOM:
            number, size = len(sizes), chance.choice((5000, 100_000, PIECE_BYTES, 3 * PIECE_BYTES + 17))
            data = random_bytes(size, context.seed, trial, number)
            try:
                write_durably(here / f"file-{number}", data, calls, piece_bytes=chance.choice((4096, PIECE_BYTES)))
            except OSError as refusal:
                if refusal.errno not in FULL:
                    note_refusal(findings, refusal, calls, "no other error than that of a full volume or quota")
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
                f"{folder.parent} does not fill: {format_bytes(acknowledged_bytes)} were written and are there, "
                f"{format_bytes(free)} were free"
            )
        findings.trials += 1
        findings.facts["how the volume was full"] = error or "no error"
        remove(here, calls)


def mid_save(context: CheckContext, findings: Findings) -> None:
    """Let space end in the middle of a save, look at the checkpoint before it, give space back and save again."""
    folder, free = small_folder(context)
    calls = Calls(context.tell)
    chance = random.Random(context.seed)
    kept = Checkpoint(number=1, seed=context.seed, file_bytes=PIECE_BYTES)
    kept.save(folder, calls)
    errors: set[str] = set()
    longest = 0.0
    for trial in range(context.count(8, minimum=2)):
        leave_room(folder, int(chance.uniform(0.1, 0.9) * 4 * PIECE_BYTES), free, calls)
        broken = Checkpoint(number=2 * trial + 2, seed=context.seed, file_bytes=PIECE_BYTES)
        try:
            broken.save(folder, calls)
        except OSError as error:
            if error.errno not in FULL:
                note_refusal(findings, error, calls, "no other error than that of a full volume or quota")
                return
            findings.trials += 1
            errors.add(f"{errno.errorcode[error.errno]} in {calls.call}")
            moment = f"a save into a volume without space ({errno.errorcode[error.errno]} in {calls.call})"
            # Only what is to be acknowledged after the rename may fail when all is there.
            if (folder / broken.name).exists() and broken.wrongs(folder, calls):
                findings.wrong(
                    "a broken checkpoint has its final name",
                    where=f"{folder / broken.name}, after {moment}",
                    seen="a folder of that name",
                    expected="no such name",
                )
        else:
            moment = "a save that succeeded although there was too little space"
            for wrong in broken.wrongs(folder, calls):
                note_missing(findings, wrong.where, moment, wrong.seen)
        for wrong in kept.wrongs(folder, calls):
            findings.wrong(
                "the checkpoint before is damaged by a save without space",
                where=f"{wrong.where}, after {moment}",
                seen=wrong.seen,
                expected=wrong.expected,
            )
        remove(folder / "ballast", calls)
        remove(folder / broken.partial, calls)
        remove(folder / broken.name, calls)
        after = Checkpoint(number=2 * trial + 3, seed=context.seed, file_bytes=PIECE_BYTES)
        seconds = when_there_is_space(
            partial(after.save, folder, calls), partial(remove, folder / after.partial, calls), context.space_seconds
        )
        if seconds is None:
            note_no_space(findings, folder, calls, context.space_seconds)
            return
        longest = max(longest, seconds)
        wrongs = after.wrongs(folder, calls)
        for wrong in wrongs:
            note_missing(findings, wrong.where, "saved after space was given back", wrong.seen)
        if wrongs:
            # Nothing that comes after it could be told from this.
            return
        remove(folder / kept.name, calls)
        kept = after
    if not findings.trials and not findings.anomaly_count:
        raise NotRun(f"{folder.parent} never ran out of space, although it was filled before each save")
    findings.facts["how space ended"] = ", ".join(sorted(errors)) or "no error"
    findings.facts["space was back after"] = f"at most {format_seconds(longest)}"
