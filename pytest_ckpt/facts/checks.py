"""The table of checks of a target's behaviour: one row per check. Pure data.

A row names the function of its check, so that importing the table does not import the functions. Plan, judge and verify
need only the rows. Each check runs in a new process, which imports only the module of this check. Parts of
docs/conformance.md are generated from the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CheckPackage = Literal["posix", "objects"]
Need = Literal["", "second client", "power cut", "small directory"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One check of a target's behaviour.

    A requirement has one or more checks; ``subject`` names the check within its requirement.

    - ``package``: the package of the check in ``pytest_ckpt.conformance``: ``posix`` for mounted file systems,
      ``objects`` for object stores.
    - ``code``: ``module:function`` in this package. The function receives the package's context and a Findings.
    - ``needs``: the input that the user must provide for the check; empty if none.
    - ``relies``: checkpoint software that relies on the behaviour.
    - ``how``: the procedure, in a few sentences for the documentation.
    - ``limit``: the default limit of the value that the check measures, in ``unit``.
    """

    requirement: str
    subject: str
    code: str
    relies: str
    how: str
    package: CheckPackage = "posix"
    needs: Need = ""
    limit: float | None = None
    unit: str = ""

    @property
    def name(self) -> str:
        """The name of the check on a command line and in files."""
        return f"{self.requirement}.{self.subject}"

    @property
    def is_timed(self) -> bool:
        """Return true if the check has a limit. It then runs alone, because concurrent work would change its value."""
        return self.limit is not None


CHECKS_OF_POSIX: tuple[Check, ...] = (
    Check(
        requirement="COMMIT",
        subject="file",
        code="commit:replace_file",
        relies="torch DCP, ByteCheckpoint, NVRx local, safetensors, Megatron-Core, Orbax",
        how="A reader polls while a file is replaced by rename 10,000 times: it sees the complete "
        "old or new bytes; an open or read refused with ESTALE is tried again.",
    ),
    Check(
        requirement="COMMIT",
        subject="directory",
        code="commit:rename_directory",
        relies="Orbax, Hugging Face",
        how="A directory of 1,000 files is renamed repeatedly, and a watcher lists it by its old and new name. Each "
        "listing contains all files, or the name does not exist.",
    ),
    Check(
        requirement="COMMIT",
        subject="file-second-client",
        code="commit:replace_file_second",
        needs="second client",
        relies="torch DCP, ByteCheckpoint, NVRx local, safetensors, Megatron-Core, Orbax",
        how="As COMMIT.file, with the reader on the other client.",
    ),
    Check(
        requirement="COMMIT",
        subject="directory-second-client",
        code="commit:rename_directory_second",
        needs="second client",
        relies="Orbax, Hugging Face",
        how="As COMMIT.directory, with the watcher on the other client.",
    ),
    Check(
        requirement="VISIBLE",
        subject="read-after-close",
        code="visible:read_after_close",
        needs="second client",
        relies="every restore on more than one node",
        how="One client writes and closes a file, then the other client opens it: its first open shows the new bytes. "
        "The test uses new files, and rewritten files that the other client read just before or 1.2 s before.",
    ),
    Check(
        requirement="VISIBLE",
        subject="append",
        code="visible:append",
        needs="second client",
        relies="logs and metrics of a job that several hosts append to",
        how="Two clients append records to one file in turn, each with a separate open and close: the other client "
        "reads them immediately to the end of the file, and no record is lost or torn.",
    ),
    Check(
        requirement="PUBLISH",
        subject="marker",
        code="commit:publish_marker",
        needs="second client",
        limit=10.0,
        unit="s",
        relies="torch DCP, Megatron-Core, Hugging Face (index); jobs that evaluate or serve the newest checkpoint",
        how="At the end of a save a marker is renamed into the checkpoint's directory. The other client waits for the "
        "marker; then all files are there, intact.",
    ),
    Check(
        requirement="PUBLISH",
        subject="directory",
        code="commit:publish_directory",
        needs="second client",
        limit=10.0,
        unit="s",
        relies="Orbax, Hugging Face",
        how="When a directory is complete, it is renamed. The other client waits for its new name; then all files are "
        "there. Not run if the target refuses such a rename.",
    ),
    Check(
        requirement="PUBLISH",
        subject="pointer",
        code="commit:publish_pointer",
        needs="second client",
        limit=10.0,
        unit="s",
        relies="DeepSpeed (latest), Megatron-Core (tracker file)",
        how="A small file is overwritten in place with the name of the checkpoint. When the other client reads that "
        "name, all files are there.",
    ),
    Check(
        requirement="STALE",
        subject="attributes",
        code="visible:stale_attributes",
        needs="second client",
        limit=1.0,
        unit="s",
        relies="NeMo, any code that opens a file after a barrier",
        how="The other client reads the size and the time of a file, then this client changes them. Measured: the "
        "time until the other client agrees.",
    ),
    Check(
        requirement="STALE",
        subject="names",
        code="visible:stale_names",
        needs="second client",
        limit=1.0,
        unit="s",
        relies="NeMo, any code that opens a file after a barrier",
        how="This client renames, removes and replaces names that the other client has looked up. Measured: the time "
        "until the other client agrees.",
    ),
    Check(
        requirement="STALE",
        subject="negative-names",
        code="visible:negative_names",
        needs="second client",
        limit=1.0,
        unit="s",
        relies="NeMo, any code that opens a file after a barrier",
        how="The other client looks up a name that does not exist, then this client creates it. Measured: the time "
        "until the other client sees it.",
    ),
    Check(
        requirement="EXCLUSIVE",
        subject="create",
        code="races:create",
        relies="NVRx local",
        how="Processes race to create 1,000 names with O_EXCL: each has exactly one winner.",
    ),
    Check(
        requirement="EXCLUSIVE",
        subject="create-second-client",
        code="races:create_second",
        needs="second client",
        relies="NVRx local",
        how="Two clients race to create 1,000 names with O_EXCL: each has exactly one winner.",
    ),
    Check(
        requirement="DIRECT",
        subject="aligned",
        code="page_cache:aligned",
        relies="DeepSpeed fast writer",
        how="Files are written and read with O_DIRECT in blocks of 512 B and 4 KiB.",
    ),
    Check(
        requirement="DIRECT",
        subject="coherent",
        code="page_cache:coherent",
        relies="DeepSpeed fast writer",
        how="Direct writes, a buffered append, then direct and buffered reads: all see the same bytes.",
    ),
    Check(
        requirement="MMAP",
        subject="private",
        code="page_cache:map_private",
        relies="safetensors, torch.load(mmap=True)",
        how="Child processes read files through private mappings: right bytes, no SIGBUS.",
    ),
    Check(
        requirement="MMAP",
        subject="shared",
        code="page_cache:map_shared",
        relies="torch.load(mmap=True) after torch.serialization.set_default_mmap_options(MAP_SHARED)",
        how="Up to 32 child processes read the same files through shared mappings concurrently: right bytes, no "
        "SIGBUS.",
    ),
    Check(
        requirement="POINTER",
        subject="overwrite",
        code="overwrite:in_place",
        relies="DeepSpeed (latest), Megatron-Core (tracker file)",
        how="A small file is overwritten in place. A reader sees the old text, the new text or an empty text, never a "
        "mixture. A text of no bytes or of only zeros counts as empty; such reads are counted. A longer text is never "
        "cut at the old length.",
    ),
    Check(
        requirement="POINTER",
        subject="overwrite-second-client",
        code="overwrite:in_place_second",
        needs="second client",
        limit=1.0,
        unit="s",
        relies="DeepSpeed (latest), Megatron-Core (tracker file)",
        how="As POINTER.overwrite, with the reader on the other client. Measured: the time during which the old text "
        "is read.",
    ),
    Check(
        requirement="SPARSE",
        subject="tail-first",
        code="sparse:tail_first",
        relies="DataStates",
        how="A file's tail is written before its head: the bytes between them read as zeros, and then as "
        "the bytes that are written there.",
    ),
    Check(
        requirement="SPARSE",
        subject="disjoint-writers",
        code="sparse:disjoint_writers",
        relies="DataStates",
        how="Processes write interleaved stripes of one file concurrently: no stripe is lost or damaged.",
    ),
    Check(
        requirement="SPARSE",
        subject="disjoint-writers-second-client",
        code="sparse:disjoint_writers_second",
        needs="second client",
        relies="DataStates",
        how="Two clients write interleaved stripes of one file concurrently: after both have closed, no stripe "
        "is lost or damaged.",
    ),
    Check(
        requirement="CLONE-FRESH",
        subject="copy",
        code="sparse:copy_fresh",
        relies="cp, shutil and rsync, which copy and publish checkpoints",
        how="A file is copied right after it was written without fsync: by SEEK_DATA and SEEK_HOLE, by copy_file_range "
        "or by FICLONE. The copy contains every byte. A call that the file system does not support is reported.",
    ),
    Check(
        requirement="TRUNCATE",
        subject="concurrent",
        code="overwrite:truncate_at_once",
        limit=30.0,
        unit="s",
        relies="ranks that open one file with O_TRUNC; on NFS such ranks hung for 35 h",
        how="Processes open the same file with O_TRUNC and write, repeatedly, under a watchdog.",
    ),
    Check(
        requirement="MKDIR",
        subject="race",
        code="races:make_directory",
        relies="all",
        how="Processes create the same directories concurrently, then each creates a file in every directory. One "
        "process creates a directory, and all processes see it.",
    ),
    Check(
        requirement="MKDIR",
        subject="race-second-client",
        code="races:make_directory_second",
        needs="second client",
        relies="all",
        how="Two clients create the same directories concurrently, then each creates a file in every directory. One "
        "client creates a directory, and both clients see it.",
    ),
    Check(
        requirement="LARGE",
        subject="offsets",
        code="sparse:large_offsets",
        relies="software that saves into a single file",
        how="Sparse files are written around 2 GiB, 4 GiB, 2 TiB and 8 TiB; their bytes and sizes are read back.",
    ),
    Check(
        requirement="NAMES",
        subject="many",
        code="names:many",
        unit="s",
        relies="torch DCP (ranks x threads files)",
        how="10,000 files are created in one directory (timed) and listed: every name appears once. At the measured "
        "rate a host creates its files of a checkpoint within the save limit.",
    ),
    Check(
        requirement="NAMES",
        subject="after-change",
        code="names:after_change",
        relies="code that removes old checkpoints",
        how="A listing right after creating and right after removing shows exactly what is there.",
    ),
    Check(
        requirement="NAMES",
        subject="second-client",
        code="names:list_on_second",
        needs="second client",
        relies="torch DCP (ranks x threads files)",
        how="One client lists a directory while the other creates files in it. Files that existed before are listed "
        "once, and a listing afterwards shows all files.",
    ),
    Check(
        requirement="UNLINK",
        subject="open-reader",
        code="names:open_reader",
        relies="code that removes old checkpoints",
        how="Files are removed while they are open for reading: the reader gets every byte and no error.",
    ),
    Check(
        requirement="UNLINK",
        subject="second-client",
        code="names:unlink_on_second",
        needs="second client",
        relies="code that removes old checkpoints",
        how="One client removes a file while the other reads it: the reader gets right bytes or ESTALE, never wrong "
        "bytes.",
    ),
    Check(
        requirement="DURABLE",
        subject="rank-killed",
        code="durable:rank_killed",
        relies="every training job",
        how="A process is killed in the middle of a save, many times. The previous checkpoint loads bit-exact, and the "
        "interrupted checkpoint has no final name.",
    ),
    Check(
        requirement="DURABLE",
        subject="power-cut",
        code="durable:power_cut",
        needs="power cut",
        relies="torch DCP, Megatron-Core, NVRx, DeepSpeed; Orbax for names",
        how="Saves are acknowledged to a process outside the storage, then the power is cut. Every acknowledged save "
        "is there, bit-exact.",
    ),
    Check(
        requirement="ERRORS",
        subject="acknowledged",
        code="full:acknowledged",
        relies="all; NFS reports ENOSPC and EDQUOT at close",
        how="Files are written, fsynced and closed without an error, then read back past the caches: all acknowledged "
        "bytes are there.",
    ),
    Check(
        requirement="ERRORS",
        subject="full",
        code="full:fill",
        needs="small directory",
        relies="all; NFS reports ENOSPC and EDQUOT at close",
        how="A volume or quota is filled: the error surfaces in write, fsync or close, "
        "and acknowledged bytes are there.",
    ),
    Check(
        requirement="FULL",
        subject="mid-save",
        code="full:mid_save",
        needs="small directory",
        relies="every training job",
        how="Space ends in the middle of a save: the previous checkpoint loads bit-exact. When space is free again, "
        "the next save works.",
    ),
    Check(
        requirement="COMMIT-FULL",
        subject="each-phase",
        code="full:each_phase",
        needs="small directory",
        relies="every training job; Automodel, which lost its pointer on a full volume",
        how="Space ends before each phase of a commit in turn (data, metadata, marker, pointer). The previous "
        "checkpoint remains, and a pointer names it or the new checkpoint. When space is free again, the next save "
        "works.",
    ),
    Check(
        requirement="LIVE",
        subject="calls",
        code="live:calls",
        limit=300.0,
        unit="s",
        relies="every training job",
        how="Every kind of call of a checkpoint is timed separately; each call returns within the limit.",
    ),
    Check(
        requirement="CAPABILITIES",
        subject="flock",
        code="capabilities:flock",
        relies="job managers",
        how="Two processes lock a file: an exclusive lock excludes the other process, and the lock of a killed "
        "process is released.",
    ),
    Check(
        requirement="CAPABILITIES",
        subject="flock-second-client",
        code="capabilities:flock_second",
        needs="second client",
        relies="job managers",
        how="Two clients lock a file: an exclusive lock excludes the other client, and the lock of a killed process "
        "is released.",
    ),
    Check(
        requirement="CAPABILITIES",
        subject="links",
        code="capabilities:links",
        relies="Lightning, Orbax",
        how="Symbolic and hard links are created and replaced.",
    ),
    Check(
        requirement="CAPABILITIES",
        subject="mtime",
        code="capabilities:mtime",
        relies="Hugging Face (rotation of checkpoints)",
        how="Files are written 10 ms apart: their modification times are in the order of writing, and near this "
        "host's clock.",
    ),
    Check(
        requirement="CAPABILITIES",
        subject="statfs",
        code="capabilities:statfs",
        limit=60.0,
        unit="s",
        relies="operators",
        how="After a write, free space falls by at least half of the written bytes within 60 s.",
    ),
    Check(
        requirement="CAPABILITIES",
        subject="names",
        code="capabilities:names",
        relies="torch DCP, Hugging Face",
        how="Names that differ in case are different names and keep their case; names of 255 bytes and of other "
        "alphabets work.",
    ),
    Check(
        requirement="CAPABILITIES",
        subject="extras",
        code="capabilities:extras",
        relies="software that uses these features",
        how="Extended attributes, fallocate, punched holes, clones and files without a name are tried. A missing "
        "feature is reported; an available one must work.",
    ),
)


CHECKS_OF_OBJECTS: tuple[Check, ...] = (
    Check(
        requirement="OBJECT-COMMIT",
        subject="marker",
        package="objects",
        code="visible:commit",
        relies="software that commits by a last object: torch DCP (.metadata), Megatron-Core, NVRx, Orbax",
        how="Objects are put, then a marker that names them, while both clients wait for the marker. When a client "
        "sees the marker, it finds every object, intact. This is done 100 times.",
    ),
    Check(
        requirement="OBJECT-VISIBLE",
        subject="get",
        package="objects",
        code="visible:get",
        relies="every restore on more than one node",
        how="Objects are requested while missing, put, overwritten, deleted and put again by one client: both "
        "clients GET each state immediately.",
    ),
    Check(
        requirement="OBJECT-VISIBLE",
        subject="head",
        package="objects",
        code="visible:head",
        relies="s3torchconnector, s3fs and Orbax, which look whether a checkpoint exists",
        how="As OBJECT-VISIBLE.get, by HEAD.",
    ),
    Check(
        requirement="OBJECT-VISIBLE",
        subject="list",
        package="objects",
        code="visible:listing",
        relies="readers of the newest checkpoint: Lightning, Orbax, Hugging Face",
        how="As OBJECT-VISIBLE.get, by LIST.",
    ),
    Check(
        requirement="OBJECT-CREATE",
        subject="put",
        package="objects",
        code="writers:create",
        relies="locks and commits by If-None-Match; pytest-ckpt's own marker",
        how="If-None-Match: * is refused if the object exists. 16 threads of two clients create the same object "
        "concurrently, 100 times: each time one thread succeeds.",
    ),
    Check(
        requirement="OBJECT-CREATE",
        subject="multipart",
        package="objects",
        code="writers:create_of_parts",
        relies="locks and commits by If-None-Match of large objects",
        how="As OBJECT-CREATE.put, by CompleteMultipartUpload.",
    ),
    Check(
        requirement="OBJECT-UPDATE",
        subject="put",
        package="objects",
        code="writers:update",
        relies="pointers to the newest checkpoint; table formats",
        how="If-Match with an outdated ETag is refused. 16 threads of two clients update an object concurrently "
        "with its ETag, 100 times: each time one thread succeeds.",
    ),
    Check(
        requirement="OBJECT-MULTIPART",
        subject="hidden",
        package="objects",
        code="parts:hidden",
        relies="every save of large objects",
        how="An upload is invisible before its end, after its abort, and after its client has closed the connection. "
        "Unfinished uploads are listed.",
    ),
    Check(
        requirement="OBJECT-MULTIPART",
        subject="parts",
        package="objects",
        code="parts:parts",
        relies="every save of large objects; transfer managers that send parts again",
        how="Parts of different sizes are sent out of order, repeatedly and by two clients, and the request that "
        "completes the upload does not name all of them. The object consists of the named parts.",
    ),
    Check(
        requirement="OBJECT-LIMITS",
        subject="parts",
        package="objects",
        code="parts:limits",
        relies="transfer managers, which choose sizes by these limits",
        how="Part numbers 1 and 10,000 are accepted, 0 and 10,001 are refused. A completing request that names small, "
        "missing or unsorted parts is refused.",
    ),
    Check(
        requirement="OBJECT-LIMITS",
        subject="many",
        package="objects",
        code="parts:many_parts",
        relies="every save of objects above 50 GB",
        how="An object is uploaded in 10,000 parts, most of them copied by the store. A run with fewer trials uses "
        "1,001 parts, numbered up to 10,000. The object is read at its start, middle and end.",
    ),
    Check(
        requirement="OBJECT-DIGEST",
        subject="object",
        package="objects",
        code="requests:digest_of_object",
        relies="AWS SDKs, which send a checksum with every object",
        how="Objects with a wrong Content-MD5, CRC-32, CRC-32C, CRC-64/NVME or SHA-256 are refused, and the existing "
        "object is not changed.",
    ),
    Check(
        requirement="OBJECT-DIGEST",
        subject="part",
        package="objects",
        code="requests:digest_of_part",
        relies="AWS SDKs, which send a checksum with every part",
        how="As OBJECT-DIGEST.object, of parts.",
    ),
    Check(
        requirement="OBJECT-DIGEST",
        subject="kept",
        package="objects",
        code="requests:digest_kept",
        relies="tools that compare a checksum without reading the object",
        how="HEAD returns the checksums that were sent with an object.",
    ),
    Check(
        requirement="OBJECT-RANGE",
        subject="bytes",
        package="objects",
        code="requests:range_bytes",
        relies="safetensors, s3torchconnector, every reader of shards",
        how="The first, last, single, suffix and border-crossing ranges contain exactly the requested bytes. A range "
        "beyond the end is cut or refused with 416.",
    ),
    Check(
        requirement="OBJECT-RANGE",
        subject="overwritten",
        package="objects",
        code="requests:range_overwritten",
        relies="readers of large objects in pieces",
        how="An object is overwritten while two of its ranges are read with the same If-Match. Both ranges are of one "
        "version, or the request is refused with 412.",
    ),
    Check(
        requirement="OBJECT-OVERWRITE",
        subject="writers",
        package="objects",
        code="writers:overwrite",
        relies="pointers to the newest checkpoint; saves that are tried again",
        how="16 threads of two clients overwrite an object concurrently: every read during this time and at the end"
        " returns one writer's object, intact.",
    ),
    Check(
        requirement="OBJECT-LIST",
        subject="pages",
        package="objects",
        code="visible:list_pages",
        relies="clean-up, rotation and search of checkpoints",
        how="More than 1,000 objects are listed in pages while others are written: each object once, in order. "
        "Listings with a delimiter are tested too.",
    ),
    Check(
        requirement="OBJECT-LIST",
        subject="names",
        package="objects",
        code="visible:list_names",
        relies="names of tensors and users in keys",
        how="Objects whose keys have 1,024 bytes, spaces, special characters, other alphabets, dots and doubled "
        "slashes are found, read and listed.",
    ),
    Check(
        requirement="OBJECT-LARGE",
        subject="ranges",
        package="objects",
        code="parts:large_object",
        relies="saves of a complete model into one object; consolidated checkpoints",
        how="An object above 5 GiB is uploaded in parts, most of them copied by the store. Its size and its ranges "
        "around 2, 4 and 5 GiB are right on both clients.",
    ),
    Check(
        requirement="OBJECT-CROWD",
        subject="marker",
        package="objects",
        code="visible:crowd",
        limit=60.0,
        unit="s",
        relies="every restart: all ranks look for the newest checkpoint concurrently",
        how="64 connections of two clients LIST a checkpoint, and HEAD and GET its marker, at the same moment: "
        "every request sees it, no request is refused, and each ends within the limit.",
    ),
    Check(
        requirement="OBJECT-LIVE",
        subject="requests",
        package="objects",
        code="requests:live",
        limit=300.0,
        unit="s",
        relies="every training job",
        how="Every kind of request of a checkpoint is timed separately; each request ends within the limit.",
    ),
)


CHECKS: tuple[Check, ...] = (*CHECKS_OF_POSIX, *CHECKS_OF_OBJECTS)


def checks_for(package: CheckPackage) -> tuple[Check, ...]:
    """Return the checks for one kind of target: ``posix`` for file systems, ``objects`` for object stores."""
    return tuple(check for check in CHECKS if check.package == package)


BY_NAME = {check.name: check for check in CHECKS}

CHECKS_DIRECTORY = "checks"
"""The directory of checks, below a run's directory on the target. Checks create it and all of its content."""

FILES_OF_CHECKS = 10_000
"""The maximum number of files that exist concurrently in a check of a file system, at full effort (NAMES.many)."""

LARGE_OBJECT_BYTES = 5160 << 20
"""The size of the object that OBJECT-LARGE writes in parts, at any effort."""

_PARTS_OF_CHECKS, _LEAST_PARTS, _PART_BYTES = 10_000, 1_001, 5 << 20


def bytes_of_checks(package: CheckPackage, effort: float) -> int:
    """Return the size in bytes of the largest object that the checks create; 0 for file systems.

    ``effort`` is the share of each check's trials that the run performs.
    """
    if package != "objects":
        return 0
    many = max(_LEAST_PARTS, round(_PARTS_OF_CHECKS * effort)) * _PART_BYTES
    return max(LARGE_OBJECT_BYTES, many)
