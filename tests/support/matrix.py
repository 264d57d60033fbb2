"""Which checks each fault of a target fails: the table that test_matrix.py holds against targets that misbehave.

``fails`` are the checks that must fail; nothing else may. ``may_fail`` are those that luck decides, and which are not
made: a fault that damages bytes meets other checks' files at the right moment or does not. ``says`` are words that the
verdict of a check must contain.
"""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_ckpt.facts.checks import in_room
from tests.support.targets.misbehaving import FAULTS

ALL = frozenset(c.name for c in in_room("posix"))
# Which operations each check asks of the honest target. test_matrix.py holds it against what they ask, and makes it.
OPERATIONS_FILE = Path(__file__).with_name("operations_of_checks.json")
OPERATIONS_OF: dict[str, list[str]] = json.loads(OPERATIONS_FILE.read_text()) if OPERATIONS_FILE.exists() else {}
# What reads no byte back, or none that a fault of content could meet.
WITHOUT_CONTENT = frozenset(
    c.name
    for c in in_room("posix")
    if c.requirement in ("EXCLUSIVE", "MKDIR", "NAMES", "LIVE")
    or c.name in ("COMMIT.folder", "COMMIT.folder-second-client", "STALE.negative-names")
)
CONTENT = ALL - WITHOUT_CONTENT
# They compare every byte of files of some size, written before and read from storage.
WHOLE_FILES = frozenset(
    [
        *(
            "COMMIT.file",
            "COMMIT.file-second-client",
            "MMAP.private",
            "MMAP.shared",
            "DIRECT.aligned",
            "DIRECT.coherent",
        ),
        *("UNLINK.open-reader", "UNLINK.second-client", "SPARSE.disjoint-writers"),
        *("SPARSE.disjoint-writers-second-client", "DURABLE.rank-killed", "DURABLE.power-cut", "ERRORS.acknowledged"),
        *("ERRORS.full", "FULL.mid-save", "COMMIT-FULL.each-phase"),
        *("PUBLISH.marker", "PUBLISH.folder", "PUBLISH.pointer"),
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One fault, switched on with ``parameters``, and what it does to the checks."""

    fault: str
    fails: frozenset[str]
    says: dict[str, str]
    may_fail: frozenset[str] = frozenset()
    parameters: dict[str, Any] = field(default_factory=dict)
    # After which a check counts as blocked.
    seconds: float = 150.0
    # A capability that is missing is reported, as words in the facts of a check, and fails nothing.
    reported: dict[str, str] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """What the fault does."""
        return FAULTS[self.fault].sentence

    @property
    def meets(self) -> frozenset[str]:
        """The checks that the fault can meet: in their folders it acts, and on an operation that they ask for.

        Without those that may fail besides: what luck decides proves nothing.
        """
        path, acts_on = self.parameters.get("path", "*"), set(FAULTS[self.fault].operations)
        reached = {name for name in ALL if fnmatch.fnmatch(f"{name}-1/file", path)}
        asking = {name for name in reached if acts_on & set(OPERATIONS_OF.get(name, acts_on))}
        return self.fails | asking - self.may_fail


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedRow:
    """One fault that only a run can show (none: the honest target), and the requirements that fail."""

    title: str
    fault: str
    fails: frozenset[str]
    says: dict[str, str] = field(default_factory=dict)
    may_fail: frozenset[str] = frozenset()
    parameters: dict[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    # The smallest has limits that no load of the machine reaches.
    cluster: int = 1
    # On a mount whose cache the kernel does not show, with a second client.
    without_gauge: bool = False

    @property
    def sentence(self) -> str:
        """What the fault does."""
        return FAULTS[self.fault].sentence if self.fault else "Nothing."


def row(
    fault: str, fails: str, says: dict[str, str] | None = None, may: str = "", seconds: float = 150.0, **parameters: Any
) -> Row:
    """Return a row whose checks are written as words."""
    return Row(
        seconds=seconds, fault=fault, fails=_names(fails), says=says or {}, may_fail=_names(may), parameters=parameters
    )


def _names(words: str) -> frozenset[str]:
    names = frozenset(words.split())
    assert names <= ALL, names - ALL
    return names


def damage(fault: str, word: str, *, without: str = "") -> Row:
    """Return a row for a fault that damages content wherever it is."""
    fails = WHOLE_FILES - _names(without)
    return Row(
        fault=fault,
        fails=fails,
        says={"MMAP.private": word} if "MMAP.private" in fails else {},
        may_fail=CONTENT - fails,
    )


# Faults that a volume or quota has for some files only: those of the check that is about errors.
ERRORS = "ERRORS.*"
_OF_ERRORS = "ERRORS.acknowledged"

MATRIX = (
    damage("flipped bit in reads", "flipped bits"),
    damage("flipped bit at rest", "flipped bits"),
    damage("torn write", "zeros instead of data"),
    damage("misplaced write", "misplaced bytes"),
    damage("misplaced read", "misplaced bytes"),
    row(
        "stale data",
        "COMMIT.file-second-client VISIBLE.read-after-close STALE.names POINTER.overwrite-second-client",
        {"VISIBLE.read-after-close": "bytes of an older version"},
        may="UNLINK.second-client SPARSE.disjoint-writers-second-client STALE.attributes "
        "CAPABILITIES.flock-second-client",
    ),
    row(
        "data arrive after their name",
        "PUBLISH.marker PUBLISH.folder PUBLISH.pointer",
        {"PUBLISH.folder": "marker visible before its data", "PUBLISH.marker": "marker without its content"},
        path="PUBLISH.*",
    ),
    row(
        "late data",
        "VISIBLE.read-after-close COMMIT.file-second-client STALE.names STALE.attributes "
        "POINTER.overwrite-second-client",
        {"VISIBLE.read-after-close": "stale size at the first open"},
        may="SPARSE.disjoint-writers-second-client UNLINK.second-client PUBLISH.marker PUBLISH.folder PUBLISH.pointer",
    ),
    Row(
        fault="overwrite in place is not atomic",
        fails=_names("POINTER.overwrite POINTER.overwrite-second-client"),
        says={"POINTER.overwrite": "b'\\xa5"},
        may_fail=CONTENT,
    ),
    row(
        "holes are not zero",
        "SPARSE.tail-first LARGE.offsets",
        {"SPARSE.tail-first": "bytes in a hole"},
        # A file that was cut short and grows again has a hole for a moment.
        may="POINTER.overwrite POINTER.overwrite-second-client CAPABILITIES.extras",
    ),
    row("large offset wraps", "LARGE.offsets", {"LARGE.offsets": "large-4-GiB"}),
    row("file size limited", "LARGE.offsets", {"LARGE.offsets": "file size limited"}),
    row(
        "O_DIRECT is not coherent",
        "DIRECT.coherent",
        {"DIRECT.coherent": "zeros instead of data"},
        # They read back past the caches, so with O_DIRECT.
        may="COMMIT-FULL.each-phase DURABLE.rank-killed ERRORS.acknowledged ERRORS.full FULL.mid-save "
        "DURABLE.power-cut DIRECT.aligned",
    ),
    row(
        "unlink takes the file from its readers",
        "UNLINK.open-reader",
        {"UNLINK.open-reader": "removed file fails"},
        # A rename over a file unlinks it, too: who opens it then is refused.
        may="COMMIT.file COMMIT.file-second-client",
    ),
    row(
        "unlink gives its readers wrong bytes",
        "UNLINK.open-reader UNLINK.second-client",
        {"UNLINK.open-reader": "wrong bytes"},
        # A rename over a file unlinks it, too.
        may="COMMIT.file COMMIT.file-second-client POINTER.overwrite POINTER.overwrite-second-client",
    ),
    row(
        "reading through mmap gives SIGBUS",
        "MMAP.private MMAP.shared",
        {"MMAP.private": "SIGBUS"},
        may="UNLINK.open-reader",
    ),
    row(
        "fsync of files is lost",
        "DURABLE.power-cut",
        {"DURABLE.power-cut": "acknowledged bytes lost in a power cut"},
        # What is never made durable keeps its space.
        may="FULL.mid-save COMMIT-FULL.each-phase",
    ),
    row(
        "fsync of folders is lost",
        "DURABLE.power-cut",
        {"DURABLE.power-cut": "acknowledged name lost in a power cut"},
        may="FULL.mid-save COMMIT-FULL.each-phase",
    ),
    row("power cut does not cut", "DURABLE.power-cut", {"DURABLE.power-cut": "the power cut did not cut"}),
    row("EIO in write", _OF_ERRORS, {_OF_ERRORS: "EIO in write"}, may="ERRORS.full", path=ERRORS),
    row("EIO in fsync", _OF_ERRORS, {_OF_ERRORS: "EIO in fsync"}, may="ERRORS.full", path=ERRORS),
    row("EIO in close", _OF_ERRORS, {_OF_ERRORS: "EIO in close"}, may="ERRORS.full", path=ERRORS),
    row("EIO in read", _OF_ERRORS, {_OF_ERRORS: "Input/output error"}, may="ERRORS.full", path=ERRORS),
    row("ENOSPC in write", _OF_ERRORS, {_OF_ERRORS: "ENOSPC in write"}, may="ERRORS.full", path=ERRORS),
    row("EDQUOT in write", _OF_ERRORS, {_OF_ERRORS: "EDQUOT in write"}, may="ERRORS.full", path=ERRORS),
    row(
        "rename without space loses the name",
        "COMMIT-FULL.each-phase",
        {"COMMIT-FULL.each-phase": "the pointer to the newest checkpoint is lost in a commit without space"},
    ),
    row(
        "ENOSPC is swallowed",
        _OF_ERRORS,
        {_OF_ERRORS: "acknowledged bytes are not there"},
        may="ERRORS.full",
        path=ERRORS,
    ),
    row(
        "error of write-back is lost",
        _OF_ERRORS,
        {_OF_ERRORS: "acknowledged bytes are not there"},
        may="ERRORS.full",
        path=ERRORS,
    ),
    row("EROFS", _OF_ERRORS, {_OF_ERRORS: "read-only file system"}, may="ERRORS.full", path=ERRORS),
    row("no O_DIRECT", "DIRECT.aligned", {"DIRECT.aligned": "O_DIRECT refused"}),
    row("no mmap", "MMAP.shared", {"MMAP.shared": "mmap refused"}, may="MMAP.private UNLINK.open-reader"),
    row("no symbolic links", "CAPABILITIES.links", {"CAPABILITIES.links": "symbolic links refused"}),
    row(
        "no hard links",
        "CAPABILITIES.links",
        {"CAPABILITIES.links": "link"},
        may="COMMIT.file COMMIT.file-second-client",
    ),
    Row(fault="no extended attributes", fails=frozenset(), says={}, reported={"CAPABILITIES.extras": "no"}),
    row(
        "extended attributes lose a byte",
        "CAPABILITIES.extras",
        {"CAPABILITIES.extras": "did not come back as it was set"},
    ),
    Row(fault="no fallocate", fails=frozenset(), says={}, reported={"CAPABILITIES.extras": "no"}),
    row(
        "flock refuses a free lock",
        "CAPABILITIES.flock CAPABILITIES.flock-second-client",
        {"CAPABILITIES.flock": "flock refused", "CAPABILITIES.flock-second-client": "free lock refused"},
    ),
    row(
        "flock locks nobody out",
        "CAPABILITIES.flock CAPABILITIES.flock-second-client",
        {"CAPABILITIES.flock": "exclusive lock given twice"},
    ),
    row(
        "rename of a file is not atomic: no name",
        "COMMIT.file COMMIT.file-second-client",
        {"COMMIT.file": "name missing during a rename"},
        may="COMMIT-FULL.each-phase CAPABILITIES.links STALE.names CAPABILITIES.names",
    ),
    row(
        "rename of a file is not atomic: short content",
        "COMMIT.file COMMIT.file-second-client",
        {"COMMIT.file": "file too short during a rename"},
        may="PUBLISH.marker COMMIT-FULL.each-phase CAPABILITIES.links STALE.names CAPABILITIES.names",
    ),
    row(
        "rename of a folder is not atomic",
        "COMMIT.folder COMMIT.folder-second-client",
        {"COMMIT.folder": "during a rename"},
        # A checkpoint is a folder that is renamed when it is whole.
        may="DURABLE.power-cut DURABLE.rank-killed FULL.mid-save COMMIT-FULL.each-phase LIVE.calls",
    ),
    row(
        "names dropped in a listing",
        "NAMES.many NAMES.after-change NAMES.second-client",
        {"NAMES.many": "name missing in a listing"},
        may="COMMIT.folder COMMIT.folder-second-client",
        at_least=60,
    ),
    row(
        "names twice in a listing",
        "NAMES.many NAMES.after-change NAMES.second-client",
        {"NAMES.many": "name listed twice"},
        may="COMMIT.folder COMMIT.folder-second-client",
        at_least=60,
    ),
    row(
        "still listed after delete",
        "NAMES.after-change",
        {"NAMES.after-change": "removed or unknown name in a listing"},
        may="NAMES.second-client NAMES.many STALE.names ERRORS.full FULL.mid-save",
    ),
    row(
        "not listed after create",
        "NAMES.many NAMES.after-change",
        {"NAMES.after-change": "name missing in a listing"},
        # What lists a folder to compare it, or to remove it, misses the name too.
        may="NAMES.second-client COMMIT.folder COMMIT.folder-second-client CAPABILITIES.names DURABLE.power-cut "
        "DURABLE.rank-killed ERRORS.full FULL.mid-save COMMIT-FULL.each-phase LIVE.calls STALE.names",
    ),
    row(
        "O_EXCL is not exclusive",
        "EXCLUSIVE.create EXCLUSIVE.create-second-client",
        {"EXCLUSIVE.create": "several winners"},
        path="EXCLUSIVE.*",
    ),
    row(
        "mkdir is not exclusive",
        "MKDIR.race MKDIR.race-second-client",
        {"MKDIR.race": "mkdir with several winners"},
        path="MKDIR.*",
    ),
    row(
        "new folder is not visible",
        "MKDIR.race MKDIR.race-second-client",
        {"MKDIR.race": "folder that was just made cannot be used"},
        path="MKDIR.*",
    ),
    row(
        "stale names",
        "STALE.names",
        {"STALE.names": "limit 1 s"},
        may="COMMIT.file-second-client COMMIT.folder-second-client VISIBLE.read-after-close UNLINK.second-client "
        "MKDIR.race-second-client POINTER.overwrite-second-client",
    ),
    row(
        "stale negative names",
        "STALE.negative-names",
        {"STALE.negative-names": "s"},
        may="MKDIR.race-second-client EXCLUSIVE.create-second-client COMMIT.folder-second-client STALE.names",
    ),
    row(
        "stale attributes",
        "STALE.attributes VISIBLE.read-after-close",
        {"VISIBLE.read-after-close": "stale size"},
        may="POINTER.overwrite-second-client SPARSE.disjoint-writers-second-client UNLINK.second-client "
        "COMMIT.file-second-client STALE.names",
    ),
    row(
        "stale listing",
        "STALE.names",
        {"STALE.names": "limit 1 s"},
        may="NAMES.second-client COMMIT.folder-second-client MKDIR.race-second-client",
    ),
    row("names regardless of case", "CAPABILITIES.names", {"CAPABILITIES.names": "case"}),
    row("names of limited length", "CAPABILITIES.names", {"CAPABILITIES.names": "name"}),
    row(
        "hang",
        "LIVE.calls",
        {"LIVE.calls": "did not return"},
        path="LIVE.*",
        operation="fsync",
        seconds=8.0,
    ),
    row("concurrent O_TRUNC hangs", "TRUNCATE.concurrent", {"TRUNCATE.concurrent": "a call hangs"}),
    row(
        "statfs never changes", "CAPABILITIES.statfs", {"CAPABILITIES.statfs": "free"}, may="FULL.mid-save ERRORS.full"
    ),
    row("mtime goes back", "CAPABILITIES.mtime", {"CAPABILITIES.mtime": "time"}, may="STALE.attributes"),
    row("mtime is coarse", "CAPABILITIES.mtime", {"CAPABILITIES.mtime": "time"}),
)


def kind_of(fault: str) -> str:
    """Return what a fault is about: data, names, durable, errors or time."""
    return FAULTS[fault].__module__.rpartition("_")[2]


def _one_of_each() -> tuple[Row, ...]:
    """Return a row for every requirement, and for every kind of fault: the one that the fewest checks must find."""
    rows = sorted((row for row in MATRIX if row.fails), key=lambda row: len(row.fails))
    requirements, kinds = {name.partition(".")[0] for name in ALL}, {kind_of(row.fault) for row in rows}
    of_requirements = {
        one: next(r for r in rows if any(n.startswith(f"{one}.") for n in r.fails)) for one in requirements
    }
    of_kinds = {kind: next(row for row in rows if kind_of(row.fault) == kind) for kind in kinds}
    faults = {row.fault for row in (*of_requirements.values(), *of_kinds.values())}
    return tuple(row for row in MATRIX if row.fault in faults)


KINDS = frozenset(kind_of(fault) for fault in FAULTS)
# What the fast set holds of the matrix.
ONE_OF_EACH = _one_of_each()

EVENLY = frozenset(("STRAGGLER", "REPEAT"))  # advisory: a machine with other work beside it is uneven
# One rank whose checkpoint holds ten parts of 64 MiB.
OF_CANARIES = ("--ckpt-processes=1", "--ckpt-scale=1/148", "--ckpt-operations=1", "--ckpt-request=1MiB")
OF_SPEED = (
    SpeedRow(title="honest", fault="", fails=frozenset(), may_fail=EVENLY),
    SpeedRow(
        title="slow",
        fault="slow",
        parameters={"bytes_per_second": 10e6},
        cluster=256,
        fails=frozenset(("SAVE", "LOAD")),
        says={"SAVE": "limit"},
        may_fail=EVENLY,
    ),
    SpeedRow(
        title="writes trickle",
        fault="writes trickle",
        options=("--ckpt-engine=torch", "--ckpt-deadline=3s"),
        cluster=16_000,
        # Elsewhere the kernel itself goes on with what is left of a large write.
        without_gauge=True,
        fails=frozenset(("SAVE",)),
        says={"SAVE": "was far too slow"},
    ),
    SpeedRow(
        title="slow file",
        fault="slow file",
        parameters={"path": "*rank_2_*", "seconds": 0.02},
        options=("--ckpt-processes=4",),
        fails=frozenset(("STRAGGLER",)),
        says={"STRAGGLER": "rank 2"},
        may_fail=frozenset(("REPEAT", "SAVE", "LOAD")),
    ),
    SpeedRow(
        title="fast for duplicate data",
        fault="fast for duplicate data",
        parameters={"bytes_per_second": 20e6},
        options=("--ckpt-data-pairs=1",),
        fails=frozenset(("DATA",)),
        says={"DATA": "constant"},
        may_fail=EVENLY | {"SAVE"},
    ),
    SpeedRow(
        title="fast when cached",
        fault="fast when cached",
        parameters={"bytes_per_second": 20e6, "cache_bytes": 17 << 20, "takes_reads": False},
        options=("--ckpt-operations=3",),
        fails=frozenset(("REPEAT",)),
        says={"REPEAT": "a cache behind the client may have held what they read"},
        may_fail=EVENLY,
    ),
    SpeedRow(
        title="client cache survives the drop",
        fault="client cache survives the drop",
        options=OF_CANARIES,
        without_gauge=True,
        fails=frozenset(("COLD",)),
        says={"COLD": "a cache of the client survived the drop"},
        may_fail=EVENLY,
    ),
)
