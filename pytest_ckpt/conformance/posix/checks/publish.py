"""PUBLISH: another client that sees a checkpoint's marker soon finds all of its files, whole (semantics 1, 2, 6, 15).

The other client looks for the marker before it is written, as a serving or evaluating job does that waits for the next
checkpoint. The figure is its own: from the message that the commit has returned until the marker was seen and every
file was opened, with its size, first and last page right. Then it reads and compares all bytes.
"""

from __future__ import annotations

import errno
import json
import os
import time
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance import pages
from pytest_ckpt.conformance.context import Findings
from pytest_ckpt.conformance.posix.checkpoints import Calls, sync_folder, write_durably
from pytest_ckpt.conformance.reading import read_at, read_file
from pytest_ckpt.facts.checks import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from pytest_ckpt.conformance.context import CheckContext

_ROUNDS, _FILES, _MAXIMUM_PAGES = 100, 16, 6
# Whether a marker that is this much too late is ever seen is not worth the wait.
_GIVE_UP_TIMES = 1.5
_POLL_SECONDS = 0.001
_MARKER, _POINTER = ".metadata", "latest"


def marker(context: CheckContext, findings: Findings) -> None:
    """Commit by a file that is renamed into the checkpoint's folder, last of all."""
    _publish(context, findings, "marker")


def folder(context: CheckContext, findings: Findings) -> None:
    """Commit by renaming the checkpoint's folder."""
    _publish(context, findings, "folder")


def pointer(context: CheckContext, findings: Findings) -> None:
    """Commit by overwriting a small file that names the newest checkpoint."""
    _publish(context, findings, "pointer")


def _publish(context: CheckContext, findings: Findings, way: str) -> None:
    other, theirs = context.second()
    limit = BY_NAME[f"PUBLISH.{way}"].limit
    assert limit is not None
    give_up = _GIVE_UP_TIMES * limit
    calls, worst = Calls(context.tell), 0.0
    for number in range(1, context.count(_ROUNDS, minimum=3) + 1):
        final = context.folder / f"step-{number:06d}"
        draft = final.with_name(f"{final.name}.tmp") if way == "folder" else final
        lengths = {f"shard-{index:02d}": 1 + (number + index) % _MAXIMUM_PAGES for index in range(_FILES)}
        how = {"way": way, "step": final.name, "lengths": lengths, "number": number, "seed": context.seed}
        other.start("publish:watch", theirs, **how, give_up_seconds=give_up)
        calls("mkdir", draft)
        draft.mkdir()
        for name, length in lengths.items():
            write_durably(draft / name, pages.content(context.seed, [number] * length), calls)
        sync_folder(draft, calls)
        _commit(way, draft, final, lengths, calls)
        seen = other.stop(patience=give_up + 60)
        findings.take(seen["wrong"])
        findings.trials += 1
        worst = max(worst, seen["seconds"])
        findings.measured = worst
        if seen["seconds"] > limit or findings.anomaly_count:
            break
        _remove(final, (*lengths, *([_MARKER] if way == "marker" else [])), calls)
    findings.facts |= {"checkpoints published": f"{findings.trials:,}", "files in each": f"{_FILES}"}


def _commit(way: str, draft: Path, final: Path, lengths: Mapping[str, int], calls: Calls) -> None:
    if way == "folder":
        calls("rename", final)
        draft.rename(final)
        sync_folder(final.parent, calls)
    elif way == "marker":
        write_durably(final / f"{_MARKER}.tmp", _marker_text(lengths), calls)
        calls("rename", final / _MARKER)
        (final / f"{_MARKER}.tmp").rename(final / _MARKER)
        sync_folder(final, calls)
    else:
        write_durably(final.parent / _POINTER, final.name.encode(), calls, flags=os.O_CREAT | os.O_TRUNC)


def _marker_text(lengths: Mapping[str, int]) -> bytes:
    return json.dumps({name: length * pages.PAGE for name, length in lengths.items()}).encode()


def _remove(folder: Path, names: Iterable[str], calls: Calls) -> None:
    """Remove a checkpoint by its known names: whether a listing tells them is NAMES' subject."""
    calls("remove", folder)
    for name in names:
        (folder / name).unlink()
    folder.rmdir()


def watch(
    path: str,
    *,
    way: str,
    step: str,
    lengths: dict[str, int],
    number: int,
    seed: int,
    give_up_seconds: float,
    stopped: Callable[[], bool],
) -> dict[str, Any]:
    """Wait for a checkpoint's marker and open its files; the check says by "stop" that it has committed it.

    Return the seconds from then until all was there, or until this gave up, and what was wrong.
    """
    findings, committed = Findings(), None
    while (shown := _shown(path, way, step)) is None:
        if committed is None:
            committed = time.monotonic() if stopped() else None
        elif time.monotonic() - committed > give_up_seconds:
            return {"seconds": time.monotonic() - committed, "wrong": findings.plain()}
        # What comes late is looked for less often: 0.5 % of the wait is exact enough, and floods no target.
        time.sleep(_POLL_SECONDS if committed is None else max(_POLL_SECONDS, (time.monotonic() - committed) / 200))
    if committed is None:
        committed = time.monotonic()
    found, text = shown
    where = f"when {found} was seen"
    if way == "marker":
        expected = _marker_text(lengths)
        if text != expected:
            findings.wrong(
                "marker without its content",
                where=f"{found}, {where}",
                seen=f"{len(text):,} bytes, not those that were renamed",
                expected=f"the {len(expected):,} bytes that were fsynced before the rename",
            )
    for name, length in lengths.items():
        _look_at(findings, f"{path}/{step}/{name}", [number] * length, seed, where)
    seconds = time.monotonic() - committed
    if not findings.anomaly_count:
        for name, length in lengths.items():
            _compare(findings, f"{path}/{step}/{name}", [number] * length, seed, where)
    return {"seconds": seconds, "wrong": findings.plain()}


def _shown(path: str, way: str, step: str) -> tuple[str, bytes] | None:
    """Return the path that shows that a checkpoint is committed, and its bytes if it is a file; None if none does.

    A marker is looked for by opening it: to ask for its name or attributes before would hide that it is cut.
    """
    if way == "folder":
        shown = f"{path}/{step}"
        return (shown, b"") if os.path.lexists(shown) else None
    shown = f"{path}/{_POINTER}" if way == "pointer" else f"{path}/{step}/{_MARKER}"
    text = _text(shown)
    if text is None or (way == "pointer" and text != step.encode()):
        return None
    return shown, text


def _text(path: str) -> bytes | None:
    """Return the bytes of a small file; None if it is not there, or was replaced while it was opened."""
    try:
        return read_file(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise
        return None


def _look_at(findings: Findings, path: str, versions: list[int], seed: int, where: str) -> None:
    """Open a file, read its first and its last page, and then ask for its size.

    The size comes last: some clients bring their memory of a file up to date only when they are asked for it.
    """
    expected = len(versions) * pages.PAGE
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        _wrong(findings, path, where, f"{error.strerror} (errno {error.errno})", expected)
        return
    try:
        ends = {page: read_at(descriptor, page * pages.PAGE, pages.PAGE) for page in (0, len(versions) - 1)}
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    if size != expected:
        _wrong(findings, path, where, f"{size:,} bytes", expected)
        return
    for page, data in ends.items():
        if data != pages.page(seed, versions[page], page):
            what = "no bytes" if not data else "zeros" if not any(data) else "other bytes"
            _wrong(findings, f"{path} at offset {page * pages.PAGE:,}", where, what, expected)
            return


def _compare(findings: Findings, path: str, versions: list[int], seed: int, where: str) -> None:
    """Read a file whole and compare every byte."""
    if fault := pages.fault(_text(path) or b"", seed, versions):
        _wrong(findings, f"{path} at offset {fault.offset:,}", where, fault.seen, len(versions) * pages.PAGE)


def _wrong(findings: Findings, where: str, when: str, seen: str, expected: int) -> None:
    findings.wrong(
        "marker visible before its data",
        where=f"{where}, {when}",
        seen=seen,
        expected=f"the {expected:,} bytes that were durable before the commit",
    )
