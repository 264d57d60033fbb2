"""NAMES and UNLINK: listings of directories, and the removal of files in use.

NAMES: a listing contains each name of the directory once. UNLINK: a process can continue to read an open file after the
file was removed or replaced.
"""

from __future__ import annotations

import errno
import mmap
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.actions import decoded
from pytest_ckpt.conformance.content import compare, difference, random_bytes, read_to_end, sync_and_forget
from pytest_ckpt.conformance.context import Findings
from pytest_ckpt.conformance.posix.visible import GIVE_UP_TIMES
from pytest_ckpt.conformance.workers import all_have_sent, gather, working
from pytest_ckpt.facts.checks import BY_NAME, FILES_OF_CHECKS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pytest_ckpt.conformance.context import CheckContext
    from pytest_ckpt.conformance.workers import WorkerChannel

_THREADS = 8
_LISTINGS = 3
_KEPT, _ROUNDS = 500, 200
_BEFORE, _MEANWHILE = 1_000, 2_000


def many(context: CheckContext, findings: Findings) -> None:
    """Create files from several threads, measure the time, and list the directory."""
    each = context.count(FILES_OF_CHECKS, minimum=200) // 8
    names = [f"__{number}_{thread}.distcp" for number in range(each) for thread in range(8)]
    context.report_call("open with O_CREAT", str(context.directory))
    with ThreadPoolExecutor(_THREADS) as threads:
        began = time.monotonic()
        list(threads.map(lambda thread: _create(context.directory, names[thread::_THREADS]), range(_THREADS)))
        findings.measured = time.monotonic() - began
    findings.trials = len(names)
    context.report_call("list", str(context.directory))
    for listing in range(_LISTINGS):
        _compare(findings, f"listing {listing + 1} of {context.directory}", _listed(context.directory), names)
    rate = len(names) / max(findings.measured, time.get_clock_info("monotonic").resolution)
    findings.facts |= {
        "files created": f"{len(names):,}",
        "threads": str(_THREADS),
        "rate": f"{rate:,.0f} files/s by one client",
    }


def after_change(context: CheckContext, findings: Findings) -> None:
    """Create, rename and remove names one at a time, and list the directory after each change."""
    expected = {f"kept-{number:04d}" for number in range(_KEPT)}
    _create(context.directory, expected)
    for number in range(context.count(_ROUNDS, minimum=10)):
        new, renamed = f"new-{number}", f"renamed-{number}"
        context.report_call("create, rename, unlink", str(context.directory / new))
        (context.directory / new).touch()
        _compare(
            findings,
            f"{context.directory}, right after {new} was created",
            _listed(context.directory),
            expected | {new},
        )
        (context.directory / new).rename(context.directory / renamed)
        _compare(
            findings,
            f"{context.directory}, right after {new} became {renamed}",
            _listed(context.directory),
            expected | {renamed},
        )
        (context.directory / renamed).unlink()
        _compare(
            findings, f"{context.directory}, right after {renamed} was removed", _listed(context.directory), expected
        )
        oldest = min(expected)
        (context.directory / oldest).unlink()
        expected.remove(oldest)
        _compare(
            findings, f"{context.directory}, right after {oldest} was removed", _listed(context.directory), expected
        )
        findings.trials += 4


def list_on_second(context: CheckContext, findings: Findings) -> None:
    """Create names while the other client lists the directory.

    Each listing must contain the names that existed before the creation began. A listing after the creation must
    contain all names.
    """
    other, directory = context.second()
    seconds = GIVE_UP_TIMES * (BY_NAME["STALE.names"].limit or 1.0)
    before = [f"before-{number:05d}" for number in range(context.count(_BEFORE, minimum=200))]
    new = [f"new-{number:05d}" for number in range(context.count(_MEANWHILE, minimum=200))]
    listings = rounds = 0
    while listings < context.count(100, minimum=5) and not findings.anomaly_count:
        path, theirs = context.directory / f"round-{rounds}", f"{directory}/round-{rounds}"
        path.mkdir()
        _create(path, before)
        _compare(findings, f"{path}, listed by the client that created the files", _listed(path), before)
        if findings.anomaly_count:
            break  # If the creator does not list a name, do not wait until the other client lists it.
        context.report_call("create while the other client lists", str(path))
        seen = other.request("wait_until", theirs, query="names", wanted=before, seconds=seconds, patience=seconds + 60)
        if seen["agreed"]:
            other.start("names:watch_listing", theirs, before=before, new=new)
            _create(path, new)
            watched = other.stop()
            listings += watched["listings"]
            findings.add_plain(watched["wrong"])
            other.request(
                "wait_until", theirs, query="names", wanted=before + new, seconds=seconds, patience=seconds + 60
            )
        _compare(
            findings,
            f"{theirs}, listed by {other.name} after {len(before + new):,} files were created",
            other.request("names", theirs),
            before + new if seen["agreed"] else before,
        )
        findings.trials += len(before + new)
        rounds += 1
    findings.facts |= {"files created": f"{findings.trials:,}", "listings meanwhile": f"{listings:,}"}


def watch_listing(path: str, *, before: list[str], new: list[str], stopped: Callable[[], bool]) -> dict[str, Any]:
    """List a directory until ``stopped`` returns true. Return {listings: number of listings, wrong: anomalies}.

    In each listing, each name of ``before`` must appear once, and each name of ``new`` at most once.
    """
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
    """Record names that are missing, duplicate or unknown in a listing.

    ``expected`` are the names that the listing must contain. Names in ``meanwhile`` are created during the listing, so
    they may be missing.
    """
    counts = Counter(listed)
    missing = [name for name in expected if name not in counts]
    doubled = [name for name, count in counts.items() if count > 1]
    unknown = sorted(counts.keys() - set(expected) - set(meanwhile))
    words = f"{len(expected):,} names, each once"
    if missing:
        findings.wrong("name missing in a listing", where=where, seen=_names_text("without", missing), expected=words)
    if doubled:
        findings.wrong("name listed twice", where=where, seen=_names_text("twice", doubled), expected=words)
    if unknown:
        findings.wrong(
            "removed or unknown name in a listing", where=where, seen=_names_text("with", unknown), expected=words
        )


def _names_text(how: str, names: list[str]) -> str:
    return f"{how} {names[0]}" + (f" and {len(names) - 1:,} others" if len(names) > 1 else "")


def _create(directory: Path, names: Collection[str]) -> None:
    for name in names:
        os.close(os.open(directory / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def _listed(directory: Path | str) -> list[str]:
    return os.listdir(directory)  # noqa: PTH208 - doubled names must stay doubled


_UNLINK_ROUNDS = 25
_FILES = 9
_MAPPED_FILES = 3
_FILE_BYTES = 512 << 10
_HEAD_BYTES = 64 << 10


def open_reader(context: CheckContext, findings: Findings) -> None:
    """Remove, replace and recreate files that other processes of this host have open.

    These processes continue to read the files by descriptors and mappings. Each process must receive all bytes of the
    original files.
    """
    for number in range(context.count(_UNLINK_ROUNDS, minimum=3)):
        files = _files_to_unlink(context, number)
        context.report_call("open", str(context.directory))
        paths = list(files)
        mapped = {path: files[path] for path in paths[:_MAPPED_FILES]}
        others = {path: files[path] for path in paths[_MAPPED_FILES:]}
        readers = [partial(_read_mapped, mapped), partial(_read_repeatedly, others), partial(_read_late, others)]
        with working(readers) as workers:
            all_have_sent(workers, "open", context.report_call)
            if not workers[0].has_sent("open"):
                # Another check tests whether files can be mapped.
                findings.facts["readers through mappings"] = (
                    "not tried: reading through a mapping fails before, see MMAP"
                )
            _remove_or_replace(context, paths)
            for worker in workers:
                worker.resume()
            ends = gather(workers, context.report_call)
            if not workers[0].has_sent("open"):
                ends.pop(0)
        for end in ends:
            if end.error or end.signal:
                findings.wrong(
                    "removed file fails its reader",
                    where=end.where,
                    seen=f"{end.error or end.signal} from: {end.call}",
                    expected="every byte of the file, until the reader closes it",
                )
            for kind, where, seen, expected in end.result or ():
                findings.wrong(kind, where=where, seen=seen, expected=expected)
        findings.trials += len(files)
        _clear_directory(context)


def unlink_on_second(context: CheckContext, findings: Findings) -> None:
    """Remove, replace and recreate files that the other client has open.

    Then the other client reads the open files. It must receive the original bytes or the error ESTALE.
    """
    assert context.other
    stale = 0
    for number in range(context.count(_UNLINK_ROUNDS, minimum=3)):
        files = _files_to_unlink(context, number)
        handles = {}
        for path in files:
            there = f"{context.other_directory}/{path.name}"
            handles[path] = context.other.request("open_file", there)
            context.other.request("read_at", there, descriptor=handles[path], length=_HEAD_BYTES, offset=0)
        _remove_or_replace(context, list(files))
        for path, content in files.items():
            there = f"{context.other_directory}/{path.name}"
            try:
                seen = decoded(
                    context.other.request("read_at", there, descriptor=handles[path], length=len(content) + 1, offset=0)
                )
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
                stale += 1
            else:
                compare(findings, seen, content, path=there, when=f"read after the other client {_fate(path)}")
            context.other.request("close_file", there, descriptor=handles[path])
        findings.trials += len(files)
        _clear_directory(context)
    findings.facts["reads answered with ESTALE"] = f"{stale} of {findings.trials}"


def _files_to_unlink(context: CheckContext, number: int) -> dict[Path, bytes]:
    made = {}
    for file_number in range(_FILES):
        path = context.directory / f"file-{number}-{file_number}"
        context.report_call("write and fsync", str(path))
        content = random_bytes(_FILE_BYTES + file_number, context.seed, path.name)
        with path.open("xb") as file:
            file.write(content)
            # The remaining data must come from storage, because the file no longer has a name there.
            sync_and_forget(file)
        made[path] = content
    return made


def _fate(path: Path) -> str:
    """Return the change that the check makes to a file, as a phrase: removed, recreated or replaced.

    The last digit of the file's name selects the change.
    """
    return (
        "removed it",
        "removed it and made another of that name",
        "renamed another over it",
    )[int(path.name[-1]) % 3]


def _remove_or_replace(context: CheckContext, paths: list[Path]) -> None:
    for path in paths:
        context.report_call("remove or replace", str(path))
        fate = _fate(path)
        other = random_bytes(_FILE_BYTES, context.seed, path.name, "other")
        if fate.startswith("removed"):
            path.unlink()
            if fate != "removed it":
                path.write_bytes(other)
        else:
            replacement = path.with_suffix(".new")
            replacement.write_bytes(other)
            replacement.replace(path)


def _clear_directory(context: CheckContext) -> None:
    for path in context.directory.iterdir():
        # An NFS client renames a removed file and keeps it until its reader has closed it.
        path.unlink(missing_ok=True)


def _read_late(files: Mapping[Path, bytes], talk: WorkerChannel) -> list[tuple[str, str, str, str]]:
    """Open all files and read their starts. After their removal, read all bytes and return the faults."""
    wrong = []
    descriptors = {}
    for path in files:
        talk.at("open", path)
        descriptors[path] = os.open(path, os.O_RDONLY)
        talk.at("read", path)
        os.pread(descriptors[path], _HEAD_BYTES, 0)
    talk.send("open")
    talk.wait_for_check()
    for path in files:
        talk.at("read after it was removed", path)
        wrong += _wrong_of_reader(path, read_to_end(descriptors[path]), files[path], "read")
    return wrong


def _read_mapped(files: Mapping[Path, bytes], talk: WorkerChannel) -> list[tuple[str, str, str, str]]:
    """Map all files and read their last bytes. After their removal, read the mappings and return the faults."""
    wrong = []
    maps = {}
    for path in files:
        talk.at("mmap", path)
        with path.open("rb") as file:
            maps[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        talk.at("read through a mapping", path)
        maps[path][-1]
    talk.send("open")
    talk.wait_for_check()
    for path in files:
        talk.at("read through a mapping after it was removed", path)
        wrong += _wrong_of_reader(path, maps[path][:], files[path], "read through a mapping")
    return wrong


def _read_repeatedly(files: Mapping[Path, bytes], talk: WorkerChannel) -> list[tuple[str, str, str, str]]:
    """Read all files repeatedly during and after their removal. Return the faults of the first bad read."""
    descriptors = {}
    for path in files:
        talk.at("open", path)
        descriptors[path] = os.open(path, os.O_RDONLY)
    talk.send("open")
    over = False
    while not over:
        over = talk.may_continue()
        for path, descriptor in descriptors.items():
            talk.at("read while it is removed", path)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            if wrong := _wrong_of_reader(path, read_to_end(descriptor), files[path], "read"):
                return wrong
    return []


def _wrong_of_reader(path: Path, seen: bytes, content: bytes, how: str) -> list[tuple[str, str, str, str]]:
    found = difference(seen, content)
    if not found:
        return []
    return [
        (
            found.kind,
            f"{path} at byte {found.at:,}, {how} by an open reader that {_fate(path)}",
            found.seen,
            found.expected,
        )
    ]
