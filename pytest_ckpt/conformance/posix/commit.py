"""COMMIT and PUBLISH: what readers see during a commit, and the time until they see the checkpoint.

COMMIT: a rename replaces a name atomically for every reader. PUBLISH: another client that sees the commit of a
checkpoint finds all files of the checkpoint complete, soon after the commit.

In PUBLISH, a marker file, the rename of a directory, or a pointer file commits a checkpoint. The other client begins to
look for the commit before the save, like a job that waits for the next checkpoint. The other client also measures the
time. The time starts when the client receives the message that the commit has returned. If the client sees the commit
earlier, the time starts then. The time ends when the client has opened every file, and checked the size, the first page
and the last page. Then the client compares all bytes.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.client import Client
from pytest_ckpt.conformance.content import PAGE, page_fault, page_of, pages_of, read_at, read_file, version_of
from pytest_ckpt.conformance.context import Findings, NotRun, ObservedRace
from pytest_ckpt.conformance.posix.checkpoints import Calls, sync_directory, write_durably
from pytest_ckpt.facts.checks import BY_NAME
from pytest_ckpt.targets.posix.commit import BY_RENAME
from pytest_ckpt.targets.posix.names import RENAME_REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_ckpt.conformance.context import CheckContext

_REPLACEMENTS, _RENAMES, _FILES = 10_000, 1_000, 1_000
_MINIMUM_REPLACEMENTS, _MINIMUM_RENAMES = 200, 50
# Operations between two messages to the watcher. The number is small, so that a fault of every rename is found early.
_AT_ONCE = 250
# The kernel itself tries each open twice. If this many opens in a row fail with ESTALE, this is not by chance.
_STALE_IN_A_ROW = 5


def replace_file(context: CheckContext, findings: Findings) -> None:
    """Replace a file by rename while another process of this host reads it."""
    with closing(Client(name="the reader", report_call=context.report_call)) as watcher:
        _replace_file(context, findings, watcher, str(context.directory))


def replace_file_second(context: CheckContext, findings: Findings) -> None:
    """Replace a file by rename while the other client reads it."""
    other, directory = context.second()
    _replace_file(context, findings, other, directory)


def rename_directory(context: CheckContext, findings: Findings) -> None:
    """Rename a directory while another process of this host lists it."""
    with closing(Client(name="the watcher", report_call=context.report_call)) as watcher:
        _rename_directory(context, findings, watcher, str(context.directory))


def rename_directory_second(context: CheckContext, findings: Findings) -> None:
    """Rename a directory while the other client lists it."""
    other, directory = context.second()
    _rename_directory(context, findings, other, directory)


def _replace_file(context: CheckContext, findings: Findings, watcher: Client, directory: str) -> None:
    race = ObservedRace(
        context=context,
        change="rename",
        query="complete read",
        wanted=context.count(_REPLACEMENTS, minimum=_MINIMUM_REPLACEMENTS),
        minimum=_MINIMUM_REPLACEMENTS,
    )
    path, temporary = context.directory / "file", context.directory / "file.tmp"
    path.write_bytes(_version(context.seed, 0))
    if not watcher.sees(f"{directory}/file"):
        _unseen(findings, watcher, f"{directory}/file")
        return
    refused = 0
    while race.may_continue(findings):
        watcher.start("commit:watch_file", f"{directory}/file", seed=context.seed)
        for version in race.some(_AT_ONCE, "rename", str(path)):
            temporary.write_bytes(_version(context.seed, version))
            temporary.replace(path)
        seen = watcher.stop()
        race.observations += seen["reads"]
        refused += seen["refused"]
        findings.trials = race.changes
        findings.add_plain(seen["wrong"])
        _settled(context, findings, path, race.changes)
    findings.facts |= {"replacements": f"{race.changes:,}", "complete reads": f"{race.observations:,}"}
    if refused:
        findings.facts["reads of a replaced file refused with ESTALE"] = f"{refused:,}"


def _unseen(findings: Findings, watcher: Client, path: str) -> None:
    findings.wrong(
        "new name is not visible",
        where=f"{path}, looked for by {watcher.name}",
        seen="no such name, for 10 s",
        expected="the name, before a rename is tried",
    )


def _settled(context: CheckContext, findings: Findings, path: Path, version: int) -> None:
    """Record an anomaly if the file does not contain ``version``, the version of the last rename."""
    fault = page_fault(read_file(path), context.seed, _pages(version))
    if fault:
        findings.wrong(
            f"{fault.kind} after a rename",
            where=f"{path} at offset {fault.offset:,}, after replacement {version:,}, no change in progress",
            seen=fault.seen,
            expected=f"version {version}, which the last rename brought",
        )


def watch_file(path: str, *, seed: int, stopped: Callable[[], bool]) -> dict[str, Any]:
    """Read a file until ``stopped`` returns true.

    Each read must return one complete version, not older than the version of the previous read. Return {reads: number
    of reads, refused: number of refused reads, wrong: anomalies}.

    If a file is replaced between lookup and open, or while a client has it open, a network file system may return
    ESTALE. A few such errors in a row are not an anomaly, because no reader mistakes an error for data.
    """
    findings, reads, refused, in_a_row, newest, last = Findings(), 0, 0, 0, -1, "none yet"
    while True:
        try:
            data = read_file(path)
            in_a_row = 0
        except OSError as error:
            in_a_row = in_a_row + 1 if error.errno == errno.ESTALE else _STALE_IN_A_ROW
            if in_a_row < _STALE_IN_A_ROW:
                refused += 1
            else:
                missing = error.errno == errno.ENOENT
                findings.wrong(
                    "name missing during a rename" if missing else "error during a rename",
                    where=f"{path}, read {reads:,}; version read before: {last}",
                    seen=f"{error.strerror} (errno {error.errno})",
                    expected="the old bytes or the new ones",
                )
        else:
            reads += 1
            version = version_of(data)
            fault = page_fault(data, seed, _pages(newest + 1 if version is None else version))
            if fault:
                findings.wrong(
                    f"{fault.kind} during a rename",
                    where=f"{path} at offset {fault.offset:,}, read {reads:,}; version read before: {last}",
                    seen=fault.seen,
                    expected=f"all of version {version}" if version is not None else "the old bytes or the new ones",
                )
            elif version is not None and version < newest:
                findings.wrong(
                    "bytes of an older version during a rename",
                    where=f"{path}, read {reads:,}",
                    seen=f"version {version}, after version {newest} had been read",
                    expected=f"version {newest} or a newer one",
                )
            elif version is not None:
                newest, last = version, str(version)
        if stopped():
            return {"reads": reads, "refused": refused, "wrong": findings.plain()}


def _pages(version: int) -> list[int]:
    """Return ``version`` once for each page of a complete file of this version.

    Consecutive versions have different numbers of pages (1 to 4), so that old bytes in a file of the new size are
    detected.
    """
    return [version] * (1 + version % 4)


def _version(seed: int, version: int) -> bytes:
    return pages_of(seed, _pages(version))


def _rename_directory(context: CheckContext, findings: Findings, watcher: Client, directory: str) -> None:
    files, wanted = context.count(_FILES, minimum=100), context.count(_RENAMES, minimum=_MINIMUM_RENAMES)
    race = ObservedRace(context=context, change="rename", query="listing", wanted=wanted, minimum=_MINIMUM_RENAMES)
    both = [context.directory / "step.tmp", context.directory / "step"]
    both[0].mkdir()
    for name in _names(files):
        (both[0] / name).touch()
    context.report_call("rename", str(both[0]))
    try:
        both[0].rename(both[1])
    except OSError as error:
        if error.errno not in RENAME_REFUSED:
            raise
        findings.wrong(
            "rename of a directory is refused",
            where=f"{both[0]}, with {files:,} files",
            seen=f"{error.strerror} (errno {error.errno})",
            expected=f"it is {both[1].name} then",
        )
        return
    both.reverse()
    _await_complete(watcher, f"{directory}/{both[0].name}", files)
    while race.may_continue(findings):
        paths = [f"{directory}/{path.name}" for path in both]
        watcher.start("commit:watch_directory", directory, paths=paths, files=files)
        # An odd number, so that both names take turns as the last one.
        for _ in race.some(min(_AT_ONCE, wanted) | 1, "rename", str(both[0])):
            both[0].rename(both[1])
            both.reverse()
        seen = watcher.stop()
        race.observations += seen["lists"]
        findings.trials = race.changes
        findings.add_plain(seen["wrong"])
        when = f"after rename {race.changes:,}, no change in progress"
        _is_listed_completely(findings, both[0], files, f"{both[0]}, {when}", "after a rename")
        if os.path.lexists(both[1]):
            findings.wrong(
                "directory under both names after a rename",
                where=f"{both[1]}, {when}",
                seen=f"it is still there, in addition to {both[0].name}",
                expected="no such directory",
            )
    counted = {"renames": f"{race.changes:,}", "lists of the whole directory": f"{race.observations:,}"}
    findings.facts |= {"files": f"{files:,}", **counted}


def _await_complete(watcher: Client, path: str, files: int) -> None:
    """Wait until the watcher lists the complete directory. Raises NotRun after 10 s."""
    listed = watcher.request("wait_until", path, query="names", wanted=sorted(_names(files)), seconds=10.0)
    if not listed["agreed"]:
        found = len(listed["last"]) if isinstance(listed["last"], list) else listed["last"]
        raise NotRun(
            f"no rename can be watched: {watcher.name} lists {path} with {found} names instead of {files:,}, for 10 s "
            "and before any rename (NAMES and STALE test this)"
        )


def watch_directory(path: str, *, paths: list[str], files: int, stopped: Callable[[], bool]) -> dict[str, Any]:
    """List a directory under both of its names until ``stopped`` returns true.

    In each listing, the directory must be missing or contain all its files. Return {lists: number of complete listings,
    wrong: faults}. ``files`` is the number of files.
    """
    findings, lists, observations, in_a_row = Findings(), 0, 0, 0
    while True:
        for name in paths:
            observations += 1
            try:
                lists += _is_listed_completely(
                    findings, Path(name), files, f"{name}, look {observations:,}", "during a rename"
                )
            except FileNotFoundError:
                continue
            except OSError as error:
                in_a_row += 1
                if error.errno != errno.ESTALE or in_a_row == _STALE_IN_A_ROW:
                    raise
            else:
                in_a_row = 0
        if stopped():
            return {"lists": lists, "wrong": findings.plain()}


def _is_listed_completely(findings: Findings, directory: Path, files: int, where: str, when: str) -> bool:
    """Return whether a directory lists all its files once. Record the faults of a wrong listing."""
    expected = _names(files)
    listed = os.listdir(directory)  # noqa: PTH208 - doubled names must stay doubled
    if len(listed) == files and expected.issuperset(listed) and len(set(listed)) == files:
        return True
    missing, more = sorted(expected.difference(listed)), sorted((Counter(listed) - Counter(expected)).elements())
    if not listed:
        findings.wrong(
            f"directory empty {when}",
            where=where,
            seen="no names",
            expected=f"no such directory, or all {files:,} names",
        )
    elif missing:
        findings.wrong(
            f"directory with a part of its files {when}",
            where=where,
            seen=f"{len(set(listed)):,} of {files:,} names; {missing[0]} is missing",
            expected=f"no such directory, or all {files:,} names",
        )
    if more:
        findings.wrong(
            f"name listed twice {when}" if more[0] in expected else f"unknown name {when}",
            where=where,
            seen=f"{more[0]}, in addition to {len(listed) - 1:,} others",
            expected=f"the {files:,} names, each once",
        )
    return False


@functools.cache
def _names(files: int) -> frozenset[str]:
    return frozenset(f"rank-{number:06d}.distcp" for number in range(files))


_CHECKPOINTS, _PUBLISHED_FILES, _MAXIMUM_PAGES = 100, 16, 6
# After this delay the check fails anyway, so it does not wait longer.
_GIVE_UP_TIMES = 1.5
_POLL_SECONDS = 0.001
_MARKER, _POINTER = ".metadata", "latest"


def publish_marker(context: CheckContext, findings: Findings) -> None:
    """Publish checkpoints by a marker file that is renamed last. The other client waits for each checkpoint."""
    _publish(context, findings, "marker")


def publish_directory(context: CheckContext, findings: Findings) -> None:
    """Publish checkpoints by renaming their directory. The other client waits for each checkpoint.

    Raises NotRun on a target that refuses to rename directories.
    """
    if context.commit is not BY_RENAME:
        raise NotRun(
            "the target refuses to rename a directory, so no checkpoint is published so: PUBLISH.marker "
            "and PUBLISH.pointer check the other ways"
        )
    _publish(context, findings, "directory")


def publish_pointer(context: CheckContext, findings: Findings) -> None:
    """Publish checkpoints by overwriting a pointer (a file that names the newest checkpoint).

    The other client waits for each checkpoint.
    """
    _publish(context, findings, "pointer")


def _publish(context: CheckContext, findings: Findings, publication: str) -> None:
    other, theirs = context.second()
    limit = BY_NAME[f"PUBLISH.{publication}"].limit
    assert limit is not None
    give_up = _GIVE_UP_TIMES * limit
    calls, worst = Calls(context.report_call), 0.0
    for number in range(1, context.count(_CHECKPOINTS, minimum=3) + 1):
        final = context.directory / f"step-{number:06d}"
        draft = final.with_name(f"{final.name}.tmp") if publication == "directory" else final
        lengths = {f"shard-{index:02d}": 1 + (number + index) % _MAXIMUM_PAGES for index in range(_PUBLISHED_FILES)}
        how = {
            "publication": publication,
            "step": final.name,
            "lengths": lengths,
            "number": number,
            "seed": context.seed,
        }
        other.start("commit:watch_for_marker", theirs, **how, give_up_seconds=give_up)
        calls("mkdir", draft)
        draft.mkdir()
        for name, length in lengths.items():
            write_durably(draft / name, pages_of(context.seed, [number] * length), calls)
        sync_directory(draft, calls)
        _commit(context, findings, publication, draft, final, lengths, calls)
        seen = other.stop(patience=give_up + 60)
        findings.add_plain(seen["wrong"])
        findings.trials += 1
        worst = max(worst, seen["seconds"])
        findings.measured = worst
        if seen["seconds"] > limit or findings.anomaly_count:
            break
        _remove_checkpoint(final, (*lengths, *([_MARKER] if publication == "marker" else [])), calls)
    findings.facts |= {"checkpoints published": f"{findings.trials:,}", "files in each": f"{_PUBLISHED_FILES}"}


def _commit(
    context: CheckContext,
    findings: Findings,
    publication: str,
    draft: Path,
    final: Path,
    lengths: Mapping[str, int],
    calls: Calls,
) -> None:
    if publication == "directory":
        calls("rename", final)
        draft.rename(final)
        sync_directory(final.parent, calls)
    elif publication == "marker":
        write_durably(final / f"{_MARKER}.tmp", _marker_text(lengths), calls)
        if not context.rename_file(final / f"{_MARKER}.tmp", final / _MARKER, findings):
            raise NotRun("the target refuses to rename a file, so no marker is published so: see COMMIT.file")
        sync_directory(final, calls)
    else:
        write_durably(final.parent / _POINTER, final.name.encode(), calls, flags=os.O_CREAT | os.O_TRUNC)


def _marker_text(lengths: Mapping[str, int]) -> bytes:
    return json.dumps({name: length * PAGE for name, length in lengths.items()}).encode()


def _remove_checkpoint(directory: Path, names: Iterable[str], calls: Calls) -> None:
    """Remove the files ``names``, and then the directory.

    The directory is not listed: a wrong listing is a fault that only the requirement NAMES reports.
    """
    calls("remove", directory)
    for name in names:
        (directory / name).unlink()
    directory.rmdir()


def watch_for_marker(
    path: str,
    *,
    publication: str,
    step: str,
    lengths: dict[str, int],
    number: int,
    seed: int,
    give_up_seconds: float,
    stopped: Callable[[], bool],
) -> dict[str, Any]:
    """Wait until a checkpoint is visible as committed, then open and compare its files.

    ``publication`` is the method of the commit: marker, directory or pointer. ``step`` is the name of the checkpoint's
    directory. ``lengths`` is {file name: number of pages}, and ``number`` is the version of all pages. When ``stopped``
    returns true, the check has committed the checkpoint. ``give_up_seconds`` is the timeout after the commit.

    Return {seconds: time from the commit until all files were checked or until the timeout, wrong: faults}. The
    comparison of all bytes is not part of this time.
    """
    findings, committed = Findings(), None
    while (shown := _shown(path, publication, step)) is None:
        if committed is None:
            committed = time.monotonic() if stopped() else None
        elif time.monotonic() - committed > give_up_seconds:
            return {"seconds": time.monotonic() - committed, "wrong": findings.plain()}
        # The pause grows with the wait: 0.5 % of it is exact enough, and limits the load on the target.
        time.sleep(_POLL_SECONDS if committed is None else max(_POLL_SECONDS, (time.monotonic() - committed) / 200))
    if committed is None:
        committed = time.monotonic()
    found, text = shown
    where = f"when {found} was seen"
    if publication == "marker":
        expected = _marker_text(lengths)
        if text != expected:
            findings.wrong(
                "marker without its content",
                where=f"{found}, {where}",
                seen=f"{len(text):,} bytes, not the renamed ones",
                expected=f"the {len(expected):,} bytes that were fsynced before the rename",
            )
    for name, length in lengths.items():
        _check_file(findings, f"{path}/{step}/{name}", [number] * length, seed, where)
    seconds = time.monotonic() - committed
    if not findings.anomaly_count:
        for name, length in lengths.items():
            _compare_file(findings, f"{path}/{step}/{name}", [number] * length, seed, where)
    return {"seconds": seconds, "wrong": findings.plain()}


def _shown(path: str, publication: str, step: str) -> tuple[str, bytes] | None:
    """Return (path, bytes) of the file that shows that a checkpoint is committed; None before the commit is visible.

    If the commit is the rename of a directory, return the path of the directory and no bytes. A marker is opened
    without an earlier query for its name or attributes. Such a query would update the cached size of the file, and hide
    a read that ends too early.
    """
    if publication == "directory":
        shown = f"{path}/{step}"
        return (shown, b"") if os.path.lexists(shown) else None
    shown = f"{path}/{_POINTER}" if publication == "pointer" else f"{path}/{step}/{_MARKER}"
    text = _small_file(shown)
    if text is None or (publication == "pointer" and text != step.encode()):
        return None
    return shown, text


def _small_file(path: str) -> bytes | None:
    """Return the bytes of a small file; None if the file is missing or was replaced during the open."""
    try:
        return read_file(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise
        return None


def _check_file(findings: Findings, path: str, versions: list[int], seed: int, where: str) -> None:
    """Open a file, read its first and last page, and query its size. Record the first fault.

    The size is queried last, because this query refreshes the attribute cache of some clients.
    """
    expected = len(versions) * PAGE
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        _wrong_file(findings, path, where, f"{error.strerror} (errno {error.errno})", expected)
        return
    try:
        ends = {page: read_at(descriptor, page * PAGE, PAGE) for page in (0, len(versions) - 1)}
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    if size != expected:
        _wrong_file(findings, path, where, f"{size:,} bytes", expected)
        return
    for page, data in ends.items():
        if data != page_of(seed, versions[page], page):
            what = "no bytes" if not data else "zeros" if not any(data) else "other bytes"
            _wrong_file(findings, f"{path} at offset {page * PAGE:,}", where, what, expected)
            return


def _compare_file(findings: Findings, path: str, versions: list[int], seed: int, where: str) -> None:
    """Read a complete file and compare all bytes. Record the first fault."""
    if fault := page_fault(_small_file(path) or b"", seed, versions):
        _wrong_file(findings, f"{path} at offset {fault.offset:,}", where, fault.seen, len(versions) * PAGE)


def _wrong_file(findings: Findings, where: str, when: str, seen: str, expected: int) -> None:
    findings.wrong(
        "marker visible before its data",
        where=f"{where}, {when}",
        seen=seen,
        expected=f"the {expected:,} bytes that were durable before the commit",
    )
