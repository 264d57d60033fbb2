"""DIRECT and MMAP: I/O without the page cache (O_DIRECT), and through mappings of files.

DIRECT: I/O with the alignments of checkpoint writers, alone and combined with buffered I/O. MMAP: reads through
mappings, like safetensors and torch.load(mmap=True).
"""

from __future__ import annotations

import mmap
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import compare, difference, opened, random_bytes, read_file, sync_and_forget
from pytest_ckpt.conformance.context import NotRun
from pytest_ckpt.conformance.workers import all_have_sent, gather, working
from pytest_ckpt.targets.posix.direct_io import NOT_OFFERED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_ckpt.conformance.context import CheckContext, Findings
    from pytest_ckpt.conformance.workers import WorkerChannel, WorkerEnd

_SMALL, _LARGE = 512, 4096
_BULK_BYTES = 1 << 20
_BLOCKS = 1500
_ROUNDS = 60


def aligned(context: CheckContext, findings: Findings) -> None:
    """Write and read blocks of 512 B, 4 KiB and 1 MiB with O_DIRECT, in random order. Some blocks are written twice.

    Blocks of 4 KiB and 1 MiB must be accepted. A refusal of 512 B is reported as a fact, because sectors may be larger.
    """
    for size, blocks in ((_SMALL, _BLOCKS), (_LARGE, _BLOCKS), (_BULK_BYTES, 16)):
        path = context.directory / f"direct-{size}"
        context.report_call("write with O_DIRECT", str(path))
        try:
            _write_and_read(context, findings, path, size, context.count(blocks, minimum=8))
        except OSError as refusal:
            if refusal.errno not in NOT_OFFERED:
                raise
            findings.facts[f"O_DIRECT in blocks of {size} B"] = f"refused: {refusal.strerror} (errno {refusal.errno})"
            if size >= _LARGE:
                findings.wrong(
                    "O_DIRECT refused",
                    where=f"{path}, blocks of {size:,} bytes at multiples of it",
                    seen=f"{refusal.strerror} (errno {refusal.errno})",
                    expected=f"direct I/O in blocks of {size:,} bytes",
                )
                return
        else:
            findings.facts[f"O_DIRECT in blocks of {size} B"] = "works"


def coherent(context: CheckContext, findings: Findings) -> None:
    """Write the first part of a file with O_DIRECT and the rest buffered, like DeepSpeed's fast writer.

    Then overwrite ranges of the file, first with O_DIRECT, then buffered. After each step, the file is read with
    O_DIRECT and buffered. Both reads must return the latest data.
    """
    chance = random.Random(context.seed)
    for number in range(context.count(_ROUNDS, minimum=4)):
        path = context.directory / f"coherent-{number}"
        context.report_call("write with O_DIRECT and buffered", str(path))
        bulk = chance.randrange(1, 33) * _LARGE
        tail = chance.randrange(1, 3 * _LARGE)
        content = bytearray(random_bytes(bulk + tail, context.seed, path.name))
        try:
            with opened(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT) as direct:
                _write(direct, content[:bulk], 0)
        except OSError as refusal:
            if refusal.errno in NOT_OFFERED:
                raise NotRun(f"O_DIRECT is refused: {refusal.strerror} (errno {refusal.errno})") from None
            raise
        with path.open("ab") as file:
            file.write(content[bulk:])
        older = bytes(bulk + tail)
        _compare_both_modes(findings, path, content, older, "after a buffered append to direct writes")

        older = bytes(content)
        at, length = _part(chance, bulk)
        content[at : at + length] = random_bytes(length, context.seed, path.name, "direct")
        with opened(path, os.O_WRONLY | os.O_DIRECT) as direct:
            _write(direct, content[at : at + length], at)
        _compare_both_modes(
            findings, path, content, older, f"after {length:,} bytes at byte {at:,} were overwritten with O_DIRECT"
        )

        older = bytes(content)
        at = chance.randrange(bulk)
        length = chance.randrange(1, bulk + tail - at + 1)
        content[at : at + length] = random_bytes(length, context.seed, path.name, "buffered")
        with opened(path, os.O_WRONLY) as buffered:
            os.pwrite(buffered, content[at : at + length], at)
            # The descriptor is still open and not synced; a direct read must return all bytes nevertheless.
            _compare_both_modes(
                findings, path, content, older, f"after {length:,} bytes at byte {at:,} were overwritten buffered"
            )
        findings.trials += 3
        path.unlink()


def _write_and_read(context: CheckContext, findings: Findings, path: Path, size: int, blocks: int) -> None:
    chance = random.Random(context.seed)
    first = random_bytes(size * blocks, context.seed, path.name, 1)
    content = bytearray(first)
    again = chance.sample(range(blocks), blocks // 3)
    for block in again:
        content[block * size : (block + 1) * size] = random_bytes(size, context.seed, path.name, 2, block)
    with opened(path, os.O_CREAT | os.O_RDWR | os.O_DIRECT) as direct:
        for block in chance.sample(range(blocks), blocks):
            _write(direct, first[block * size : (block + 1) * size], block * size)
        for block in again:
            _write(direct, content[block * size : (block + 1) * size], block * size)
        os.fsync(direct)
    context.report_call("read with O_DIRECT", str(path))
    with opened(path, os.O_RDONLY | os.O_DIRECT) as direct:
        seen = _read(direct, len(content), size)
    compare(findings, seen, bytes(content), path=path, when="read with O_DIRECT", older=first, unit_bytes=size)
    findings.trials += blocks + len(again)
    path.unlink()


def _compare_both_modes(findings: Findings, path: Path, content: bytearray, older: bytes, when: str) -> None:
    with opened(path, os.O_RDONLY | os.O_DIRECT) as direct:
        seen = _read(direct, len(content), _BULK_BYTES)
    compare(findings, seen, bytes(content), path=path, when=f"read with O_DIRECT {when}", older=older)
    compare(findings, read_file(path), bytes(content), path=path, when=f"read buffered {when}", older=older)


def _part(chance: random.Random, bulk: int) -> tuple[int, int]:
    at = chance.randrange(0, bulk, _LARGE)
    return at, chance.randrange(at, bulk, _LARGE) + _LARGE - at


def _write(descriptor: int, data: bytes | bytearray, offset: int) -> None:
    """Write ``data`` at ``offset`` from page-aligned memory, which O_DIRECT requires."""
    with mmap.mmap(-1, len(data)) as memory:
        memory[:] = bytes(data)
        done = 0
        while done < len(data):
            view = memoryview(memory)[done:]
            try:
                done += os.pwritev(descriptor, [view], offset + done)
            finally:
                view.release()


def _read(descriptor: int, length: int, size: int) -> bytes:
    """Return the bytes of a file of ``length`` bytes, read in blocks of ``size`` bytes into page-aligned memory.

    After a short read, the next read begins at the last aligned offset of the bytes read so far. A read that adds no
    bytes marks the end of the file.
    """
    seen, unit = bytearray(), min(size, _LARGE)
    with mmap.mmap(-1, max(size, mmap.PAGESIZE)) as memory, memoryview(memory) as whole, whole[:size] as view:
        while len(seen) <= length:
            start = len(seen) - len(seen) % unit
            done = os.preadv(descriptor, [view], start)
            if start + done <= len(seen):
                break
            seen[start:] = view[:done]
    return bytes(seen)


_FILES = 4
_FILE_BYTES = 16 << 20
_MINIMUM_BYTES = 256 << 10
_PROCESSES = 32
# The last page of a mapping extends beyond the end of the file.
_ODD_BYTES = 1234
_STEP_BYTES = 64 << 10


def map_private(context: CheckContext, findings: Findings) -> None:
    """Read files through private mappings in separate processes. Changes of a mapping must not change the file."""
    files = _mapped_files(context)
    _judge_readers(
        context, findings, files, [_reader(files, context.seed + n, mmap.ACCESS_COPY) for n in range(2)], changing=True
    )
    for path, content in files.items():
        context.report_call("read", str(path))
        if found := difference(read_file(path), content):
            findings.wrong(
                "private mapping reached the file",
                where=f"{path} at byte {found.at:,}, after processes wrote to private mappings of it",
                seen=found.seen,
                expected="the file unchanged",
            )


def map_shared(context: CheckContext, findings: Findings) -> None:
    """Read files through shared mappings in many processes concurrently. Each process reads all files."""
    files = _mapped_files(context)
    processes = context.count(_PROCESSES, minimum=4)
    _judge_readers(
        context, findings, files, [_reader(files, context.seed + n, mmap.ACCESS_READ) for n in range(processes)]
    )


def _mapped_files(context: CheckContext) -> dict[Path, bytes]:
    """Write files and drop their cached pages, so that mappings read from the storage. Return {path: content}."""
    made = {}
    for number in range(_FILES):
        path = context.directory / f"mapped-{number}"
        content = random_bytes(context.count(_FILE_BYTES, minimum=_MINIMUM_BYTES) + _ODD_BYTES, context.seed, path.name)
        context.report_call("write and fsync", str(path))
        with path.open("wb") as file:
            file.write(content)
            sync_and_forget(file)
        made[path] = content
    return made


def _reader(files: Mapping[Path, bytes], seed: int, access: int) -> Callable[[WorkerChannel], list[list[str]]]:
    """Return a worker function that reads all files through mappings and returns the faults.

    ``seed`` determines the order of files and pages. If ``access`` is ACCESS_COPY, the worker then waits for the check,
    and changes its private mappings.
    """

    def read(talk: WorkerChannel) -> list[list[str]]:
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
            talk.send("read")
            talk.wait_for_check()
            for path, content in files.items():
                talk.at("write to a private mapping", path)
                with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=access) as mapped:
                    for start in range(0, len(content), _STEP_BYTES):
                        mapped[start] = content[start] ^ 0xFF
        return wrong

    return read


def _judge_readers(
    context: CheckContext,
    findings: Findings,
    files: Mapping[Path, bytes],
    readers: list[Callable[[WorkerChannel], list[list[str]]]],
    *,
    changing: bool = False,
) -> None:
    context.report_call("mmap", str(context.directory))
    with working(readers) as workers:
        # A worker changes its mapping only after all have read: a changed file is then attributed to this change, not
        # to the reads.
        if changing:
            all_have_sent(workers, "read", context.report_call)
            for worker in workers:
                worker.resume()
        for end in gather(workers, context.report_call):
            findings.trials += len(files)
            _note_reader(findings, end)


def _note_reader(findings: Findings, end: WorkerEnd) -> None:
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
