"""A target, the storage below it, and a run's area on it: plain data that processes exchange, never an open handle."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pytest_ckpt.facts.bounds import Count

LayerKind = Literal["file system", "device", "file", "process", "network", "memory", "hypervisor", "unknown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer; ``depth`` counts from the mount of the target, which is 0. ``text`` names it, as in "ext4"."""

    kind: LayerKind
    text: str
    depth: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageStack:
    """All layers of one host, each before those below it.

    ``files`` are files of this host that contain the target's bytes, as for a loop device: the page cache has the same
    bytes a second time there. ``blind`` contains one phrase for each reason why the count of cached pages misses a
    cache.
    """

    host: str = ""
    layers: tuple[Layer, ...] = ()
    files: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()

    @property
    def memory(self) -> tuple[str, ...]:
        """The ends that are memory of the host."""
        return tuple(layer.text for layer in self.layers if layer.kind == "memory")

    @property
    def processes(self) -> tuple[str, ...]:
        """The layers that a process serves: the kernel cannot count or drop the cache of that process."""
        return tuple(layer.text for layer in self.layers if layer.kind == "process")

    @property
    def sentence(self) -> str:
        """The layers as text, such as "ext4 on /dev/loop0 on the file /images/a on ext4 on /dev/vda"."""
        text = ""
        depth = -1
        for layer in self.layers:
            between = "" if not text else " and " if layer.depth <= depth else " on "
            text, depth = f"{text}{between}{layer.text}", layer.depth
        return text


Capability = Literal[
    "paths",  # files have a local path: mmap, libraries that open files themselves
    "free offsets",  # a file takes writes at any offset, of any size
    "rename",  # a directory changes its name in one step: how a checkpoint is committed without a marker
    "locks",  # flock works between processes of a host
    "page cache",  # a client's page cache may hold what is read; it can be dropped and counted
    "volume",  # used and free space are known, and may be filled
    "objects",  # what an object store promises is asked of it
    "parts of S3",  # uploads have the numbers and sizes of parts that S3 has
    "second mount",  # another mount of the same storage on this host is a client of its own
]
MOUNTED: frozenset[Capability] = frozenset(
    ("paths", "free offsets", "rename", "locks", "page cache", "volume", "second mount")
)
"""The assumed capabilities of a mounted file system; its checks find out whether it keeps its promises."""

MEMORY_KINDS = frozenset(("devtmpfs", "hugetlbfs", "ramfs", "rootfs", "tmpfs"))
"""File systems that live in the memory of one host."""

Role = str
"""The purpose of a checkpoint: ``counted``, or a measurement in addition to the counted saves."""

NEEDS: dict[str, frozenset[Capability]] = {"near_full": frozenset({"volume"})}
"""Capabilities of a target that scenarios and requirements need beyond saves and loads; without them, they are omitted.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointRef:
    """One save of one subject. ``subject`` is its slug; ``number`` counts from 1 over all roles of a run.

    ``attempt`` (from 0) is incremented with every save of the same number, so that a store that derives names from the
    complete reference never reuses a name in a run. ``commit`` is the file by which an engine's library commits the
    checkpoint itself; empty: the store commits it.
    """

    subject: str
    number: int
    role: Role = "counted"
    attempt: int = 0
    commit: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """How the clients of a run reach a target over the network. It contains no secret.

    ``endpoints`` are URLs; without one the libraries of the target's own scheme find theirs. ``ca_bundle`` is the file
    of the certificates by which TLS is verified, empty for the system's certificates. No part of an object is smaller
    than ``part_bytes``, except its last. Ranks and the cleaner tolerate temporary errors for ``borne_seconds``.
    ``embedded`` names the server that the run itself started on this host, for itself and without credentials; empty
    for storage under test. ``unversioned`` is the operator's statement that a bucket without permission to look keeps
    no versions.
    """

    endpoints: tuple[str, ...] = ()
    ca_bundle: str = ""
    part_bytes: int = 0
    borne_seconds: float = 0.0
    embedded: str = ""
    unversioned: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The options of a clean-up command for it, as a shell takes them."""
        told = (("endpoint", ",".join(self.endpoints)), ("ca-bundle", self.ca_bundle))
        return tuple(f"--{name}={shlex.quote(value)}" for name, value in told if value)

    def of_client(self, number: int) -> Access:
        """Return this as one of many clients, numbered from 0, has it: each begins with the next of the endpoints."""
        first = number % max(1, len(self.endpoints))
        return dataclasses.replace(self, endpoints=self.endpoints[first:] + self.endpoints[:first])


@dataclass(frozen=True, kw_only=True, slots=True)
class AreaRef:
    """A run's own area on a target, for every process that attaches to it: ranks, checks, a second client, the cleaner.

    ``opener`` is ``module:function``, a function of the AreaRef that returns a Store, imported only where it is used.
    ``location`` is the area's place in the words of its scheme; ``identity`` distinguishes it from another area of the
    same name; ``access`` is how it is reached if it has no path. An AreaRef contains no secret: credentials come from
    each process's own environment.
    """

    scheme: str
    location: str
    run_id: str
    opener: str
    identity: tuple[str, ...] = ()
    access: Access = Access()

    def of_client(self, number: int) -> AreaRef:
        """Return the area as one of many clients, numbered from 0, reaches it."""
        return dataclasses.replace(self, access=self.access.of_client(number))


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """Space of a target in bytes, as df shows it: space reserved for root is neither used nor free.

    ``free_files`` is how many more files it can have (inodes); None if it does not count them.
    """

    total_bytes: Count
    used_bytes: Count
    free_bytes: Count
    free_files: Count | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetFacts:
    """The facts of a target, as its check found them before a run.

    ``kind`` is its file system or protocol; ``gate_kind`` names the gate table of ``auto``; ``is_local`` says that only
    this host can write to it, None if unknown; ``capacity`` is None if its space has no known end. Without "page cache"
    in ``capabilities`` the target declares that its clients do not cache their reads. ``source`` is its server: a
    device, an export, the name that a server gives itself. ``mount_point`` is empty without a mount, ``options`` are
    its own or known facts of the connection. ``plugin`` supplies a target that is not ours, with which a run certifies
    no system. ``stack`` is the storage below its mount on the controller's host.
    """

    location: str
    kind: str
    gate_kind: str
    is_local: bool | None
    capacity: Capacity | None
    capabilities: frozenset[Capability]
    source: str = ""
    mount_point: str = ""
    options: str = ""
    plugin: str = ""
    stack: StorageStack | None = None

    @property
    def is_memory(self) -> bool:
        """Whether its content is stored in this host's memory, so that reads do not come from storage."""
        return self.kind in MEMORY_KINDS or bool(self.stack and self.stack.memory)

    @property
    def description(self) -> str:
        """The kind in a sentence: "a nfs4 file system"."""
        return f"a {self.kind} file system" if "paths" in self.capabilities else f"a target of the kind {self.kind}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetSpec:
    """A kind of target: one row. ``scheme`` precedes ``://``; empty for a path.

    ``make`` is ``module:function``, a function of the location (the text after ``://``) that returns a Target, imported
    only in the controller; if the target ``is_remote`` it takes an `Access` as well. ``serve`` is a similar function:
    it returns a context manager that runs a server on this host for ``--ckpt-endpoint=embedded``, and gives its
    `Access`; empty if there is no such server. ``removal`` is the command that removes the content of a location that
    follows it, empty if unknown. ``plugin`` is its supplier, empty for ours.
    """

    scheme: str
    help: str
    make: str
    plugin: str = ""
    is_remote: bool = False
    serve: str = ""
    removal: str = ""


# It also aborts uploads and removes versions: the clouds' own tools need several commands for that, or cannot do it.
_OF_OBJECTS = "python -m pytest_ckpt.targets.objects.remove"

TARGETS: dict[str, TargetSpec] = {
    spec.scheme: spec
    for spec in (
        TargetSpec(
            scheme="",
            help="a directory on a mounted file system",
            make="pytest_ckpt.targets.posix.target:target",
            removal="rm -r --",
        ),
        TargetSpec(
            scheme="s3",
            help="a bucket of an object store, and a prefix in it",
            make="pytest_ckpt.targets.objects.target:target",
            is_remote=True,
            serve="pytest_ckpt.targets.objects.embedded:serve",
            removal=_OF_OBJECTS,
        ),
        TargetSpec(
            scheme="az",
            help="a container of Azure Blob Storage, and a prefix in it",
            make="pytest_ckpt.targets.objects.target:target_of_azure",
            is_remote=True,
            removal=_OF_OBJECTS,
        ),
        TargetSpec(
            scheme="gs",
            help="a bucket of Google Cloud Storage, and a prefix in it",
            make="pytest_ckpt.targets.objects.target:target_of_google",
            is_remote=True,
            removal=_OF_OBJECTS,
        ),
    )
}


def removal_of(scheme: str, location: str, access: Access = Access()) -> str:
    """Return the command by which a user removes the content of a location; empty if unknown."""
    spec = TARGETS.get(scheme)
    if not spec or not spec.removal:
        return ""
    return " ".join((spec.removal, shlex.quote(location), *access.words))


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """The names that a run may have made in its area, of all ranks.

    ``files`` maps subjects to the names of the files in their checkpoints, ``beside`` to the names of the other files
    of the subject. In ``directories`` the run made everything.
    """

    files: Mapping[str, frozenset[str]] = field(default_factory=dict)
    beside: Mapping[str, frozenset[str]] = field(default_factory=dict)
    directories: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftover:
    """The remains of an earlier run: a description, the run, and the command that removes them, or empty.

    ``elsewhere`` is the host of that run if this one cannot see whether it still runs; empty: it does not.
    """

    what: str
    why: str
    command: str = ""
    elsewhere: str = ""

    @property
    def remedy(self) -> str:
        """The remedy, as the rest of a sentence."""
        remove = f"remove it: {self.command}" if self.command else "remove it by hand"
        if self.elsewhere:
            return (
                f"this host cannot determine whether that run is still in progress, so check {self.elsewhere} first. "
                f"If no run of pytest-ckpt is in progress there, {remove}"
            )
        return f"if that run has ended, {remove}"
