"""A target, the storage below the target, and a run's area on the target, as plain data that processes exchange.

An area is the run's own directory, or its own prefix in a bucket, on the target.
"""

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
    """One layer of the storage below a target.

    ``text`` names the layer. ``depth`` is the number of layers above this layer. The target's mount has depth 0.
    """

    kind: LayerKind
    text: str
    depth: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageStack:
    """All storage layers below the target on one host, upper layers first.

    - ``files``: files of this host that contain the target's bytes, such as the image of a loop device. The page cache
      may contain the same bytes a second time, as pages of these files.
    - ``blind``: a phrase for each cache of the target's data that the count of cached pages does not include.
    """

    host: str = ""
    layers: tuple[Layer, ...] = ()
    files: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()

    @property
    def memory(self) -> tuple[str, ...]:
        """The names of the layers that are in the host's memory."""
        return tuple(layer.text for layer in self.layers if layer.kind == "memory")

    @property
    def processes(self) -> tuple[str, ...]:
        """The names of the layers that a user-space process serves.

        The kernel cannot count or drop the caches of such layers.
        """
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
    """A reference to one save of one checkpoint.

    - ``subject``: the slug of the subject.
    - ``number``: the number of the checkpoint, from 1. All roles (purposes of checkpoints) share one sequence of
      numbers.
    - ``attempt``: from 0, incremented with every save of the same number. Names of objects contain the complete
      reference, so a run never reuses the name of an object.
    - ``commit``: the file by which the engine's library commits the checkpoint; empty if the store commits it.
    """

    subject: str
    number: int
    role: Role = "counted"
    attempt: int = 0
    commit: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """How the clients of a run reach a target over the network, without secrets.

    - ``endpoints``: URLs. If empty, the libraries of the target's scheme choose the endpoint.
    - ``ca_bundle``: the file with the certificates for TLS; empty for the system's certificates.
    - ``part_bytes``: the minimum size of each part of an object except the last part.
    - ``borne_seconds``: the time for which ranks and the cleaner tolerate temporary errors.
    - ``embedded``: the name of the embedded server, which the run started on this host and which uses no credentials.
      Empty for storage under test.
    - ``unversioned``: the operator declares that the bucket keeps no versions. The run has no permission to query this
      fact.
    """

    endpoints: tuple[str, ...] = ()
    ca_bundle: str = ""
    part_bytes: int = 0
    borne_seconds: float = 0.0
    embedded: str = ""
    unversioned: bool = False

    @property
    def command_options(self) -> tuple[str, ...]:
        """The options that give this access to the clean-up command, quoted for a shell."""
        parameters = (("endpoint", ",".join(self.endpoints)), ("ca-bundle", self.ca_bundle))
        return tuple(f"--{name}={shlex.quote(value)}" for name, value in parameters if value)

    def of_client(self, number: int) -> Access:
        """Return the access of client ``number``, from 0.

        The result has the same endpoints in another order: each client begins with the next endpoint.
        """
        first = number % max(1, len(self.endpoints))
        return dataclasses.replace(self, endpoints=self.endpoints[first:] + self.endpoints[:first])


@dataclass(frozen=True, kw_only=True, slots=True)
class AreaRef:
    """A reference to a run's area, for every process that opens the area: ranks, checks, a second client, the cleaner.

    The reference contains no secrets: credentials come from each process's own environment.

    - ``opener``: ``module:function``, imported only if used. The function receives the AreaRef and returns a Store.
    - ``location``: the location of the area, in the format of its scheme.
    - ``identity``: distinguishes the area from another area of the same name.
    - ``access``: the network access, if the area has no path.
    """

    scheme: str
    location: str
    run_id: str
    opener: str
    identity: tuple[str, ...] = ()
    access: Access = Access()

    def of_client(self, number: int) -> AreaRef:
        """Return the area with the access of client ``number``, from 0 (`Access.of_client`)."""
        return dataclasses.replace(self, access=self.access.of_client(number))


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """The space of a target in bytes, as df shows it. Space reserved for root counts neither as used nor as free.

    ``free_files`` is the number of free inodes; None if the target does not report this number.
    """

    total_bytes: Count
    used_bytes: Count
    free_bytes: Count
    free_files: Count | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetFacts:
    """The facts about a target that are known before a run.

    - ``kind``: the file system or protocol.
    - ``gate_kind``: the gate table that ``auto`` chooses.
    - ``is_local``: only this host can write to the target; None if unknown.
    - ``capacity``: None if the space has no known limit.
    - ``capabilities``: if "page cache" is missing, the target declares that its clients do not cache reads.
    - ``source``: a device, an export, or the name that a server reports.
    - ``mount_point``: empty if there is no mount.
    - ``options``: mount options, or facts of the connection.
    - ``plugin``: the supplier of a target that is not built in. A run on such a target cannot be certified.
    - ``stack``: the storage below the mount on the controller's host.
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
        """Whether the target's content is in this host's memory. If so, reads do not come from storage."""
        return self.kind in MEMORY_KINDS or bool(self.stack and self.stack.memory)

    @property
    def description(self) -> str:
        """The kind of target as a phrase: "a nfs4 file system"."""
        return f"a {self.kind} file system" if "paths" in self.capabilities else f"a target of the kind {self.kind}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetSpec:
    """A kind of target.

    - ``scheme``: the text before ``://`` in a location; empty for a path.
    - ``make``: ``module:function``, imported only by the controller. The function receives the location (the text after
      ``://``) and, if the target ``is_remote``, an `Access`. It returns a Target.
    - ``serve``: ``module:function`` for ``--ckpt-endpoint=embedded``, with the same parameters as ``make``. The
      function returns a context manager that runs a server on this host and yields the server's `Access`. Empty if
      there is no such server.
    - ``removal``: a command for removing the content of a location. The location is appended to the command. Empty if
      unknown.
    - ``plugin``: the supplier; empty for a built-in target.
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
    """Return the command with which a user removes the content of a location; empty if unknown."""
    spec = TARGETS.get(scheme)
    if not spec or not spec.removal:
        return ""
    return " ".join((spec.removal, shlex.quote(location), *access.command_options))


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """The names that a run may have created in its area, over all ranks.

    - ``files``: {subject: names of files in checkpoints}.
    - ``other_files``: {subject: names of other files}.
    - ``directories``: directories that contain only files and directories of the run.
    - ``in_directories``: the maximum number of files and directories that exist at the same time in these directories.
    """

    files: Mapping[str, frozenset[str]] = field(default_factory=dict)
    other_files: Mapping[str, frozenset[str]] = field(default_factory=dict)
    directories: frozenset[str] = frozenset()
    in_directories: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftover:
    """Files or objects that an earlier run left: a description, the reason, and the command that removes them.

    ``command`` is empty if no command is known. If this host cannot determine whether the earlier run is still in
    progress, ``elsewhere`` is the host of that run.
    """

    what: str
    why: str
    command: str = ""
    elsewhere: str = ""

    @property
    def remedy(self) -> str:
        """The remedy as the last part of a sentence."""
        remove = f"remove it: {self.command}" if self.command else "remove it by hand"
        if self.elsewhere:
            return (
                f"this host cannot determine whether that run is still in progress, so check {self.elsewhere} first. "
                f"If no run of pytest-ckpt is in progress there, {remove}"
            )
        return f"if that run has ended, {remove}"
