"""NAMES: a folder lists what is in it, every name once (semantics 20 and 21)."""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.context import Findings
from pytest_ckpt.conformance.posix.checks.stale import GIVE_UP_TIMES
from pytest_ckpt.facts.checks import BY_NAME, FILES_OF_CHECKS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from pytest_ckpt.conformance.context import CheckContext

_THREADS = 8
_LISTINGS = 3
_KEPT, _ROUNDS = 500, 200
_BEFORE, _MEANWHILE = 1_000, 2_000


def many(context: CheckContext, findings: Findings) -> None:
    """Create files from several threads, timed, and list the folder."""
    each = context.count(FILES_OF_CHECKS, minimum=200) // 8
    names = [f"__{number}_{thread}.distcp" for number in range(each) for thread in range(8)]
    context.tell("open with O_CREAT", str(context.folder))
    with ThreadPoolExecutor(_THREADS) as threads:
        began = time.monotonic()
        list(threads.map(lambda thread: _create(context.folder, names[thread::_THREADS]), range(_THREADS)))
        findings.measured = time.monotonic() - began
    findings.trials = len(names)
    context.tell("list", str(context.folder))
    for listing in range(_LISTINGS):
        _compare(findings, f"listing {listing + 1} of {context.folder}", _listed(context.folder), names)
    findings.facts |= {"files created": f"{len(names):,}", "threads": str(_THREADS)}
    if len(names) < FILES_OF_CHECKS:
        findings.facts["the limit is for"] = f"{FILES_OF_CHECKS:,} files"


def after_change(context: CheckContext, findings: Findings) -> None:
    """Create, rename and remove one name after the other, and list after each."""
    expected = {f"kept-{number:04d}" for number in range(_KEPT)}
    _create(context.folder, expected)
    for number in range(context.count(_ROUNDS, minimum=10)):
        new, renamed = f"new-{number}", f"renamed-{number}"
        context.tell("create, rename, unlink", str(context.folder / new))
        (context.folder / new).touch()
        _compare(
            findings, f"{context.folder}, right after {new} was created", _listed(context.folder), expected | {new}
        )
        (context.folder / new).rename(context.folder / renamed)
        _compare(
            findings,
            f"{context.folder}, right after {new} became {renamed}",
            _listed(context.folder),
            expected | {renamed},
        )
        (context.folder / renamed).unlink()
        _compare(findings, f"{context.folder}, right after {renamed} was removed", _listed(context.folder), expected)
        oldest = min(expected)
        (context.folder / oldest).unlink()
        expected.remove(oldest)
        _compare(findings, f"{context.folder}, right after {oldest} was removed", _listed(context.folder), expected)
        findings.trials += 4


def second_client(context: CheckContext, findings: Findings) -> None:
    """Create names while the other client lists: it misses none that was there before, and in the end sees all."""
    other, folder = context.second()
    seconds = GIVE_UP_TIMES * (BY_NAME["STALE.names"].limit or 1.0)
    before = [f"before-{number:05d}" for number in range(context.count(_BEFORE, minimum=200))]
    new = [f"new-{number:05d}" for number in range(context.count(_MEANWHILE, minimum=200))]
    listings = rounds = 0
    while listings < context.count(100, minimum=5) and not findings.anomaly_count:
        path, theirs = context.folder / f"round-{rounds}", f"{folder}/round-{rounds}"
        path.mkdir()
        _create(path, before)
        _compare(findings, f"{path}, listed by the client that created the files", _listed(path), before)
        if findings.anomaly_count:
            break  # What its creator does not list, the other client is not waited for to list.
        context.tell("create while the other client lists", str(path))
        seen = other.ask("wait_until", theirs, look="names", wanted=before, seconds=seconds, patience=seconds + 60)
        if seen["agreed"]:
            other.start("names:watch", theirs, before=before, new=new)
            _create(path, new)
            watched = other.stop()
            listings += watched["listings"]
            findings.take(watched["wrong"])
            other.ask("wait_until", theirs, look="names", wanted=before + new, seconds=seconds, patience=seconds + 60)
        _compare(
            findings,
            f"{theirs}, listed by {other.name} after {len(before + new):,} files were created",
            other.ask("names", theirs),
            before + new if seen["agreed"] else before,
        )
        findings.trials += len(before + new)
        rounds += 1
    findings.facts |= {"files created": f"{findings.trials:,}", "listings meanwhile": f"{listings:,}"}


def watch(path: str, *, before: list[str], new: list[str], stopped: Callable[[], bool]) -> dict[str, Any]:
    """List a folder until told to end: every name that was there before once, of the others none twice."""
    findings, listings = Findings(), 0
    while True:
        listings += 1
        where = f"listing {listings:,} of {path}, while the other client creates files"
        _compare(findings, where, _listed(path), before, meanwhile=new)
        if stopped():
            return {"listings": listings, "wrong": findings.plain()}


def _compare(
    findings: Findings, where: str, listed: list[str], expected: Collection[str], *, meanwhile: Collection[str] = ()
) -> None:
    """Note names that are missing, doubled or unknown in a listing; those of ``meanwhile`` may be there or not."""
    counts = Counter(listed)
    missing = [name for name in expected if name not in counts]
    doubled = [name for name, count in counts.items() if count > 1]
    unknown = sorted(counts.keys() - set(expected) - set(meanwhile))
    words = f"{len(expected):,} names, each once"
    if missing:
        findings.wrong("name missing in a listing", where=where, seen=_told("without", missing), expected=words)
    if doubled:
        findings.wrong("name listed twice", where=where, seen=_told("twice", doubled), expected=words)
    if unknown:
        findings.wrong("removed or unknown name in a listing", where=where, seen=_told("with", unknown), expected=words)


def _told(how: str, names: list[str]) -> str:
    return f"{how} {names[0]}" + (f" and {len(names) - 1:,} others" if len(names) > 1 else "")


def _create(folder: Path, names: Collection[str]) -> None:
    for name in names:
        os.close(os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def _listed(folder: Path | str) -> list[str]:
    return os.listdir(folder)  # noqa: PTH208 - doubled names must stay doubled
