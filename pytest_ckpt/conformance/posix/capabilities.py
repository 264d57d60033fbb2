"""CAPABILITIES: links, names, modification times, free space, locks, and optional features of file systems."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import time
import unicodedata
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import compare, opened, random_bytes, read_file
from pytest_ckpt.conformance.context import NotRun
from pytest_ckpt.conformance.posix.sparse import FICLONE
from pytest_ckpt.conformance.workers import all_have_sent, gather, working
from pytest_ckpt.facts.checks import BY_NAME
from pytest_ckpt.support.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_ckpt.conformance.context import CheckContext, Findings
    from pytest_ckpt.conformance.workers import WorkerChannel, WorkerEnd

_LIBC = ctypes.CDLL(None, use_errno=True)
_ROUNDS = 20
_LONGEST = 255
_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE = 1, 2
_MIB = 1 << 20


def links(context: CheckContext, findings: Findings) -> None:
    """Create, follow, replace and remove symbolic links to files and directories, and hard links."""
    for number in range(context.count(_ROUNDS, minimum=2)):
        directory = context.directory / f"links-{number}"
        directory.mkdir()
        contents = {name: random_bytes(5000, context.seed, number, name) for name in ("first", "second")}
        for name, content in contents.items():
            (directory / name).write_bytes(content)
        context.report_call("symlink", str(directory))
        _try(findings, directory / "symbolic", "symbolic links", partial(_symbolic, findings, directory, contents))
        context.report_call("link", str(directory))
        _try(findings, directory / "hard", "hard links", partial(_hard, findings, directory, contents))
        findings.trials += 1


def names(context: CheckContext, findings: Findings) -> None:
    """Create files with unusual names: other alphabets, special characters, and names that resemble each other.

    Similar names differ only in case, in the Unicode form of accents, or in the last of 255 bytes. A name of 256 bytes
    and a name that is not UTF-8 are also tried.
    """
    groups = {
        "case": ["model.pt", "Model.pt", "MODEL.PT"],
        "length": ["n" * (_LONGEST - 1) + end for end in "ab"],
        "alphabet": ["Größe", "チェックポイント", "контрольная точка", "检查点", "🗜️"],
        "form of accents": [unicodedata.normalize(form, "modèle-é") for form in ("NFC", "NFD")],
        "characters": [".hidden", "a b", " a", "a ", "a.", "a:b", "a\\b", "a*?", 'a"b', "a\nb", "-rf", "con", "nul.pt"],
    }
    for capability, group in groups.items():
        directory = context.directory / capability.replace(" ", "-")
        directory.mkdir()
        made: dict[str, bytes] = {}
        for name in group:
            path = directory / name
            context.report_call("create", str(path))
            content = random_bytes(1000, context.seed, name)
            try:
                with path.open("xb") as file:
                    file.write(content)
            except FileExistsError:
                same = next((other for other in made if _same(directory / other, path)), "another")
                _folded(findings, path, f"{_short(name)} is already there: it is taken for {_short(same)}")
            except OSError as error:
                findings.wrong(
                    "name refused",
                    where=f"{directory}, a name of {len(name.encode())} bytes",
                    seen=f"{error.strerror} (errno {error.errno}) for {_short(name)}",
                    expected="a file of that name",
                )
            else:
                made[name] = content
            findings.trials += 1
        seen = _read_existing(directory, made)
        listed = sorted(os.listdir(directory))  # noqa: PTH208 - doubled names must stay doubled
        if listed != sorted(made):
            strange = [name for name in listed if name not in made]
            lost = [name for name in made if name not in listed]
            _folded(
                findings, directory, f"made and not listed: {_shorts(lost)}; listed and not made: {_shorts(strange)}"
            )
        for name, content in made.items():
            if name in listed and name in seen:
                compare(findings, seen[name], content, path=directory / name)
    _too_long(context, findings)
    _not_utf8(context, findings)


class _WrongAnswerError(Exception):
    """An optional feature of the file system returns a wrong result."""

    def __init__(self, seen: str, expected: str) -> None:
        super().__init__(seen)
        self.seen, self.expected = seen, expected


def extras(context: CheckContext, findings: Findings) -> None:
    """Try optional features: extended attributes, fallocate, holes, clones, and files without a name.

    A missing feature is reported as a fact. An available feature that returns a wrong result is an anomaly.
    """
    path = context.directory / "extras"
    for name, attempt in {
        "extended attributes": _attributes,
        "fallocate": _reserve,
        "punching holes": _punch,
        "SEEK_HOLE": _seek_hole,
        "reflink (FICLONE)": _clone,
        "O_TMPFILE": _nameless,
    }.items():
        context.report_call(name, str(path))
        path.write_bytes(random_bytes(_MIB, context.seed, name))
        try:
            findings.facts[name] = attempt(path)
        except OSError as error:
            findings.facts[name] = f"no: {error.strerror} (errno {error.errno})"
        except _WrongAnswerError as answer:
            findings.facts[name] = f"wrong: {answer.seen}"
            findings.wrong(f"{name} wrong", where=str(path), seen=answer.seen, expected=answer.expected)
        findings.trials += 1


def _try(findings: Findings, path: Path, capability: str, make: Callable[[], None]) -> None:
    try:
        make()
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}:
            raise
        seen = f"{error.strerror} (errno {error.errno})"
        findings.wrong(f"{capability} refused", where=str(path), seen=seen, expected="the link is made")


def _read_existing(directory: Path, names: Iterable[str]) -> dict[str, bytes]:
    seen = {}
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            seen[name] = read_file(directory / name)
    return seen


def _symbolic(findings: Findings, directory: Path, contents: dict[str, bytes]) -> None:
    link = directory / "last"
    link.symlink_to("first")
    _expect(findings, link, "text of the link", str(link.readlink()), "first")
    _leads_to(findings, link, contents["first"])
    # As Lightning does with last.ckpt: the link is moved to the newest file and exists at every moment.
    replacement = directory / "last.new"
    replacement.symlink_to(directory / "second")
    replacement.replace(link)
    _expect(findings, link, "text of the replaced link", str(link.readlink()), str(directory / "second"))
    _leads_to(findings, link, contents["second"], older=contents["first"])
    to_directory = directory / "directory"
    to_directory.symlink_to(f"../{directory.name}")
    _leads_to(findings, to_directory / "first", contents["first"])
    link.unlink()
    _expect(
        findings, directory / "second", "file after its link was removed", str((directory / "second").exists()), "True"
    )
    (directory / "dangling").symlink_to("nowhere")
    _expect(findings, directory / "dangling", "link to nothing", str((directory / "dangling").exists()), "False")


def _hard(findings: Findings, directory: Path, contents: dict[str, bytes]) -> None:
    first, link = directory / "first", directory / "hard"
    link.hardlink_to(first)
    _leads_to(findings, link, contents["first"])
    _expect(findings, link, "number of names", str(link.stat().st_nlink), "2")
    _expect(findings, link, "same file", str(_same(first, link)), "True")
    older, changed = contents["first"], contents["first"][::-1]
    with link.open("r+b") as file:
        file.write(changed)
    when = "after it was written through its other name"
    compare(findings, read_file(first), changed, path=first, when=when, older=older)
    replacement = directory / "hard.new"
    replacement.hardlink_to(directory / "second")
    replacement.replace(link)
    _leads_to(findings, link, contents["second"], older=changed)
    (directory / "second").unlink()
    compare(findings, read_file(link), contents["second"], path=link, when="after its other name was removed")
    _expect(findings, first, "number of names after its other name was replaced", str(first.stat().st_nlink), "1")


def _leads_to(findings: Findings, link: Path, content: bytes, older: bytes = b"") -> None:
    compare(findings, read_file(link), content, path=link, when="read through the link", older=older)


def _expect(findings: Findings, path: Path, capability: str, seen: str, expected: str) -> None:
    if seen != expected:
        findings.wrong("link leads elsewhere", where=f"{path}, {capability}", seen=seen, expected=expected)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _folded(findings: Findings, path: Path, seen: str) -> None:
    findings.wrong("names folded or cut", where=str(path), seen=seen, expected="every name as it was given")


def _short(name: str) -> str:
    return repr(name if len(name) <= 60 else f"{name[:28]}…{name[-28:]}")


def _shorts(names: Iterable[str]) -> str:
    return ", ".join(map(_short, names)) or "none"


def _too_long(context: CheckContext, findings: Findings) -> None:
    path = context.directory / ("n" * (_LONGEST + 1))
    context.report_call("create", str(path))
    try:
        path.touch()
    except OSError as error:
        findings.facts[f"name of {_LONGEST + 1} bytes"] = f"refused: {error.strerror} (errno {error.errno})"
        return
    longest = max((len(os.fsencode(name)) for name in os.listdir(context.directory)), default=0)  # noqa: PTH208
    if longest > _LONGEST:
        findings.facts[f"name of {_LONGEST + 1} bytes"] = "works"
    else:
        _folded(findings, context.directory, f"a name of {_LONGEST + 1} bytes was taken and is listed with {longest}")


def _not_utf8(context: CheckContext, findings: Findings) -> None:
    path = os.fsencode(context.directory) + b"/\xff\xfe"
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
        findings.facts["names that are not UTF-8"] = "work"
    except OSError as error:
        findings.facts["names that are not UTF-8"] = f"refused: {error.strerror} (errno {error.errno})"


def _attributes(path: Path) -> str:
    largest = 0
    for size in (16, 1024, 4000, 65_536):
        value = random_bytes(size, "attribute", size)
        try:
            os.setxattr(path, "user.pytest_ckpt", value)
        except OSError:
            if not largest:
                raise
            break
        if os.getxattr(path, "user.pytest_ckpt") != value or "user.pytest_ckpt" not in os.listxattr(path):
            raise _WrongAnswerError(f"a value of {size:,} bytes did not come back as it was set", "the same bytes")
        largest = size
    return f"yes, values of {largest:,} bytes at least"


def _reserve(path: Path) -> str:
    before = read_file(path)
    with path.open("r+b") as file:
        _fallocate(file.fileno(), 0, 0, 2 * _MIB)
    after, size = read_file(path), path.stat().st_size
    if size != 2 * _MIB:
        raise _WrongAnswerError(f"the file had {size:,} bytes after its space was reserved", f"{2 * _MIB:,} bytes")
    if after != before + bytes(_MIB):
        raise _WrongAnswerError("other bytes after space was reserved", "the bytes that were written, then zeros")
    return "yes"


def _punch(path: Path) -> str:
    before = read_file(path)
    with path.open("r+b") as file:
        os.fsync(file.fileno())
        _fallocate(file.fileno(), _FALLOC_PUNCH_HOLE | _FALLOC_KEEP_SIZE, 0, _MIB // 2)
        os.fsync(file.fileno())
    after = read_file(path)
    if any(after[: _MIB // 2]):
        raise _WrongAnswerError("bytes remained in a punched hole", "zeros")
    if after[_MIB // 2 :] != before[_MIB // 2 :]:
        raise _WrongAnswerError("other bytes after a punched hole", "the bytes that were written")
    return "yes"


def _seek_hole(path: Path) -> str:
    with path.open("r+b") as file:
        file.truncate(8 * _MIB)
        os.fsync(file.fileno())
        hole = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
    return "yes" if hole < 8 * _MIB else "no: holes are reported as data"


def _clone(path: Path) -> str:
    clone = path.with_suffix(".clone")
    with path.open("rb") as file, clone.open("wb") as copy:
        fcntl.ioctl(copy.fileno(), FICLONE, file.fileno())
    if read_file(clone) != read_file(path):
        raise _WrongAnswerError("the clone contained other bytes than the file", "the same bytes")
    return "yes"


def _nameless(path: Path) -> str:
    os.close(os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o600))
    return "yes"


def _fallocate(descriptor: int, mode: int, offset: int, length: int) -> None:
    if _LIBC.fallocate(descriptor, mode, ctypes.c_int64(offset), ctypes.c_int64(length)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_PAIRS = 50
_APART_SECONDS = 0.01
_SKEW_SECONDS = 1.0
_SPACE_BYTES = 1 << 30
# Other clients use the same storage during the check and would hide the effect of a smaller file.
_MINIMUM_BYTES = 64 << 20
_PIECE_BYTES = 8 << 20
_ATTEMPTS = 3
_POLL_SECONDS = 0.05
_NS = 1_000_000_000


def mtime(context: CheckContext, findings: Findings) -> None:
    """Write files 10 ms apart. Their modification times must have the same order, and agree with this host's clock.

    If there is a second client, it writes one file. The modification time of this file must also agree with the clock
    of this host.
    """
    apart: list[int] = []
    before, last = 0, ""
    for number in range(context.count(_PAIRS, minimum=10)):
        path = context.directory / f"time-{number}"
        context.report_call("write", str(path))
        began = time.time_ns()
        # Every third write overwrites an older file.
        _write(context.directory / "again" if number % 3 == 2 else path, b"%d" % number)
        ended = time.time_ns()
        if number % 3 == 2:
            path = context.directory / "again"
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
        path = context.directory / "time-other"
        began = time.time_ns()
        context.other.write(f"{context.other_directory}/{path.name}", b"written there")
        _near(findings, path, path.stat().st_mtime_ns, began, time.time_ns())
        findings.trials += 1


def statfs(context: CheckContext, findings: Findings) -> None:
    """Write incompressible files, and wait until the free space has fallen by at least half of their size.

    Up to three files are written, because other clients may free space and some storage reports its free space late.
    The free space is compared with its value before each file.
    """
    patience = min(BY_NAME["CAPABILITIES.statfs"].limit or 0.0, context.space_seconds)
    size = context.count(_SPACE_BYTES, minimum=_MINIMUM_BYTES)
    space = os.statvfs(context.directory)
    free = space.f_bavail * space.f_frsize
    if free < 2 * _ATTEMPTS * size:
        raise NotRun(
            f"{format_bytes(free)} are free. The check writes up to {_ATTEMPTS} files of {format_bytes(size)} and "
            "needs twice this space"
        )
    if not space.f_bavail <= space.f_bfree <= space.f_blocks:
        findings.wrong(
            "free space exceeds the volume",
            where=str(context.directory),
            seen=f"{space.f_bavail:,} blocks available, {space.f_bfree:,} free, {space.f_blocks:,} in all",
            expected="available <= free <= all",
        )
    began = time.monotonic()
    free_before: list[int] = []
    fell = 0
    for attempt in range(_ATTEMPTS):
        free_before.append(_free(context.directory))
        path = context.directory / f"space-{attempt}"
        context.report_call("write and fsync", str(path))
        _fill(context, path, size)
        written_at = time.monotonic()
        findings.trials += 1
        while True:
            now = _free(context.directory)
            # The bytes written since the start of the n-th file.
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
        where=f"{context.directory}, {findings.measured:.0f} s after {size * _ATTEMPTS:,} bytes were fsynced",
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


def _free(directory: Path) -> int:
    space = os.statvfs(directory)
    return space.f_bfree * space.f_frsize


def _fill(context: CheckContext, path: Path, size: int) -> None:
    with path.open("xb", buffering=0) as file:
        for start in range(0, size, _PIECE_BYTES):
            file.write(random_bytes(min(_PIECE_BYTES, size - start), context.seed, path.name, start))
        os.fsync(file.fileno())


_LOCK_ROUNDS = 20
_PROCESSES = 4
_ADDITIONS = 250
_LOCK_POLL_SECONDS = 0.01
_MODES = ((fcntl.LOCK_EX, fcntl.LOCK_EX), (fcntl.LOCK_EX, fcntl.LOCK_SH), (fcntl.LOCK_SH, fcntl.LOCK_EX))
_NAMES = {fcntl.LOCK_EX: "an exclusive", fcntl.LOCK_SH: "a shared"}


def flock(context: CheckContext, findings: Findings) -> None:
    """Try all combinations of exclusive and shared locks in two processes, and kill the process that has the lock.

    Then several processes increase a number in a file under the lock. No increase may be lost.
    """
    path = context.directory / "locked"
    path.write_bytes(b"")
    context.report_call("flock", str(path))
    for _ in range(context.count(_LOCK_ROUNDS)):
        for mode, wanted in _MODES:
            with working([partial(_lock_and_wait, path, mode)]) as (holder,):
                if not all_have_sent([holder], "held", context.report_call):
                    _report_refused_lock(findings, holder.ended())
                    return
                if _got(path, wanted):
                    _both(findings, path, f"{_NAMES[wanted]} lock while another process held {_NAMES[mode]} one")
                findings.trials += 1
            # The end of the block has killed the holder.
            _released(context, findings, path, partial(_got, path, fcntl.LOCK_EX))
        with working([partial(_lock_and_wait, path, fcntl.LOCK_SH)]) as (holder,):
            if not all_have_sent([holder], "held", context.report_call):
                _report_refused_lock(findings, holder.ended())
                return
            if not _got(path, fcntl.LOCK_SH):
                findings.wrong(
                    "shared lock refused",
                    where=str(path),
                    seen="a shared lock was refused while another process held a shared one",
                    expected="both processes hold it",
                )
            findings.trials += 1
    _count_up(context, findings)


def flock_second(context: CheckContext, findings: Findings) -> None:
    """Get an exclusive lock on each client in turn. The other client must not get the same lock.

    When the process with the lock is killed, the other client must get the lock.
    """
    other = context.other
    assert other
    path = context.directory / "locked"
    there = f"{context.other_directory}/locked"
    path.write_bytes(b"")
    for _ in range(context.count(_LOCK_ROUNDS, minimum=2)):
        lock = other.request("hold_lock", there)
        if not lock["held"]:
            findings.wrong(
                "free lock refused", where=there, seen="the other client did not get a free lock", expected="it does"
            )
            return
        context.report_call("flock", str(path))
        if _got(path, fcntl.LOCK_EX):
            _both(findings, path, "an exclusive lock while a process on the other client held one")
        other.request("kill", there, process=lock["process"])
        _released(context, findings, path, partial(_got, path, fcntl.LOCK_EX))
        descriptor = other.request("open_file", there, flags=os.O_RDWR)
        with working([partial(_lock_and_wait, path, fcntl.LOCK_EX)]) as (holder,):
            if not all_have_sent([holder], "held", context.report_call):
                _report_refused_lock(findings, holder.ended())
                return
            if other.request("lock", there, descriptor=descriptor):
                _both(findings, path, "on the other client an exclusive lock while a process here held one")
                other.request("unlock", there, descriptor=descriptor)
        _released(context, findings, path, partial(other.request, "lock", there, descriptor=descriptor))
        other.request("close_file", there, descriptor=descriptor)
        findings.trials += 2


def _lock_and_wait(path: Path, mode: int, talk: WorkerChannel) -> None:
    talk.at("open", path)
    descriptor = os.open(path, os.O_RDWR)
    talk.at("flock", path)
    fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    talk.send("held")
    talk.wait_for_check()


def _got(path: Path, mode: int) -> bool:
    """Try to get a lock without waiting, and release it. Return whether the lock was obtained."""
    with opened(path, os.O_RDWR) as descriptor:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return True


def _released(context: CheckContext, findings: Findings, path: Path, got: Callable[[], bool]) -> None:
    """Wait until the lock of a killed process is free. Record an anomaly after ``patience_seconds``.

    ``got`` tries to get the lock.
    """
    began = time.monotonic()
    while not got():
        if time.monotonic() - began > context.patience_seconds:
            findings.wrong(
                "lock of a killed process stays",
                where=str(path),
                seen=f"the lock is still taken {context.patience_seconds:g} s after its holder was killed",
                expected="it is free when the holder is gone",
            )
            return
        time.sleep(_LOCK_POLL_SECONDS)
    findings.trials += 1


def _count_up(context: CheckContext, findings: Findings) -> None:
    path = context.directory / "counter"
    path.write_text("0")
    additions = context.count(_ADDITIONS, minimum=25)
    with working([partial(_add, path, additions) for _ in range(_PROCESSES)]) as workers:
        ends: Iterable[WorkerEnd] = gather(workers, context.report_call)
    for end in ends:
        if end.error or end.signal:
            _report_refused_lock(findings, end)
            return
    seen, expected = int(read_file(path)), additions * _PROCESSES
    findings.trials += expected
    if seen != expected:
        findings.wrong(
            "exclusive lock given twice",
            where=f"{path}, which {_PROCESSES} processes read, count up and write under an exclusive lock",
            seen=f"{seen} after {expected} additions: {expected - seen} were lost",
            expected=f"{expected}",
        )


def _add(path: Path, additions: int, talk: WorkerChannel) -> None:
    with opened(path, os.O_RDWR) as descriptor:
        for _ in range(additions):
            talk.at("flock", path)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            number = int(os.pread(descriptor, 20, 0)) + 1
            os.pwrite(descriptor, str(number).encode(), 0)
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def _both(findings: Findings, path: Path, capability: str) -> None:
    findings.wrong(
        "exclusive lock given twice", where=str(path), seen=f"flock gave {capability}", expected="it is refused"
    )


def _report_refused_lock(findings: Findings, end: WorkerEnd | None) -> None:
    assert end
    findings.wrong("flock refused", where=end.where, seen=end.error or end.signal, expected="a lock on a free file")
