"""The reasons why gate tables may require a requirement or a check, as data. Pure.

The kinds of reasons are:

- `Derived`: the limit follows from the operator's inputs.
- `Published`: an organisation published the rule.
- `ReliedOn`: a checkpoint library relies on the behaviour in its default mode, and a violation loses or corrupts a
  checkpoint.

A requirement without a reason is advisory. A reason may apply only to the behaviour, and not to the time limit. Such a
limit is a default of this program. A longer time is then reported and does not decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.sizing.limits import Publication


@dataclass(frozen=True, kw_only=True, slots=True)
class Derived:
    """A reason: the limit follows from ``inputs``, which are options of the operator."""

    inputs: str

    @property
    def text(self) -> str:
        """The reason as one sentence for the certificate."""
        return f"Derived from the operator's inputs: {self.inputs}."


@dataclass(frozen=True, kw_only=True, slots=True)
class Published(Publication):
    """A reason: an organisation published the rule. ``rule`` states what the rule requires."""

    rule: str

    @property
    def text(self) -> str:
        """The reason as one sentence for the certificate."""
        return f"Published: {self.citation}: {self.rule}."


@dataclass(frozen=True, kw_only=True, slots=True)
class ReliedOn:
    """A reason: a library relies on the behaviour in its default mode. ``loss`` is the consequence of a violation."""

    library: str
    version: str
    call: str
    loss: str

    @property
    def text(self) -> str:
        """The reason as two sentences for the certificate."""
        return f"Relied on by {self.library} {self.version}, {self.call}. Consequence if it fails: {self.loss}."


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """The reason why a gate table may require a requirement, or one of its checks (``ID.subject``).

    ``tables`` are the gate tables to which the reason applies; empty for all tables. If ``own_limit``, the time limit
    is a default of this program. A longer time is then reported and does not decide.
    """

    name: str
    because: Derived | Published | ReliedOn
    tables: tuple[str, ...] = ()
    own_limit: bool = False

    @property
    def text(self) -> str:
        """The reason as text for the certificate."""
        own = " The time limit is a default of this program: a longer time is reported and is not a failure."
        return self.because.text + (own if self.own_limit else "")


def _torch(call: str, loss: str) -> ReliedOn:
    return ReliedOn(library="torch", version="2.13.0", call=call, loss=loss)


def _orbax(call: str, loss: str) -> ReliedOn:
    return ReliedOn(library="orbax-checkpoint", version="0.12.8", call=call, loss=loss)


def _transformers(call: str, loss: str) -> ReliedOn:
    return ReliedOn(library="transformers", version="5.24.0", call=call, loss=loss)


def _connector(call: str, loss: str) -> ReliedOn:
    return ReliedOn(library="s3torchconnector", version="1.5.0", call=call, loss=loss)


def _s3fs(call: str, loss: str) -> ReliedOn:
    return ReliedOn(library="s3fs", version="2026.9.0", call=call, loss=loss)


_SAVE = Derived(
    inputs="the save limit (--cluster, --ckpt-failures, --ckpt-checkpoints-per-failure, --ckpt-save-budget)",
)
_LOAD = Derived(inputs="the load limit (--cluster, --ckpt-failures, --ckpt-load-budget)")
_INTERVAL = Derived(
    inputs="the interval between checkpoints (--cluster, --ckpt-failures, --ckpt-checkpoints-per-failure)"
)
_CALLS = Derived(
    inputs="a call that does not return makes a save miss the save limit (--cluster, --ckpt-failures, "
    "--ckpt-checkpoints-per-failure, --ckpt-save-budget)",
)
_FILES = Derived(
    inputs="the files of a checkpoint by host (--ckpt-model, --ckpt-engine, --ckpt-hosts) and the save limit "
    "(--cluster, --ckpt-failures, --ckpt-checkpoints-per-failure, --ckpt-save-budget)",
)
_RENAME = _torch(
    "FileSystemWriter.finish, which writes the metadata to a temporary name and renames it",
    "a restore finds no checkpoint, or a part of one",
)
_DIRECTORY = _orbax(
    "AtomicRenameTemporaryPath, which renames the complete directory", "a restore loads a checkpoint with holes"
)
_READ = _torch(
    "FileSystemReader.read_data, which compares no checksum", "a job continues with wrong weights and no error"
)
_SYNC = _torch(
    "FileSystemWriter(sync_files=True), which calls os.fsync on each file", "an acknowledged checkpoint is lost"
)
_ERROR = _torch(
    "FileSystemWriter, which commits unless write, fsync or close fails", "a committed checkpoint has holes"
)
_KEEP = _torch("FileSystemWriter.finish, which commits last", "the previous checkpoint is gone when a save fails")
_LATEST = ReliedOn(
    library="DeepSpeed",
    version="0.19.8",
    call="DeepSpeedEngine.save_checkpoint(save_latest=True), which overwrites the file latest in place",
    loss="a restore does not find the newest checkpoint",
)
_MKDIR = _torch(
    "FileSystemWriter.prepare_local_plan, with which every rank creates the directory", "the save ends with an error"
)
_LIST = _transformers(
    "get_last_checkpoint, which calls os.listdir",
    "the newest checkpoint is not found, or a removed checkpoint is found",
)
_ROTATE = _transformers(
    "rotate_checkpoints, which deletes a checkpoint that another process may read", "the reader gets wrong weights"
)
_PARTS = _connector("S3Client.put_object, which sends objects in parts of 8 MiB", "a shard is missing, short or mixed")
_DIGEST = _s3fs(
    "S3File, whose client botocore sends a CRC-32 with each object and each part since 1.36",
    "damaged bytes are stored without an error",
)
_FRESH = _torch(
    "FileSystemReader.read_metadata, on other hosts than the writer's", "a restore loads old bytes or finds no file"
)
_STEPS = _orbax("path.step, which lists steps with iterdir", "the newest checkpoint is not found")

REASONS: tuple[Reason, ...] = (
    Reason(name="SAVE", because=_SAVE),
    Reason(name="LOAD", because=_LOAD),
    Reason(name="INTEGRITY", because=_READ),
    Reason(
        name="COLD",
        because=Published(
            title="MLPerf Storage v2.0, rules of submission",
            publisher="MLCommons",
            year=2025,
            rule="caches of the clients are cleared between saving and loading",
        ),
    ),
    Reason(name="DURABLE-CALLS", because=_SYNC),
    Reason(name="BLOCKING", because=_SAVE),
    Reason(name="BACKGROUND", because=_INTERVAL),
    Reason(name="LOST-WORK", because=_SAVE),
    Reason(name="CRASH-ASYNC", because=_RENAME),
    Reason(name="RETAIN-COMMITTED", because=_ROTATE),
    Reason(name="CHAIN", because=_LOAD),
    Reason(name="RETAIN-CHAIN", because=_READ, own_limit=True),
    Reason(name="DRAIN", because=_INTERVAL),
    Reason(
        name="TIER-ORDER",
        because=ReliedOn(
            library="nvidia-resiliency-ext",
            version="0.4.1",
            call="BaseCheckpointManager.find_latest",
            loss="a job continues from an older checkpoint, or from a part of one",
        ),
    ),
    Reason(name="NODE-LOSS", because=_LOAD),
    Reason(name="STORM", because=_READ, own_limit=True),
    Reason(name="SHIFTED", because=_LOAD),
    Reason(name="RESHAPED", because=_LOAD),
    Reason(name="NEIGHBOUR", because=_SAVE),
    Reason(
        name="STEADY",
        because=Published(
            title="Solid State Storage Performance Test Specification 2.0.2",
            publisher="SNIA",
            year=2020,
            rule="of five rounds, range at most 20 % and slope at most 10 %",
        ),
    ),
    Reason(name="FAILOVER", because=_READ, own_limit=True),
    Reason(name="UPGRADE", because=_ERROR, own_limit=True),
    Reason(name="SNAPSHOT", because=_RENAME, own_limit=True),
    Reason(name="COMMIT.file", because=_RENAME),
    Reason(name="COMMIT.file-second-client", because=_RENAME),
    Reason(name="COMMIT.directory", because=_DIRECTORY),
    Reason(name="COMMIT.directory-second-client", because=_DIRECTORY),
    Reason(name="VISIBLE.read-after-close", because=_FRESH),
    Reason(name="PUBLISH.marker", because=_FRESH, tables=("serving",), own_limit=True),
    Reason(name="PUBLISH.directory", because=_DIRECTORY, tables=("serving",), own_limit=True),
    Reason(name="PUBLISH.pointer", because=_LATEST, tables=("serving",), own_limit=True),
    Reason(
        name="MMAP.private",
        because=ReliedOn(
            library="safetensors",
            version="0.8.0",
            call="safe_open, which maps each file privately",
            loss="a job continues with wrong weights, or ends with SIGBUS",
        ),
    ),
    Reason(name="POINTER", because=_LATEST, own_limit=True),
    Reason(name="MKDIR", because=_MKDIR),
    Reason(
        name="LARGE",
        because=_torch(
            "dcp_to_torch_save, which writes the complete model into one file", "the part beyond the offset is lost"
        ),
    ),
    Reason(name="NAMES", because=_LIST),
    Reason(name="NAMES.many", because=_FILES),
    Reason(name="UNLINK", because=_ROTATE),
    Reason(name="DURABLE.rank-killed", because=_RENAME),
    Reason(name="DURABLE.power-cut", because=_SYNC),
    Reason(name="ERRORS", because=_ERROR),
    Reason(name="FULL", because=_KEEP),
    Reason(name="COMMIT-FULL", because=_KEEP),
    Reason(name="LIVE", because=_CALLS, own_limit=True),
    Reason(
        name="OBJECT-COMMIT",
        because=_connector(
            "S3FileSystem.rename, which copies the metadata to its name after all shards",
            "a restore does not find a shard",
        ),
    ),
    Reason(
        name="OBJECT-VISIBLE.get",
        because=_connector("S3StorageReader.read_metadata (GET)", "a restore loads old bytes or finds no file"),
    ),
    Reason(
        name="OBJECT-VISIBLE.head",
        because=_s3fs("S3FileSystem.exists and info (HEAD)", "a restore finds no checkpoint, or reads to an old size"),
    ),
    Reason(name="OBJECT-VISIBLE.list", because=_STEPS),
    Reason(name="OBJECT-MULTIPART", because=_PARTS),
    Reason(name="OBJECT-LIMITS.many", because=_PARTS),
    Reason(name="OBJECT-DIGEST.object", because=_DIGEST),
    Reason(name="OBJECT-DIGEST.part", because=_DIGEST),
    Reason(
        name="OBJECT-RANGE.bytes",
        because=_connector(
            "S3StorageReader, which reads tensors in ranges", "a restore gets wrong weights without an error"
        ),
    ),
    Reason(
        name="OBJECT-RANGE.overwritten",
        because=_s3fs(
            "S3File, which sends If-Match with each range", "a restore gets a tensor of two versions without an error"
        ),
    ),
    Reason(
        name="OBJECT-OVERWRITE",
        because=ReliedOn(
            library="megatron-core",
            version="0.16.1",
            call="FileSystemWriterAsync.finish, which writes .metadata through multi-storage-client",
            loss="a restore reads a .metadata that is mixed from two writers",
        ),
    ),
    Reason(name="OBJECT-LIST", because=_STEPS),
    Reason(name="OBJECT-LARGE", because=_PARTS),
    Reason(
        name="OBJECT-CROWD",
        because=_connector("S3StorageReader.read_metadata, on every rank", "the restart ends with an error"),
        own_limit=True,
    ),
    Reason(name="OBJECT-LIVE", because=_CALLS, own_limit=True),
)


def reason_of(requirement: str, subject: str, table: str, reasons: Sequence[Reason] = REASONS) -> Reason | None:
    """Return the reason why a gate table may require a check; None without a reason.

    If the check itself has no reason, return the reason of its requirement.
    """
    by_name = {reason.name: reason for reason in _of_table(table, reasons)}
    return by_name.get(f"{requirement}.{subject}", by_name.get(requirement))


def reasons_for(requirement: str, table: str, reasons: Sequence[Reason] = REASONS) -> list[tuple[str, str]]:
    """Return [(name, reason as text)] for the reasons of a requirement and of its checks in a gate table."""
    return [
        (reason.name, reason.text)
        for reason in _of_table(table, reasons)
        if reason.name.partition(".")[0] == requirement
    ]


def _of_table(table: str, reasons: Sequence[Reason]) -> list[Reason]:
    return [reason for reason in reasons if table in (reason.tables or (table,))]


def is_default_limit(requirement: str, subject: str, gates: Gates) -> bool:
    """Whether a limit is a default of this program, and the operator's gate table does not set another limit."""
    is_set = bool(gates.extends) and gates.limit(requirement, subject, None) is not None
    found = reason_of(requirement, subject, gates.table)
    return bool(found and found.own_limit) and not is_set
