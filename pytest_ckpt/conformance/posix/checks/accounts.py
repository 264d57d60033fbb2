"""CAPABILITIES mtime and statfs: modification times and free space."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import random_bytes
from pytest_ckpt.conformance.not_run import NotRun
from pytest_ckpt.facts.checks import BY_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ckpt.conformance.context import CheckContext, Findings

_PAIRS = 50
_APART_SECONDS = 0.01
_SKEW_SECONDS = 1.0
_SPACE_BYTES = 1 << 30
# Others work on the same storage meanwhile: less would not stand out.
_MINIMUM_BYTES = 64 << 20
_PIECE_BYTES = 8 << 20
_ATTEMPTS = 3
_POLL_SECONDS = 0.05
_NS = 1_000_000_000


def mtime(context: CheckContext, findings: Findings) -> None:
    """Write files 10 ms apart, here and on the other client, and look at the order of their times and at the clock."""
    apart: list[int] = []
    before, last = 0, ""
    for number in range(context.count(_PAIRS, minimum=10)):
        path = context.folder / f"time-{number}"
        context.tell("write", str(path))
        began = time.time_ns()
        # Every third file is an older one that is written again.
        _write(context.folder / "again" if number % 3 == 2 else path, b"%d" % number)
        ended = time.time_ns()
        if number % 3 == 2:
            path = context.folder / "again"
        seen = path.stat().st_mtime_ns
        _near(findings, path, seen, began, ended)
        if last and seen <= before:
            findings.wrong(
                "modification times in wrong order" if seen < before else "modification times are equal",
                where=f"{path}, written {_APART_SECONDS * 1000:g} ms after {last}",
                seen=f"{(before - seen) / _NS:.9f} s earlier" if seen < before else "the same time",
                expected="a later modification time",
            )
        apart.append(seen - before)
        before, last = seen, path.name
        findings.trials += 1
        time.sleep(_APART_SECONDS)
    findings.facts["smallest step between files 10 ms apart"] = f"{min(apart[1:]) / 1e6:.3f} ms"
    if context.other:
        path = context.folder / "time-other"
        began = time.time_ns()
        context.other.write(f"{context.other_folder}/{path.name}", b"written there")
        _near(findings, path, path.stat().st_mtime_ns, began, time.time_ns())
        findings.trials += 1


def statfs(context: CheckContext, findings: Findings) -> None:
    """Write files that no compression makes smaller and wait until the free space has fallen by at least half of it.

    Others write and remove meanwhile, and some storage tells its free space late: up to three files are written, and
    the fall since before any of them counts.
    """
    patience = min(BY_NAME["CAPABILITIES.statfs"].limit or 0.0, context.space_seconds)
    size = context.count(_SPACE_BYTES, minimum=_MINIMUM_BYTES)
    space = os.statvfs(context.folder)
    free = space.f_bavail * space.f_frsize
    if free < 2 * _ATTEMPTS * size:
        raise NotRun(f"{free:,} bytes are free; to see {_ATTEMPTS} x {size:,} bytes fill takes twice as many")
    if not space.f_bavail <= space.f_bfree <= space.f_blocks:
        findings.wrong(
            "free space exceeds the volume",
            where=str(context.folder),
            seen=f"{space.f_bavail:,} blocks available, {space.f_bfree:,} free, {space.f_blocks:,} in all",
            expected="available <= free <= all",
        )
    began = time.monotonic()
    free_before: list[int] = []
    fell = 0
    for attempt in range(_ATTEMPTS):
        free_before.append(_free(context.folder))
        path = context.folder / f"space-{attempt}"
        context.tell("write and fsync", str(path))
        _fill(context, path, size)
        written_at = time.monotonic()
        findings.trials += 1
        while True:
            now = _free(context.folder)
            # Since before the n-th file, so many were written.
            for number, before in enumerate(free_before):
                fell = before - now
                if fell >= size * (len(free_before) - number) // 2:
                    findings.measured = time.monotonic() - (written_at if attempt == 0 else began)
                    findings.facts["free space"] = f"fell by {fell:,} bytes"
                    findings.facts["written"] = f"{size * (len(free_before) - number):,} bytes"
                    return
            if time.monotonic() - written_at > patience / _ATTEMPTS:
                break
            time.sleep(_POLL_SECONDS)
    findings.measured = time.monotonic() - began
    findings.wrong(
        "free space does not fall",
        where=f"{context.folder}, {findings.measured:.0f} s after {size * _ATTEMPTS:,} bytes were written and fsynced",
        seen=f"{fell:,} bytes less are free than before",
        expected=f"about {size:,} bytes less within {patience:g} s",
    )


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _near(findings: Findings, path: Path, seen: int, began: int, ended: int) -> None:
    off = max(began - seen, seen - ended) / _NS
    if off > _SKEW_SECONDS:
        side = "before" if seen < began else "after"
        findings.wrong(
            "modification time is off",
            where=str(path),
            seen=f"{off:.3f} s {side} the moment at which it was written, by this host's clock",
            expected=f"within {_SKEW_SECONDS:g} s",
        )


def _free(folder: Path) -> int:
    space = os.statvfs(folder)
    return space.f_bfree * space.f_frsize


def _fill(context: CheckContext, path: Path, size: int) -> None:
    with path.open("xb", buffering=0) as file:
        for start in range(0, size, _PIECE_BYTES):
            file.write(random_bytes(min(_PIECE_BYTES, size - start), context.seed, path.name, start))
        os.fsync(file.fileno())
