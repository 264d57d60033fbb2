"""Which checks each fault of an object store fails: the table that test_matrix_of_objects.py holds against such stores.

``fails`` are the checks that must fail, ``may_fail`` those that may besides, by the moment at which they ask; nothing
else may fail. ``says`` are words that the verdict of the first of them must contain.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ckpt.facts.checks import in_room
from tests.support.targets import (  # noqa: F401 - faults are there, too
    object_faults_conditions,
    object_faults_data,
    object_faults_sizes,
)
from tests.support.targets.object_faults import FAULTS

ALL = frozenset(check.name for check in in_room("objects"))
LARGE = frozenset({"OBJECT-LARGE.ranges", "OBJECT-LIMITS.many"})
"""Those that make an object of 5 GiB."""
# Those that ask for parts and ranges, too: a fault that they do not meet, an object of many parts does not meet either.
_OF_PARTS_AND_RANGES = frozenset({"OBJECT-MULTIPART.parts", "OBJECT-LIMITS.parts", "OBJECT-RANGE.bytes"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One fault, and what it does to the checks."""

    fault: str
    says: str
    fails: tuple[str, ...]
    may_fail: frozenset[str] = frozenset()
    # For which a store may be silent: those of these tests answer far sooner than a real one must.
    silent_seconds: float = 10.0

    @property
    def meets(self) -> list[str]:
        """The checks that may meet the fault: to make objects of 5 GiB takes half of the time of all."""
        return sorted(ALL if {*self.fails, *self.may_fail} & (_OF_PARTS_AND_RANGES | LARGE) else ALL - LARGE)

    @property
    def sentence(self) -> str:
        """What the fault does."""
        return " ".join((FAULTS[self.fault].__doc__ or "").split())


def _row(fault: str, says: str, *fails: str, may_fail: tuple[str, ...] = (), silent_seconds: float = 10.0) -> Row:
    return Row(
        fault=fault,
        says=says,
        fails=tuple(f"OBJECT-{name}" for name in fails),
        may_fail=frozenset(f"OBJECT-{name}" for name in may_fail),
        silent_seconds=silent_seconds,
    )


MATRIX = (
    _row("late objects", "object of a committed checkpoint missing", "COMMIT.marker"),
    _row("stale get", "old object after an overwrite", "VISIBLE.get", "UPDATE.put", "MULTIPART.hidden",
         "RANGE.overwritten"),
    _row("ghost after delete", "deleted object still seen", "VISIBLE.get"),
    _row("negative cache", "new object not seen", "VISIBLE.get", "MULTIPART.hidden", "DIGEST.object",
         may_fail=("COMMIT.marker",)),
    _row("late head", "new object not seen", "VISIBLE.head", "MULTIPART.hidden", "DIGEST.kept", "LIVE.requests",
         "LARGE.ranges", "LIMITS.many", "CROWD.marker"),
    _row("stale head", "old object after an overwrite", "VISIBLE.head", "MULTIPART.hidden"),
    _row("stale list", "new object not seen", "VISIBLE.list", "MULTIPART.hidden", "LIST.pages", "LIST.names",
         "LARGE.ranges", "LIMITS.many", "CROWD.marker"),
    _row("listed after delete", "deleted object still seen", "VISIBLE.list"),
    _row("truncated object", "not whole", "COMMIT.marker", "MULTIPART.parts", "LIMITS.parts", "RANGE.bytes",
         "RANGE.overwritten", "OVERWRITE.writers"),
    _row("flipped bit", "not whole", "COMMIT.marker", "MULTIPART.parts", "LIMITS.parts", "RANGE.bytes",
         "RANGE.overwritten", "OVERWRITE.writers"),
    _row("two creators", "several winners", "CREATE.put", "CREATE.multipart"),
    _row("If-None-Match ignored", "condition ignored", "CREATE.put", "CREATE.multipart"),
    _row("If-None-Match of uploads ignored", "condition ignored", "CREATE.multipart"),
    _row("two updaters", "several winners", "UPDATE.put"),
    _row("If-Match ignored", "condition ignored", "UPDATE.put"),
    _row("early visible multipart", "upload seen", "MULTIPART.hidden", "CREATE.multipart"),
    _row("abort that does nothing", "aborted upload still listed", "MULTIPART.hidden"),
    _row("uploads that no listing shows", "unfinished upload not listed", "MULTIPART.hidden"),
    _row("lost part", "object is not its parts", "MULTIPART.parts", "LARGE.ranges", "LIMITS.many"),
    _row("parts in order of arrival", "object is not its parts", "MULTIPART.parts", "LARGE.ranges", "LIMITS.many"),
    _row("parts that were not named", "object is not its parts", "MULTIPART.parts"),
    _row("small parts accepted", "not refused", "LIMITS.parts"),
    _row("1,000 parts at most", "part refused", "LIMITS.parts", "LIMITS.many"),
    _row("ignored digest", "wrong digest accepted", "DIGEST.object", "DIGEST.part"),
    _row("ignored digest of parts", "wrong digest accepted", "DIGEST.part"),
    _row("only Content-MD5 checked", "x-amz-checksum-crc32 of", "DIGEST.object", "DIGEST.part"),
    _row("refused and kept", "refused object is there", "DIGEST.object"),
    _row("forgotten checksums", "checksum not kept", "DIGEST.kept"),
    _row("shifted range", "wrong bytes in a range", "RANGE.bytes", "RANGE.overwritten"),
    _row("ignored range", "wrong bytes in a range", "RANGE.bytes", "RANGE.overwritten", "LARGE.ranges",
         "LIMITS.many"),
    _row("swapped ranges", "wrong bytes in a range", "RANGE.bytes"),
    _row("If-Match of reads ignored", "condition of a range ignored", "RANGE.overwritten"),
    _row("torn overwrite", "object of several writers", "OVERWRITE.writers", may_fail=("RANGE.overwritten",)),
    _row("missing keys", "key missing in a listing", "LIST.pages"),
    _row("doubled keys", "key listed twice", "LIST.pages"),
    _row("wrong order", "keys in wrong order", "LIST.pages", "LIST.names"),
    _row("one page only", "key missing in a listing", "LIST.pages"),
    _row("keys folded to small letters", "key missing in a listing", "LIST.names"),
    _row("keys cleaned like paths", "key refused", "LIST.names"),
    _row("stalled put", "did not answer in time", "LIVE.requests", "LARGE.ranges", "LIMITS.many",
         silent_seconds=0.4),
    _row("offsets of 32 bits", "wrong bytes in a large object", "LARGE.ranges", "LIMITS.many"),
    _row("5 GiB at most", "large object refused", "LARGE.ranges"),
    _row("1,000 parts named at most", "large object refused", "LIMITS.many"),
    _row("busy for a crowd", "client of a crowd turned away", "CROWD.marker"),
    _row("less for a crowd", "client of a crowd sees less", "CROWD.marker"),
    _row("reset connections", "the connection was cut", "MULTIPART.parts", "LIMITS.parts", "LIVE.requests"),
)  # fmt: skip

# One of each requirement, for the fast set: what fails few checks proves most.
ONE_OF_EACH = tuple(
    min((row for row in MATRIX if row.fails[0].startswith(f"{requirement}.")), key=lambda row: len(row.fails))
    for requirement in dict.fromkeys(check.requirement for check in in_room("objects"))
)
