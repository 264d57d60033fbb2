"""COMMIT: a rename replaces a name atomically for every reader (semantics 1 and 2)."""

from __future__ import annotations

import errno
import functools
import os
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance import pages
from pytest_ckpt.conformance.context import Findings
from pytest_ckpt.conformance.not_run import NotRun
from pytest_ckpt.conformance.posix.client import Client
from pytest_ckpt.conformance.reading import read_file
from pytest_ckpt.conformance.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.conformance.context import CheckContext

_REPLACEMENTS, _RENAMES, _FILES = 10_000, 1_000, 1_000
_MINIMUM_REPLACEMENTS, _MINIMUM_RENAMES = 200, 50
# What is done between two words with the watcher; short enough that a fault of every rename is soon enough.
_AT_ONCE = 250
# The kernel tries twice itself. A reader that meets another replacement in each of so many tries is not by chance.
_STALE_IN_A_ROW = 5


def replace_file(context: CheckContext, findings: Findings) -> None:
    """Replace a file by rename while a process of this host reads it."""
    with closing(Client(name="the reader", tell=context.tell)) as watcher:
        _replace_file(context, findings, watcher, str(context.folder))


def replace_file_second(context: CheckContext, findings: Findings) -> None:
    """Replace a file by rename while the other client reads it."""
    other, folder = context.second()
    _replace_file(context, findings, other, folder)


def rename_folder(context: CheckContext, findings: Findings) -> None:
    """Rename a folder while a process of this host lists it."""
    with closing(Client(name="the watcher", tell=context.tell)) as watcher:
        _rename_folder(context, findings, watcher, str(context.folder))


def rename_folder_second(context: CheckContext, findings: Findings) -> None:
    """Rename a folder while the other client lists it."""
    other, folder = context.second()
    _rename_folder(context, findings, other, folder)


def _replace_file(context: CheckContext, findings: Findings, watcher: Client, folder: str) -> None:
    race = Watched(
        context=context,
        change="rename",
        look="complete read",
        wanted=context.count(_REPLACEMENTS, minimum=_MINIMUM_REPLACEMENTS),
        minimum=_MINIMUM_REPLACEMENTS,
    )
    path, temporary = context.folder / "file", context.folder / "file.tmp"
    path.write_bytes(_version(context.seed, 0))
    if not watcher.sees(f"{folder}/file"):
        _unseen(findings, watcher, f"{folder}/file")
        return
    refused = 0
    while race.goes_on(findings):
        watcher.start("commit:watch_file", f"{folder}/file", seed=context.seed)
        for version in race.some(_AT_ONCE, "rename", str(path)):
            temporary.write_bytes(_version(context.seed, version))
            temporary.replace(path)
        seen = watcher.stop()
        race.looks += seen["reads"]
        refused += seen["refused"]
        findings.trials = race.changes
        findings.take(seen["wrong"])
        _settled(context, findings, path, race.changes)
    findings.facts |= {"replacements": f"{race.changes:,}", "complete reads": f"{race.looks:,}"}
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
    """Look at the file once no rename is under way: it is the last version."""
    fault = pages.fault(read_file(path), context.seed, _pages(version))
    if fault:
        findings.wrong(
            f"{fault.kind} after a rename",
            where=f"{path} at offset {fault.offset:,}, after replacement {version:,}, nothing under way",
            seen=fault.seen,
            expected=f"version {version}, which the last rename brought",
        )


def watch_file(path: str, *, seed: int, stopped: Callable[[], bool]) -> dict[str, Any]:
    """Read a file again and again until told to end: every time, it is one whole version, and no older one than before.

    A file that is replaced between its lookup and its open, or while it is open elsewhere, may be refused with ESTALE
    by a network file system. No reader takes that for data, and the next try is to find the new file.
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
            version = pages.version_of(data)
            fault = pages.fault(data, seed, _pages(newest + 1 if version is None else version))
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
    """Return a version's pages; sizes differ, so that old bytes in a file of the new size show."""
    return [version] * (1 + version % 4)


def _version(seed: int, version: int) -> bytes:
    return pages.content(seed, _pages(version))


def _rename_folder(context: CheckContext, findings: Findings, watcher: Client, folder: str) -> None:
    files, wanted = context.count(_FILES, minimum=100), context.count(_RENAMES, minimum=_MINIMUM_RENAMES)
    race = Watched(context=context, change="rename", look="listing", wanted=wanted, minimum=_MINIMUM_RENAMES)
    both = [context.folder / "step.tmp", context.folder / "step"]
    both[0].mkdir()
    for name in _names(files):
        (both[0] / name).touch()
    _begin_whole(watcher, f"{folder}/{both[0].name}", files)
    while race.goes_on(findings):
        paths = [f"{folder}/{path.name}" for path in both]
        watcher.start("commit:watch_folder", folder, paths=paths, files=files)
        # An odd number, so that each name is the last one in turn.
        for _ in race.some(min(_AT_ONCE, wanted) | 1, "rename", str(both[0])):
            both[0].rename(both[1])
            both.reverse()
        seen = watcher.stop()
        race.looks += seen["lists"]
        findings.trials = race.changes
        findings.take(seen["wrong"])
        when = f"after rename {race.changes:,}, nothing under way"
        _whole(findings, both[0], files, f"{both[0]}, {when}", "after a rename")
        if os.path.lexists(both[1]):
            findings.wrong(
                "folder under both names after a rename",
                where=f"{both[1]}, {when}",
                seen=f"it is still there, beside {both[0].name}",
                expected="no such folder",
            )
    counted = {"renames": f"{race.changes:,}", "lists of the whole folder": f"{race.looks:,}"}
    findings.facts |= {"files": f"{files:,}", **counted}


def _begin_whole(watcher: Client, path: str, files: int) -> None:
    """Wait until the watcher lists the whole folder; where it never does, what a rename does cannot be told."""
    listed = watcher.ask("wait_until", path, look="names", wanted=sorted(_names(files)), seconds=10.0)
    if not listed["agreed"]:
        found = len(listed["last"]) if isinstance(listed["last"], list) else listed["last"]
        raise NotRun(
            f"no rename can be watched: {watcher.name} lists {path} with {found} names instead of {files:,}, for 10 s "
            "and before any rename (NAMES and STALE are about that)"
        )


def watch_folder(path: str, *, paths: list[str], files: int, stopped: Callable[[], bool]) -> dict[str, Any]:
    """List a folder by both its names until told to end: it is not there, or it holds all its files."""
    findings, lists, looks, in_a_row = Findings(), 0, 0, 0
    while True:
        for name in paths:
            looks += 1
            try:
                lists += _whole(findings, Path(name), files, f"{name}, look {looks:,}", "during a rename")
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


def _whole(findings: Findings, folder: Path, files: int, where: str, when: str) -> bool:
    """Return whether a folder lists each of its names once; note what is wrong with it otherwise."""
    expected = _names(files)
    listed = os.listdir(folder)  # noqa: PTH208 - doubled names must stay doubled
    if len(listed) == files and expected.issuperset(listed) and len(set(listed)) == files:
        return True
    missing, more = sorted(expected.difference(listed)), sorted((Counter(listed) - Counter(expected)).elements())
    if not listed:
        findings.wrong(
            f"folder empty {when}", where=where, seen="no names", expected=f"no such folder, or all {files:,} names"
        )
    elif missing:
        findings.wrong(
            f"folder with a part of its files {when}",
            where=where,
            seen=f"{len(set(listed)):,} of {files:,} names; {missing[0]} is missing",
            expected=f"no such folder, or all {files:,} names",
        )
    if more:
        findings.wrong(
            f"name listed twice {when}" if more[0] in expected else f"unknown name {when}",
            where=where,
            seen=f"{more[0]}, beside {len(listed) - 1:,} others",
            expected=f"the {files:,} names, each once",
        )
    return False


@functools.cache
def _names(files: int) -> frozenset[str]:
    return frozenset(f"rank-{number:06d}.distcp" for number in range(files))
