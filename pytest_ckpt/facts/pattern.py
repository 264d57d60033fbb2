"""Patterns of recorded jobs, and the format of pattern files. Pure.

A pattern contains the file calls of one save of a job, without names and data. It describes each file by a number, the
size, and the rank that created the file.

A lane is a thread of a rank. A step is one call of a lane, or a sequence of similar calls. The steps of a lane run in
sequence. A phase begins when all ranks have ended the previous phase. In one phase, lanes work on different files.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, get_args

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.support.strict_json import parse

FORM = 1
"""The version of the format; a reader refuses other versions."""

MAXIMUM_FILES, MAXIMUM_FILES_OF_RANK, MAXIMUM_STEPS, MAXIMUM_RANKS, MAXIMUM_LANES = 4096, 1024, 20_000, 1024, 64
MAXIMUM_FILE_BYTES = 1 << 44
MAXIMUM_PAUSE_US = 3_600_000_000
"""The maximum total pause of a lane, in microseconds."""

SMALL_BYTES = 1 << 20
"""The size limit of small files.

A file smaller than this, and smaller than an eighth of its rank's largest file, keeps its size at every scale.
"""

_SMALL_SHARE = 8
_MAXIMUM_TIMES_WRITTEN = 4
_MAXIMUM_TEXT = 200

Call = Literal[
    "create", "create new", "truncate and open", "open", "open to read", "write", "read", "allocate", "set size",
    "fsync", "fdatasync", "close", "rename", "unlink", "fsync directory", "syncfs",
]  # fmt: skip
OF_DIRECTORY: frozenset[str] = frozenset({"fsync directory", "syncfs"})
"""The calls that do not refer to a file: they flush a directory, or the file system of a directory."""
Synchronous = Literal["", "O_DSYNC", "O_SYNC"]
OPENS: frozenset[str] = frozenset({"create", "create new", "truncate and open", "open", "open to read"})
ON_OPEN: frozenset[str] = frozenset({"write", "read", "allocate", "set size", "fsync", "fdatasync", "close"})


@dataclass(frozen=True, kw_only=True, slots=True)
class PatternFile:
    """One file, created by rank ``rank``. If ``kept``, the file exists at the end of the save.

    If the job opened the file with a flag that makes each write durable before it returns, ``synchronous`` is this
    flag; otherwise it is empty.
    """

    rank: int
    bytes: int
    kept: bool = True
    synchronous: Synchronous = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """``count`` consecutive calls of one lane on file number ``file``.

    The first call begins at ``offset``. Each call transfers ``bytes`` and continues at the end of the previous call.
    ``pause_us`` is the lane's total time for other work before these calls, in microseconds.
    """

    phase: int
    rank: int
    lane: int
    call: Call
    file: int = -1
    offset: int = 0
    bytes: int = 0
    count: int = 1
    pause_us: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Pattern:
    """One save of a job. ``label`` is the name that the owner of the job chose.

    ``omitted`` is {kind of call: number of calls that a replay leaves out}. ``read_bytes`` is the size of a read in the
    job's loads; 0 if no load was recorded. If the sizes differ, it is the size whose reads moved the most bytes.
    """

    form: int
    created_by: str
    label: str
    ranks: int
    files: tuple[PatternFile, ...]
    steps: tuple[Step, ...]
    read_bytes: int = 0
    omitted: dict[str, int] = field(default_factory=dict)

    def of_rank(self, rank: int) -> int:
        """Return the number of the recorded rank whose calls rank ``rank`` of a replay repeats.

        If a recorded rank has the number ``rank``, return this number. If the replay has more ranks than the recording,
        the additional ranks repeat the recorded ranks other than rank 0, in turn. If only rank 0 was recorded, all
        ranks repeat rank 0.
        """
        return rank if rank < self.ranks else 1 + (rank - 1) % (self.ranks - 1) if self.ranks > 1 else 0

    def files_of(self, rank: int) -> list[int]:
        """Return the numbers of the files that a recorded rank created and kept."""
        return [number for number, file in enumerate(self.files) if file.rank == rank and file.kept]

    def is_small(self, number: int) -> bool:
        """Whether file ``number`` has the same size at every scale."""
        file = self.files[number]
        return is_small(file.bytes, max(self.files[other].bytes for other in self.files_of(file.rank)))

    def pauses_us(self) -> dict[tuple[int, int], int]:
        """Return {(rank, lane): total pause in microseconds} for the lanes that paused."""
        found: Counter[tuple[int, int]] = Counter()
        for step in self.steps:
            found[step.rank, step.lane] += step.pause_us
        return {who: pause for who, pause in found.items() if pause}

    def unsynced(self) -> list[int]:
        """Return the numbers of the kept files that the job did not flush after their last change.

        A ``syncfs`` call flushes only the files of its own rank, because other ranks of a replay may be on other hosts.
        """
        found: set[int] = set()
        for step in self.steps:
            if step.call in {"write", "set size", "allocate"}:
                if step.call != "write" or not self.files[step.file].synchronous:
                    found.add(step.file)
            elif step.call in {"fsync", "fdatasync"}:
                found.discard(step.file)
            elif step.call == "syncfs":
                found = {number for number in found if self.files[number].rank != step.rank}
        return [number for number in sorted(found) if self.files[number].kept]

    def to_text(self) -> str:
        """Return the text of the pattern file, with one line per step."""
        plain = to_plain(self)
        rows = {"files": _rows(plain.pop("files")), "steps": _rows(plain.pop("steps"))}
        head = json.dumps(plain, indent=1)[:-2]
        return head + "".join(f',\n "{name}": [\n  {text}\n ]' for name, text in rows.items()) + "\n}\n"


def is_small(size: int, largest: int) -> bool:
    """Whether a file of ``size`` bytes is so small that it keeps its size at every scale (`SMALL_BYTES`).

    ``largest`` is the size of the largest file of the same rank.
    """
    return size < SMALL_BYTES and size * _SMALL_SHARE < largest


@lru_cache(maxsize=8)
def read_pattern(text: str) -> Pattern:
    """Return the pattern in the text of a pattern file. Raises ValueError with a sentence about the error."""
    plain = parse(text.encode())
    if not isinstance(plain, dict) or "steps" not in plain or "files" not in plain:
        raise ValueError("it is not a pattern: expected a table with files and steps")
    if plain.get("form") != FORM:
        raise ValueError(f"its form is {plain.get('form')!r}, and this version reads form {FORM}")
    try:
        pattern = from_plain(
            Pattern,
            plain
            | {
                "files": [_row(PatternFile, row) for row in plain["files"]],
                "steps": [_row(Step, row) for row in plain["steps"]],
            },
        )
        _check(pattern)
    except (TypeError, AttributeError, KeyError, IndexError):
        raise ValueError("it is not a pattern: a field or a value has the wrong type") from None
    return pattern


# The default of a row's last value; a file may omit it.
_OPTIONAL = frozenset({"pause_us", "synchronous"})


def _rows(records: list[dict[str, Any]]) -> str:
    """Return ``records`` as the text of rows of values. A row omits its last value if this is the default."""
    return ",\n  ".join(
        json.dumps([value for name, value in record.items() if value or name not in _OPTIONAL]) for record in records
    )


def _row(kind: type[Any], row: Any) -> dict[str, Any]:
    names = list(kind.__dataclass_fields__)
    least = len(names) - 1
    if not isinstance(row, list) or not least <= len(row) <= len(names):
        raise ValueError(f"a row has {least} values ({', '.join(names[:least])}), and may have {names[-1]}")
    return dict(zip(names, row, strict=False))


def _check(pattern: Pattern) -> None:
    """Raise ValueError if a replay could not perform the pattern, or would write more bytes than planned."""
    if not 1 <= pattern.ranks <= MAXIMUM_RANKS:
        raise ValueError(f"1 to {MAXIMUM_RANKS} ranks are expected")
    if not 1 <= len(pattern.files) <= MAXIMUM_FILES or not 1 <= len(pattern.steps) <= MAXIMUM_STEPS:
        raise ValueError(f"1 to {MAXIMUM_FILES:,} files and 1 to {MAXIMUM_STEPS:,} steps are expected")
    for text in (pattern.label, pattern.created_by, *pattern.omitted):
        if not isinstance(text, str) or len(text) > _MAXIMUM_TEXT or not text.isprintable():
            raise ValueError(f"texts of {_MAXIMUM_TEXT} printable characters at most are expected")
    numbers = [pattern.read_bytes, *pattern.omitted.values()]
    for file in pattern.files:
        numbers += (file.rank, file.bytes)
        if file.synchronous not in get_args(Synchronous):
            raise ValueError(
                f"{file.synchronous!r:.40} is not a flag of a synchronous file: expected O_DSYNC or O_SYNC"
            )
    for step in pattern.steps:
        numbers += (step.phase, step.rank, step.lane, step.file + 1, step.offset, step.bytes, step.count, step.pause_us)
    if any(type(n) is not int or not 0 <= n <= MAXIMUM_FILE_BYTES for n in numbers):
        raise ValueError(f"whole numbers from 0 to {MAXIMUM_FILE_BYTES:,} are expected")
    if any(file.rank >= pattern.ranks for file in pattern.files):
        raise ValueError("a file is of a rank that is not there")
    for rank in range(pattern.ranks):
        if sum(file.rank == rank for file in pattern.files) > MAXIMUM_FILES_OF_RANK:
            raise ValueError(f"rank {rank} has more than {MAXIMUM_FILES_OF_RANK:,} files")
        if not sum(pattern.files[number].bytes for number in pattern.files_of(rank)):
            raise ValueError(f"rank {rank} leaves no file with data")
    if max(pattern.pauses_us().values(), default=0) > MAXIMUM_PAUSE_US:
        raise ValueError("a thread pauses for more than an hour")
    _check_steps(pattern)
    check_covered(pattern)


def _check_steps(pattern: Pattern) -> None:
    is_open: Counter[tuple[int, int]] = Counter()
    lane_of: dict[tuple[int, int, int], int] = {}
    phase_of: dict[tuple[int, int], int] = {}
    for step in pattern.steps:
        who = (step.rank, step.lane)
        if step.call not in get_args(Call):
            raise ValueError(f"{step.call!r} is not a call of a pattern")
        if step.rank >= pattern.ranks or step.lane >= MAXIMUM_LANES or not step.count:
            raise ValueError("a step is of a rank or lane that is not there, or of no call")
        if step.phase < phase_of.get(who, 0) or step.phase > MAXIMUM_LANES:
            raise ValueError("phases of a lane go back")
        phase_of[who] = step.phase
        if step.count > 1 and not (step.call in {"write", "read"} and step.bytes):
            raise ValueError("only writes and reads of some bytes come in runs")
        if step.call in OF_DIRECTORY:
            continue
        if not 0 <= step.file < len(pattern.files):
            raise ValueError("a step is on a file that is not there")
        if step.offset + step.bytes * step.count > pattern.files[step.file].bytes:
            raise ValueError("a step goes beyond the end of its file")
        if pattern.files[step.file].rank != step.rank:
            raise ValueError("ranks work on one file together, which no replay does yet")
        if lane_of.setdefault((step.phase, step.rank, step.file), step.lane) != step.lane:
            raise ValueError("two lanes work on one file")
        handle = (step.rank, step.file)
        if step.call in OPENS:
            is_open[handle] += 1
        elif step.call in ON_OPEN and is_open[handle] < 1:
            raise ValueError(f"a {step.call} comes before its file is open")
        if step.call == "close":
            is_open[handle] -= 1


def check_covered(pattern: Pattern) -> None:
    """Raise ValueError if writes do not cover a kept file completely, or write a file many times."""
    for number, file in enumerate(pattern.files):
        spans = sorted((s.offset, s.bytes * s.count) for s in pattern.steps if s.file == number and s.call == "write")
        if sum(size for _, size in spans) > _MAXIMUM_TIMES_WRITTEN * max(file.bytes, SMALL_BYTES):
            raise ValueError(f"file {number} is written more than {_MAXIMUM_TIMES_WRITTEN} times over")
        if not file.kept or not file.bytes:
            continue
        reach = 0
        for (start, size), _ in pairwise([*spans, (file.bytes, 0)]):
            if start > reach:
                break
            reach = max(reach, start + size)
        if reach < file.bytes:
            raise ValueError(
                f"no write covers byte {reach:,} of file {number} ({file.bytes:,} bytes): the job wrote it in a way "
                "that calls do not show (memory mapping, io_uring, libaio), or left a hole"
            )
