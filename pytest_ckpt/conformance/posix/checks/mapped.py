"""MMAP: files that are read through mappings, as safetensors and torch.load(mmap=True) do."""

from __future__ import annotations

import mmap
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import difference, random_bytes
from pytest_ckpt.conformance.reading import read_file
from pytest_ckpt.conformance.workers import all_said, gather, working

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_ckpt.conformance.context import CheckContext, Findings
    from pytest_ckpt.conformance.workers import Ended, Talk

_FILES = 4
_FILE_BYTES = 16 << 20
_MINIMUM_BYTES = 256 << 10
_PROCESSES = 32
# A file's last page is only partly its own.
_ODD_BYTES = 1234
_STEP_BYTES = 64 << 10


def private(context: CheckContext, findings: Findings) -> None:
    """Read files through private mappings in processes of their own; what is changed there stays out of the file."""
    files = _files(context)
    _judge(
        context, findings, files, [_reader(files, context.seed + n, mmap.ACCESS_COPY) for n in range(2)], changing=True
    )
    for path, content in files.items():
        context.tell("read", str(path))
        if found := difference(read_file(path), content):
            findings.wrong(
                "private mapping reached the file",
                where=f"{path} at byte {found.at:,}, after processes wrote to private mappings of it",
                seen=found.seen,
                expected="the file unchanged",
            )


def shared(context: CheckContext, findings: Findings) -> None:
    """Read the same files through shared mappings in many processes at once."""
    files = _files(context)
    processes = context.count(_PROCESSES, minimum=4)
    _judge(context, findings, files, [_reader(files, context.seed + n, mmap.ACCESS_READ) for n in range(processes)])


def _files(context: CheckContext) -> dict[Path, bytes]:
    """Write the files and ask the kernel to forget their pages, so that the mappings' faults go to storage."""
    made = {}
    for number in range(_FILES):
        path = context.folder / f"mapped-{number}"
        content = random_bytes(context.count(_FILE_BYTES, minimum=_MINIMUM_BYTES) + _ODD_BYTES, context.seed, path.name)
        context.tell("write and fsync", str(path))
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        made[path] = content
    return made


def _reader(files: Mapping[Path, bytes], seed: int, access: int) -> Callable[[Talk], list[list[str]]]:
    """Return what a worker does: touch every page of each file in an order of its own and tell what was wrong."""

    def read(talk: Talk) -> list[list[str]]:
        wrong = []
        chance = random.Random(seed)
        for path in chance.sample(list(files), len(files)):
            content = files[path]
            talk.at("mmap", path)
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=access) as mapped:
                if len(mapped) != len(content):
                    wrong.append(["file cut short", f"{path}", f"{len(mapped):,} bytes", f"{len(content):,} bytes"])
                    continue
                steps = range(0, len(content), _STEP_BYTES)
                for start in chance.sample(steps, len(steps)):
                    talk.at("read through a mapping", f"{path} at byte {start:,}")
                    found = difference(
                        mapped[start : start + _STEP_BYTES],
                        content[start : start + _STEP_BYTES],
                        whole=content,
                        offset=start,
                    )
                    if found:
                        where = f"{path} at byte {start + found.at:,}, read through a mapping"
                        wrong.append([found.kind, where, found.seen, found.expected])
        if access == mmap.ACCESS_COPY:
            talk.say("read")
            talk.hear()
            for path, content in files.items():
                talk.at("write to a private mapping", path)
                with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=access) as mapped:
                    for start in range(0, len(content), _STEP_BYTES):
                        mapped[start] = content[start] ^ 0xFF
        return wrong

    return read


def _judge(
    context: CheckContext,
    findings: Findings,
    files: Mapping[Path, bytes],
    readers: list[Callable[[Talk], list[list[str]]]],
    *,
    changing: bool = False,
) -> None:
    context.tell("mmap", str(context.folder))
    with working(readers) as workers:
        # Nobody changes a mapping while another still reads: what reached the file is told there, not in its readers.
        if changing:
            all_said(workers, "read", context.tell)
            for worker in workers:
                worker.go_on()
        for end in gather(workers, context.tell):
            findings.trials += len(files)
            _note(findings, end)


def _note(findings: Findings, end: Ended) -> None:
    if end.signal:
        findings.wrong(
            f"{end.signal} while reading a mapping",
            where=end.where,
            seen=f"the process was killed by {end.signal} in: {end.call}",
            expected="the bytes of the file",
        )
    elif end.error and end.call == "mmap":
        findings.wrong("mmap refused", where=end.where, seen=end.error, expected="a mapping of the file")
    elif end.error:
        findings.wrong("a call failed", where=end.where, seen=f"{end.error} from: {end.call}", expected="no error")
    for kind, where, seen, expected in end.result or ():
        findings.wrong(kind, where=where, seen=seen, expected=expected)
