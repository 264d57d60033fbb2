"""A target, the storage below it, and a run's area on it, as plain data that processes exchange."""

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
    """One layer of the storage below a target. ``depth`` counts the layers from the target's mount, whose depth is 0.

    ``text`` names the layer.
    """

    kind: LayerKind
    text: str
    depth: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageStack:
    """All storage layers below the target on one host, upper layers first.

    ``files`` are files of this host that contain the target's bytes, as for a loop device. The page cache may contain
    the same bytes a second time, as pages of these files. ``blind`` has one phrase for each cache that is not included
    when the target's cached pages are counted.
    """

    host: str = ""
    layers: tuple[Layer, ...] = ()
    files: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()

    @property
    def memory(self) -> tuple[str, ...]:
        """The names of layers that are in the memory of the host."""
        return tuple(layer.text for layer in self.layers if layer.kind == "memory")

    @property
    def processes(self) -> tuple[str, ...]:
        """The names of layers that a user-space process serves; the kernel cannot count or drop the cache of such a
        process.
        """
        return tuple(layer.text for layer in self.layers if layer.kind == "process")

    @property
    def sentence(self) -> str:
        """The layers in words, such as "ext4 on /dev/loop0 on the file /images/a on ext4 on /dev/vda"."""
        text = ""
        depth = -1
        for layer in self.layers:
            between = "" if not text else " and " if layer.depth <= depth else " on "
            text, depth = f"{text}{between}{layer.text}", layer.depth
        return text


Capability = Literal[
    "paths",  # files have a local path: mmap, libraries that open files themselves
    "free offsets",  # a file accepts writes of any size at any offset
    "rename",  # a directory can be renamed atomically: a checkpoint is committed without a marker
    "locks",  # flock works between processes of a host
    "page cache",  # a client's page cache may contain data that is read; it can be dropped and counted
    "volume",  # used and free space are known, and the volume may be filled
    "objects",  # the checks of object stores apply
    "parts of S3",  # multipart uploads have the part numbers and sizes of S3
    "second mount",  # another mount of the same storage on this host is a separate client
]
MOUNTED: frozenset[Capability] = frozenset(
    ("paths", "free offsets", "rename", "locks", "page cache", "volume", "second mount")
)
"""The capabilities that a mounted file system is assumed to have. Checks test whether it has them."""

MEMORY_KINDS = frozenset(("devtmpfs", "hugetlbfs", "ramfs", "rootfs", "tmpfs"))
"""File systems whose content is in the memory of one host."""

Role = str
"""The purpose of a checkpoint: ``counted`` for the judged saves, or the name of an additional measurement."""

NEEDS: dict[str, frozenset[Capability]] = {"near_full": frozenset({"volume"})}
"""The target capabilities that a scenario needs in addition to saves and loads, by the scenario's name.

A scenario is omitted if the target lacks one of its capabilities.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointRef:
    """One save of one subject. ``subject`` is the subject's slug; ``number`` counts from 1 over all roles of a run.

    ``attempt`` (from 0) is incremented with every save of the same number. The names of objects contain the complete
    reference, so a run never reuses the name of an object. ``commit`` is the file by which an engine's library commits
    the checkpoint itself; if it is empty, the store commits the checkpoint.
    """

    subject: str
    number: int
    role: Role = "counted"
    attempt: int = 0
    commit: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """How the clients of a run reach a target over the network. It contains no secret.

    ``endpoints`` are URLs; if empty, the libraries of the target's scheme choose the endpoint. ``ca_bundle`` is the
    file of the certificates for TLS; empty for the system's certificates. Every part of an object except the last has
    at least ``part_bytes``. Ranks and the cleaner tolerate temporary errors for ``borne_seconds``. ``embedded`` names
    the server without credentials that the run itself started on this host; empty for storage under test.
    ``unversioned``: the operator states that the bucket keeps no versions, because the run has no permission to query
    this.
    """

    endpoints: tuple[str, ...] = ()
    ca_bundle: str = ""
    part_bytes: int = 0
    borne_seconds: float = 0.0
    embedded: str = ""
    unversioned: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The options that give the clean-up command the same access, each quoted for a shell."""
        told = (("endpoint", ",".join(self.endpoints)), ("ca-bundle", self.ca_bundle))
        return tuple(f"--{name}={shlex.quote(value)}" for name, value in told if value)

    def of_client(self, number: int) -> Access:
        """Return the access for one of many clients, numbered from 0. Each client begins with another endpoint."""
        first = number % max(1, len(self.endpoints))
        return dataclasses.replace(self, endpoints=self.endpoints[first:] + self.endpoints[:first])


@dataclass(frozen=True, kw_only=True, slots=True)
class AreaRef:
    """A run's own area on a target, for every process that opens it: ranks, checks, a second client, the cleaner.

    ``opener`` is ``module:function``: a function that takes the AreaRef and returns a Store, imported only if it is
    used. ``location`` is the place of the area in the format of its scheme. ``identity`` distinguishes it from another
    area of the same name. ``access`` describes the network access of an area without a path. An AreaRef contains no
    secrets: credentials come from each process's own environment.
    """

    scheme: str
    location: str
    run_id: str
    opener: str
    identity: tuple[str, ...] = ()
    access: Access = Access()

    def of_client(self, number: int) -> AreaRef:
        """Return the area as one of many clients reaches it. Clients are numbered from 0; see `Access.of_client`."""
        return dataclasses.replace(self, access=self.access.of_client(number))


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """Space of a target in bytes, as df shows it: space reserved for root is neither used nor free.

    ``free_files`` is the number of free inodes; None if the target does not count them.
    """

    total_bytes: Count
    used_bytes: Count
    free_bytes: Count
    free_files: Count | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetFacts:
    """The facts about a target that are determined before a run.

    ``kind`` is its file system or protocol; ``gate_kind`` names the gate table for ``auto``; ``is_local`` is true if
    only this host can write to it, None if unknown; ``capacity`` is None if its space has no known limit. Without "page
    cache" in ``capabilities`` the target declares that its clients do not cache their reads. ``source`` is its server:
    a device, an export, or the name that a server reports. ``mount_point`` is empty if there is no mount; ``options``
    are mount options or facts of the connection. ``plugin`` is the supplier of a target that is not built in; a run on
    it cannot be certified. ``stack`` is the storage below its mount on the controller's host.
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
        """Whether the target's content is in this host's memory, so that reads do not come from storage."""
        return self.kind in MEMORY_KINDS or bool(self.stack and self.stack.memory)

    @property
    def description(self) -> str:
        """The kind in a sentence: "a nfs4 file system"."""
        return f"a {self.kind} file system" if "paths" in self.capabilities else f"a target of the kind {self.kind}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetSpec:
    """A kind of target. ``scheme`` precedes ``://`` in a location; empty for a path.

    ``make`` is ``module:function``, imported only in the controller. The function takes the location (the text after
    ``://``), and an `Access` if the target ``is_remote``; it returns a Target. ``serve`` is a similar function for
    ``--ckpt-endpoint=embedded``: it returns a context manager that runs a server on this host and yields its `Access`;
    empty if there is no such server. ``removal`` is a command that removes the content of a location; the location is
    appended to the command. It is empty if no such command is known. ``plugin`` is the supplier; empty for a built-in
    target.
    """

    scheme: str
    help: str
    make: str
    plugin: str = ""
    is_remote: bool = False
    serve: str = ""
    removal: str = ""


# This command also aborts uploads and removes versions. The tools of cloud providers need several commands for this
# work, or cannot do all of it.
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
    """The names that a run may have created in its area, over all ranks.

    ``files`` maps subjects to the names of the files in their checkpoints, ``other_files`` to the names of their other
    files. All content of ``directories`` is from the run: at most ``in_directories`` files and directories.
    """

    files: Mapping[str, frozenset[str]] = field(default_factory=dict)
    other_files: Mapping[str, frozenset[str]] = field(default_factory=dict)
    directories: frozenset[str] = frozenset()
    in_directories: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftover:
    """Files or objects that an earlier run left: a description, the reason, and the command that removes them.

    ``command`` is empty if there is none. ``elsewhere`` is the host of that run if this host cannot determine whether
    the run is still in progress.
    """

    what: str
    why: str
    command: str = ""
    elsewhere: str = ""

    @property
    def remedy(self) -> str:
        """The remedy, as the end of a sentence."""
        remove = f"remove it: {self.command}" if self.command else "remove it by hand"
        if self.elsewhere:
            return (
                f"this host cannot determine whether that run is still in progress, so check {self.elsewhere} first. "
                f"If no run of pytest-ckpt is in progress there, {remove}"
            )
        return f"if that run has ended, {remove}"
