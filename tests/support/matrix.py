"""Which checks each fault of a target fails: the table that test_matrix.py holds against targets that misbehave.

``fails`` are the checks that must fail; nothing else may. ``may_fail`` are those that luck decides, and which are not
made: a fault that damages bytes meets other checks' files at the right moment or does not. ``says`` are words that the
verdict of a check must contain.
"""

from __future__ import annotations

from tests.support.matrix_rows import ALL, CONTENT, Row, damage, names, row
from tests.support.targets.misbehaving import FAULTS

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
        "VISIBLE.read-after-close VISIBLE.append COMMIT.file-second-client STALE.names STALE.attributes "
        "POINTER.overwrite-second-client",
        {"VISIBLE.read-after-close": "stale size at the first open"},
        may="SPARSE.disjoint-writers-second-client UNLINK.second-client PUBLISH.marker PUBLISH.folder PUBLISH.pointer",
    ),
    row(
        "appended bytes come late",
        "VISIBLE.append STALE.attributes",
        {"VISIBLE.append": "appended bytes are not seen"},
    ),
    row(
        "appended bytes overwrite those of the other client",
        "VISIBLE.append",
        {"VISIBLE.append": "an appended record is lost or torn"},
    ),
    row(
        "what was just written is told as a hole",
        "CLONE-FRESH.copy",
        {"CLONE-FRESH.copy": "copied by SEEK_DATA and SEEK_HOLE"},
    ),
    row(
        "what was just written is copied as zeros",
        "CLONE-FRESH.copy",
        {"CLONE-FRESH.copy": "copied by copy_file_range"},
    ),
    Row(
        fault="overwrite in place is not atomic",
        fails=names("POINTER.overwrite POINTER.overwrite-second-client"),
        says={"POINTER.overwrite": "b'\\xa5"},
        may_fail=CONTENT,
    ),
    row(
        "holes are not zero",
        "SPARSE.tail-first CLONE-FRESH.copy LARGE.offsets",
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
        "STALE.attributes VISIBLE.read-after-close VISIBLE.append POINTER.overwrite-second-client",
        {"VISIBLE.read-after-close": "stale size", "POINTER.overwrite-second-client": "longer text is cut"},
        may="SPARSE.disjoint-writers-second-client UNLINK.second-client COMMIT.file-second-client STALE.names",
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
