"""VISIBLE and STALE: whether and when another client sees a change.

VISIBLE: another client that opens a file after its close reads the new bytes (close-to-open consistency). If two
clients append in turn, all data are kept. STALE: how long another client continues to see an old state.

In STALE, the other client queries the old state, so that its caches contain the old state. Then this client makes a
change. The time runs from the end of the change until the other client has answered that it sees the new state. This
client measures the time, so clocks of two hosts are not compared. The time includes one network round trip.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance import actions
from pytest_ckpt.conformance.actions import decoded, encoded
from pytest_ckpt.conformance.content import PAGE, opened, page_fault, page_of, random_bytes, read_to_end
from pytest_ckpt.conformance.context import Findings
from pytest_ckpt.facts.checks import BY_NAME
from pytest_ckpt.facts.observation import SECOND_MOUNT
from pytest_ckpt.targets.posix.storage_stack import mount_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.conformance.client import Client
    from pytest_ckpt.conformance.context import CheckContext

_FILES = 300
_PAGES = 24
# The kernel caches answers of a FUSE file system for 1 s, unless the file system states another time. Then it queries
# the file system again, which may answer from its own longer cache (sshfs: 20 s). Only a request after this time
# reaches that cache.
ASKED_ANEW_SECONDS = 1.2
_LOGS, _RECORDS = 60, 12
# Lengths of the records: a line, less and more than a page, and several pages.
_RECORD_BYTES = (90, 4000, 4200, 20_000)


def read_after_close(context: CheckContext, findings: Findings) -> None:
    """Create files, and change them like software changes files of checkpoints.

    After each close, the other client opens the file once and must read the new bytes. It has read the old bytes before
    the change, so that its caches contain the old bytes. Most files are read shortly before the change. A few files are
    read so long before the change that the kernel of the other client queries the file system again. The other client
    does not look for new names before their creation, because STALE tests cached negative answers.
    """
    clients = _Clients(context, findings, *context.second())
    opens = _changed_later(clients)
    for number in range(context.count(_FILES, minimum=8)):
        path = context.directory / f"file-{number:04d}"
        versions: list[int] = []
        for change, after in _changes(number):
            clients.change(path, change, versions, after)
            versions, opens = after, opens + 1
        path.unlink()
    findings.trials = opens
    findings.facts["first opens after a close"] = f"{opens:,}"


@dataclass(frozen=True, slots=True)
class _Clients:
    """The two clients of a check: this client changes files, the other client reads them.

    ``directory`` is the path of the check's directory on the other client.
    """

    context: CheckContext
    findings: Findings
    other: Client
    directory: str

    def change(self, path: Path, change: str, before: list[int], after: list[int]) -> None:
        """Change a file and close it. Then the other client opens the file once and compares its content.

        ``before`` and ``after`` are the versions of the file's pages. ``change`` names the change in messages.
        """
        self.context.report_call("write", str(path))
        _change(path, self.context.seed, before, after)
        theirs = f"{self.directory}/{path.name}"
        seen = self.other.request("visible:first_open", theirs, seed=self.context.seed, versions=after, change=change)
        self.findings.add_plain(seen)


def _changed_later(clients: _Clients) -> int:
    """Change files that the other client read some time before. Each file is changed in a different way.

    Return how often the other client opened a file.
    """
    changes, context = _changes(0), clients.context
    read = [context.directory / f"read-before-{number}" for number in range(1, len(changes))]
    for last, path in enumerate(read):
        versions: list[int] = []
        for _, after in changes[:last]:
            _change(path, context.seed, versions, after)
            versions = after
        clients.change(path, changes[last][0], versions, changes[last][1])
    time.sleep(ASKED_ANEW_SECONDS)
    for (_, before), (change, after), path in zip(changes, changes[1:], read, strict=False):
        clients.change(path, f"{change} {ASKED_ANEW_SECONDS:g} s after the last look", before, after)
        path.unlink()
    return 2 * len(read)


def _changes(number: int) -> list[tuple[str, list[int]]]:
    """Return the changes of file ``number`` in order, as (name of the change, the version of each page after the
    change).
    """
    length = _PAGES + number % 3
    new, again = [1] * length, [2] * length
    within = [*again[:5], 3, *again[6:]]
    return [
        ("made", new),
        ("rewritten with the same size", again),
        ("changed in one page", within),
        ("appended to", [*within, 4, 4]),
        ("rewritten shorter", [5] * (length // 2)),
        ("rewritten longer", [6] * (length + 3)),
    ]


def _change(path: Path, seed: int, before: list[int], after: list[int]) -> None:
    """Change a file from the page versions ``before`` to the page versions ``after``.

    If the file becomes shorter, or if all its pages change, the file is truncated and rewritten. Otherwise, only pages
    that differ are written.
    """
    kept = len(before) <= len(after) and any(a == b for a, b in zip(before, after, strict=False))
    with opened(path, os.O_WRONLY | os.O_CREAT | (0 if kept else os.O_TRUNC)) as descriptor:
        for number, version in enumerate(after):
            if not (kept and number < len(before) and before[number] == version):
                os.pwrite(descriptor, page_of(seed, version, number), number * PAGE)


def append(context: CheckContext, findings: Findings) -> None:
    """Append records to files from both clients in turn. Each append opens and closes the file.

    Half of the files are read after each record, by the client that did not append the record. The other files are read
    only after the last record, because a read refreshes the cached file size of a client.
    """
    clients = _Clients(context, findings, *context.second())
    later = _appended_later(clients)
    logs = [_SharedLog(clients, f"log-{n}") for n in range(context.count(_LOGS, minimum=4))]
    for number, log in enumerate(logs):
        _fill(log, other_begins=number // 2 % 2 == 1, reads_between=number % 2 == 0)
    findings.trials = sum(len(log.records) for log in (*logs, *later))
    findings.facts["records appended"] = f"{findings.trials:,}"
    findings.facts["reads to the end"] = f"{sum(log.reads for log in (*logs, *later)):,}"


def _appended_later(clients: _Clients) -> list[_SharedLog]:
    """Append to one file on this client, and to another file on the other client. Return both logs.

    The client that does not append has read the file some time before the append. It compares the file afterwards.
    Finally, both files are removed.
    """
    logs = [_SharedLog(clients, f"read-before-{number}") for number in range(2)]
    for seconds in (0.0, ASKED_ANEW_SECONDS):
        time.sleep(seconds)
        for number, log in enumerate(logs):
            log.append(by_other=number == 1)
            log.read(on_other=number == 0)
    for log in logs:
        log.path.unlink()
    return logs


def _fill(log: _SharedLog, *, other_begins: bool, reads_between: bool) -> None:
    """Append to one file from both clients in turn, read the file on both clients, and remove it.

    If ``reads_between`` is true, the file is also read after each append, and a fault ends the appends.
    """
    for turn in range(_RECORDS):
        by_other = (turn % 2 == 1) != other_begins
        log.append(by_other=by_other)
        if reads_between and not log.read(on_other=not by_other):
            break
    else:
        if log.read(on_other=False):
            log.read(on_other=True)
    log.path.unlink()


@dataclass(slots=True)
class _SharedLog:
    """A file to which both clients append, with the records that were appended."""

    clients: _Clients
    name: str
    records: list[bytes] = field(default_factory=list)
    reads: int = 0

    @property
    def path(self) -> Path:
        """The path of the file on this client."""
        return self.clients.context.directory / self.name

    @property
    def theirs(self) -> str:
        """The path of the file on the other client."""
        return f"{self.clients.directory}/{self.name}"

    def append(self, *, by_other: bool) -> None:
        """Open the file with O_APPEND on one client, write the next record, and close it."""
        number = len(self.records)
        length = _RECORD_BYTES[number % len(_RECORD_BYTES)] + number
        record = random_bytes(length, self.clients.context.seed, self.name, number)
        if by_other:
            self.clients.other.write(self.theirs, record, append=True)
        else:
            self.clients.context.report_call("open with O_APPEND, write", str(self.path))
            actions.write(str(self.path), data=encoded(record), append=True)
        self.records.append(record)

    def read(self, *, on_other: bool) -> bool:
        """Open the file on one client and read to its end. Return whether the file contains all records in order.

        The size of the file is not queried; ``first_open`` explains the reason.
        """
        if on_other:
            seen, reader = self.clients.other.read(self.theirs), f"{self.theirs}, read by {self.clients.other.name}"
        else:
            self.clients.context.report_call("read", str(self.path))
            seen, reader = decoded(actions.read(str(self.path))), f"{self.path}, read by this client"
        self.reads += 1
        expected = b"".join(self.records)
        if seen == expected:
            return True
        lost = [str(number) for number, record in enumerate(self.records, 1) if record not in seen]
        damage = "an appended record is lost or torn" if lost else "appended records are out of place"
        self.clients.findings.wrong(
            "appended bytes are not seen" if expected.startswith(seen) else damage,
            where=f"{reader} after append {len(self.records)} was closed",
            seen=f"{len(seen):,} bytes; not among them in one piece: record {', '.join(lost) or 'none'}",
            expected=f"{len(self.records)} records, {len(expected):,} bytes, in the order of the appends",
        )
        return False


def first_open(path: str, *, seed: int, versions: list[int], change: str) -> dict[str, Any]:
    """Open a file once, read it to its end, and query its size. Return the anomalies.

    The bytes and the size must be as they were when another client closed the file. ``versions`` are the expected
    versions of the pages. ``change`` describes the last change of the file in messages. The size is queried after the
    read. Before such a query, some clients end each read at the cached size.
    """
    findings, expected = Findings(), len(versions) * PAGE
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        findings.wrong(
            "name missing at the first open",
            where=f"{path}, {change} and closed by the other client",
            seen="no such file",
            expected=f"{expected:,} bytes",
        )
        return findings.plain()
    try:
        data = read_to_end(descriptor)
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    if size != expected:
        findings.wrong(
            "stale size at the first open",
            where=f"{path}, {change} and closed by the other client",
            seen=f"fstat says {size:,} bytes",
            expected=f"{expected:,} bytes",
        )
    fault = page_fault(data, seed, versions)
    if fault:
        findings.wrong(
            f"{fault.kind} at the first open",
            where=f"{path} at offset {fault.offset:,}, {change} and closed by the other client",
            seen=fault.seen,
            expected="the bytes that were closed",
        )
    return findings.plain()


_STALE_TRIALS = 20
# The wait for an expired cache ends after this multiple of the limit.
GIVE_UP_TIMES = 10
_OLD_TIME, _NEW_TIME = 10**9, 10**9 + 86400


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A change of a path, and the query that detects the change.

    ``query`` is a key of ``actions.QUERIES``. The query returns ``old`` before the change and ``new`` after the change.
    ``stale`` is a failure text of a few words, for a client that still sees the old state.
    """

    description: str
    stale: str
    query: str
    old: Any
    new: Any
    prepare: Callable[[Path], object] = lambda path: None
    make: Callable[[Path], object]


def stale_attributes(context: CheckContext, findings: Findings) -> None:
    """Change attributes of a file that the other client has queried."""
    measure(context, findings, "STALE.attributes", _ATTRIBUTES)


def stale_names(context: CheckContext, findings: Findings) -> None:
    """Change files under names that the other client has looked up and listed."""
    measure(context, findings, "STALE.names", _NAMES)


def negative_names(context: CheckContext, findings: Findings) -> None:
    """Create names that the other client has looked up without success."""
    measure(context, findings, "STALE.negative-names", _NEGATIVE_NAMES)


def measure(context: CheckContext, findings: Findings, check: str, changes: tuple[Change, ...]) -> None:
    """Make each change repeatedly. The measured value is the longest time until the other client saw a change."""
    other, directory = context.second()
    limit = BY_NAME[check].limit
    assert limit is not None
    findings.facts[SECOND_MOUNT] = other.request("visible:mount", directory)
    longest, spent = {change.description: 0.0 for change in changes}, 0.0
    for trial in range(context.count(_STALE_TRIALS, minimum=3)):
        for number, change in enumerate(changes):
            path = context.directory / f"{trial}-{number}"
            theirs = f"{directory}/{path.name}"
            context.report_call(change.description, str(path))
            change.prepare(path)
            agreed, seconds = _await_change(findings, other, theirs, change, limit, before=True)
            if agreed:
                spent += seconds
                change.make(path)
                _, seconds = _await_change(findings, other, theirs, change, limit)
                longest[change.description] = max(seconds, longest[change.description])
                findings.measured = max(longest.values())
            findings.trials += 1
            spent += seconds
        # More trials would only repeat the timeout.
        if spent > GIVE_UP_TIMES * limit:
            break
    findings.facts |= {f"longest after {description}": f"{seconds:.4f} s" for description, seconds in longest.items()}


def mount(path: str) -> str:
    """Return the file system type and the options of the mount that contains a path."""
    found = mount_of(Path(path).resolve())
    return f"{found.file_system} {found.options}"


def _await_change(
    findings: Findings, other: Client, path: str, change: Change, limit: float, *, before: bool = False
) -> tuple[bool, float]:
    """Let the other client query a path until it sees the new state of a change.

    If ``before`` is true, wait for the old state instead. Return (whether the client saw the state, the seconds until
    its answer). A timeout is recorded as an anomaly.
    """
    wanted, seconds = change.old if before else change.new, GIVE_UP_TIMES * limit
    began = time.monotonic()
    answer = other.request(
        "wait_until", path, query=change.query, wanted=wanted, seconds=seconds, patience=seconds + 60
    )
    took = time.monotonic() - began
    if not answer["agreed"]:
        findings.wrong(
            "state before a change is not seen" if before else change.stale,
            where=f"{path}, {'before' if before else 'after'} {change.description}, "
            f"{answer['looks']:,} looks by {other.name}",
            seen=f"{change.query} still {_short(answer['last'])} after {took:.1f} s, when the check gave up",
            expected=f"{_short(wanted)} within {limit:g} s",
        )
    return answer["agreed"], took


def _short(value: Any) -> str:
    words = repr(value)
    return words if len(words) <= 80 else f"{words[:60]}… ({len(words):,} characters)"


def _write(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(bytes(4096))


def _with_time(path: Path) -> None:
    path.touch()
    os.utime(path, (_OLD_TIME, _OLD_TIME))


def _replacement_name(path: Path) -> Path:
    return path.with_name(f"{path.name}.beside")


def _replace(path: Path) -> None:
    _replacement_name(path).write_bytes(b"new bytes")
    _replacement_name(path).replace(path)


def _directory_with_a_file(path: Path) -> None:
    path.mkdir()
    (path / "a").touch()


_ATTRIBUTES = (
    Change(
        description="a file grew",
        stale="stale size",
        query="size",
        old=1000,
        new=5096,
        prepare=_write(bytes(1000)),
        make=_append,
    ),
    Change(
        description="a file was truncated",
        stale="stale size",
        query="size",
        old=5096,
        new=7,
        prepare=_write(bytes(5096)),
        make=lambda path: os.truncate(path, 7),
    ),
    Change(
        description="a file's time was set",
        stale="stale time",
        query="mtime",
        old=_OLD_TIME,
        new=_NEW_TIME,
        prepare=_with_time,
        make=lambda path: os.utime(path, (_NEW_TIME, _NEW_TIME)),
    ),
)
_NAMES = (
    Change(
        description="a name was removed",
        stale="stale name",
        query="exists",
        old=True,
        new=False,
        prepare=Path.touch,
        make=Path.unlink,
    ),
    Change(
        description="a name was renamed away",
        stale="stale name",
        query="exists",
        old=True,
        new=False,
        prepare=Path.touch,
        make=lambda path: path.rename(_replacement_name(path)),
    ),
    Change(
        description="a file was replaced by rename",
        stale="stale name of a replaced file",
        query="data",
        old=encoded(b"old bytes"),
        new=encoded(b"new bytes"),
        prepare=_write(b"old bytes"),
        make=_replace,
    ),
    Change(
        description="a name came into a directory",
        stale="stale listing",
        query="names",
        old=["a"],
        new=["a", "b"],
        prepare=_directory_with_a_file,
        make=lambda path: (path / "b").touch(),
    ),
    Change(
        description="a name went from a directory",
        stale="stale listing",
        query="names",
        old=["a"],
        new=[],
        prepare=_directory_with_a_file,
        make=lambda path: (path / "a").unlink(),
    ),
)
_NEGATIVE_NAMES = (
    Change(
        description="a missing file was made",
        stale="stale negative name",
        query="exists",
        old=False,
        new=True,
        make=Path.touch,
    ),
    Change(
        description="a missing directory was made",
        stale="stale negative name",
        query="exists",
        old=False,
        new=True,
        make=Path.mkdir,
    ),
    Change(
        description="a file was renamed to a missing name",
        stale="stale negative name",
        query="exists",
        old=False,
        new=True,
        prepare=lambda path: _replacement_name(path).touch(),
        make=lambda path: _replacement_name(path).rename(path),
    ),
)
