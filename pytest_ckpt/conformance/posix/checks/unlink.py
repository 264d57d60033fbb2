"""UNLINK: files that are removed or replaced while somebody reads them."""

from __future__ import annotations

import errno
import mmap
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import compare, difference, random_bytes
from pytest_ckpt.conformance.posix.client import decoded
from pytest_ckpt.conformance.reading import read_to_end
from pytest_ckpt.conformance.workers import all_said, gather, working

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ckpt.conformance.context import CheckContext, Findings
    from pytest_ckpt.conformance.workers import Talk

_ROUNDS = 25
_FILES = 9
_MAPPED = 3
_FILE_BYTES = 512 << 10
_HEAD_BYTES = 64 << 10


def open_reader(context: CheckContext, findings: Findings) -> None:
    """Remove, replace and make anew what other processes have open; they read on, through descriptors and mappings."""
    for number in range(context.count(_ROUNDS, minimum=3)):
        files = _files(context, number)
        context.tell("open", str(context.folder))
        paths = list(files)
        mapped = {path: files[path] for path in paths[:_MAPPED]}
        others = {path: files[path] for path in paths[_MAPPED:]}
        readers = [partial(_read_mapped, mapped), partial(_keep_reading, others), partial(_read_late, others)]
        with working(readers) as workers:
            all_said(workers, "open", context.tell)
            if not workers[0].has_sent("open"):
                # Whether files can be mapped at all is another check's subject.
                findings.facts["readers through mappings"] = (
                    "not tried: reading through a mapping fails before, see MMAP"
                )
            _remove(context, paths)
            for worker in workers:
                worker.go_on()
            ends = gather(workers, context.tell)
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
        _clear(context)


def second_client(context: CheckContext, findings: Findings) -> None:
    """Remove, replace and make anew what the other client has open: its reader gets right bytes or ESTALE."""
    assert context.other
    stale = 0
    for number in range(context.count(_ROUNDS, minimum=3)):
        files = _files(context, number)
        handles = {}
        for path in files:
            there = f"{context.other_folder}/{path.name}"
            handles[path] = context.other.ask("open_file", there)
            context.other.ask("read_at", there, descriptor=handles[path], length=_HEAD_BYTES, offset=0)
        _remove(context, list(files))
        for path, content in files.items():
            there = f"{context.other_folder}/{path.name}"
            try:
                seen = decoded(
                    context.other.ask("read_at", there, descriptor=handles[path], length=len(content) + 1, offset=0)
                )
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
                stale += 1
            else:
                compare(findings, seen, content, path=there, when=f"read after the other client {_fate(path)}")
            context.other.ask("close_file", there, descriptor=handles[path])
        findings.trials += len(files)
        _clear(context)
    findings.facts["reads answered with ESTALE"] = f"{stale} of {findings.trials}"


def _files(context: CheckContext, number: int) -> dict[Path, bytes]:
    made = {}
    for file_number in range(_FILES):
        path = context.folder / f"file-{number}-{file_number}"
        context.tell("write and fsync", str(path))
        content = random_bytes(_FILE_BYTES + file_number, context.seed, path.name)
        with path.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            # What the readers have not read yet must come from storage, where the file has no name any more.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        made[path] = content
    return made


def _fate(path: Path) -> str:
    """Return what becomes of a file, by the last digit of its name."""
    return (
        "removed it",
        "removed it and made another of that name",
        "renamed another over it",
    )[int(path.name[-1]) % 3]


def _remove(context: CheckContext, paths: list[Path]) -> None:
    for path in paths:
        context.tell("remove or replace", str(path))
        fate = _fate(path)
        other = random_bytes(_FILE_BYTES, context.seed, path.name, "other")
        if fate.startswith("removed"):
            path.unlink()
            if fate != "removed it":
                path.write_bytes(other)
        else:
            beside = path.with_suffix(".new")
            beside.write_bytes(other)
            beside.replace(path)


def _clear(context: CheckContext) -> None:
    for path in context.folder.iterdir():
        # A client of NFS keeps a removed file under a name of its own until its reader has closed it.
        path.unlink(missing_ok=True)


def _read_late(files: Mapping[Path, bytes], talk: Talk) -> list[tuple[str, str, str, str]]:
    """Open all, read little, and read the rest when the files are gone."""
    wrong = []
    descriptors = {}
    for path in files:
        talk.at("open", path)
        descriptors[path] = os.open(path, os.O_RDONLY)
        talk.at("read", path)
        os.pread(descriptors[path], _HEAD_BYTES, 0)
    talk.say("open")
    talk.hear()
    for path in files:
        talk.at("read after it was removed", path)
        wrong += _wrong(path, read_to_end(descriptors[path]), files[path], "read")
    return wrong


def _read_mapped(files: Mapping[Path, bytes], talk: Talk) -> list[tuple[str, str, str, str]]:
    """Map all, touch the last page, and read the rest when the files are gone."""
    wrong = []
    maps = {}
    for path in files:
        talk.at("mmap", path)
        with path.open("rb") as file:
            maps[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        talk.at("read through a mapping", path)
        maps[path][-1]
    talk.say("open")
    talk.hear()
    for path in files:
        talk.at("read through a mapping after it was removed", path)
        wrong += _wrong(path, maps[path][:], files[path], "read through a mapping")
    return wrong


def _keep_reading(files: Mapping[Path, bytes], talk: Talk) -> list[tuple[str, str, str, str]]:
    """Open all and read them over and over while they are removed, and once afterwards."""
    descriptors = {}
    for path in files:
        talk.at("open", path)
        descriptors[path] = os.open(path, os.O_RDONLY)
    talk.say("open")
    over = False
    while not over:
        over = talk.is_told_to_end()
        for path, descriptor in descriptors.items():
            talk.at("read while it is removed", path)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            if wrong := _wrong(path, read_to_end(descriptor), files[path], "read"):
                return wrong
    return []


def _wrong(path: Path, seen: bytes, content: bytes, how: str) -> list[tuple[str, str, str, str]]:
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
