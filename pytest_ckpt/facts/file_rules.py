"""The files that an engine's library creates for a checkpoint, and the files of a recorded job. Pure.

Every pytest run of an environment imports this module, as `pytest_ckpt.facts.engines` does: NamedTuples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

AS_SOON, AS_RECORDED = PACES = ("asap", "recorded")


class JobPattern(NamedTuple):
    """The pattern that an engine replays: its file's name, its digest, and its text (`facts.pattern`).

    As part of a `FileRule` it is contained in plan, task and report.

    ``pace``: whether calls follow each other immediately, or after the recorded pauses.
    """

    file: str
    sha256: str
    text: str
    pace: str = AS_SOON

    def to_plain(self) -> dict[str, str]:
        """Return the pattern in plain types; a pace is included only if older versions used another one."""
        plain = self._asdict()
        return plain if self.pace != AS_SOON else {name: plain[name] for name in ("file", "sha256", "text")}


class FileRule(NamedTuple):
    """The files of a checkpoint if the engine's library names them. Without ``of_rank`` the layout names them.

    ``of_rank`` is the one file of each rank; ``{rank}`` is replaced by its number, ``{shard}`` by one of five digits
    that begins at 1. Rank 0 also writes the ``shared`` ones, which every rank reads. ``passing`` ones exist only during
    a save. If ``maximum_bytes`` is set, a rank has several files: at scale 1.0 each takes tensors, in their order, up
    to so many bytes, and the optimizer begins a new one (`pytest_ckpt.sizing.files`). ``{number}`` and ``{count}``, of
    five digits too, distinguish them. If a rank has several ``writers``, each has a file of about as many bytes, and
    ``{writer}`` is its number, from 0. With a ``pattern`` the files are the files of a recorded job.

    ``consolidated`` names the files that rank 0 creates from the files of all ranks, in the same save. They contain
    complete tensors; their count is the largest count of files of a rank. A load reads these files.

    ``commit`` is the shared file by which the library commits a checkpoint itself: the checkpoint is complete when this
    file exists.
    """

    of_rank: str = ""
    shared: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    maximum_bytes: int = 0
    pattern: JobPattern | None = None
    writers: int = 1
    consolidated: str = ""
    commit: str = ""

    def to_plain(self) -> dict[str, Any]:
        """Return the rule in plain types. A size is included only if there is one, as in older plans."""
        plain: dict[str, Any] = {"of_rank": self.of_rank, "shared": list(self.shared), "passing": list(self.passing)}
        if self.pattern:
            plain["pattern"] = self.pattern.to_plain()
        plain |= {"maximum_bytes": self.maximum_bytes} if self.maximum_bytes else {}
        plain |= {"writers": self.writers} if self.writers > 1 else {}
        plain |= {"consolidated": self.consolidated} if self.consolidated else {}
        return plain | ({"commit": self.commit} if self.commit else {})


OF_LAYOUT = FileRule()
"""The files of the layout, for engines that do not name files themselves."""


# The default size of a file in Hugging Face's transformers 4 (`max_shard_size`).
_MAXIMUM_SHARD_BYTES = 5_000_000_000

SAFETENSORS_FILES = FileRule(
    of_rank="shard-{shard}-model-{number}-of-{count}.safetensors",
    shared=("model.safetensors.index.json",),
    maximum_bytes=_MAXIMUM_SHARD_BYTES,
)
"""The names that torch's HuggingFaceStorageWriter uses; its index covers all files."""


CONSOLIDATED_FILES = SAFETENSORS_FILES._replace(consolidated="model-{number}-of-{count}.safetensors")
"""Those of the same writer with ``enable_consolidation``; it puts the shards into a separate directory."""

DCP_FILES = FileRule(of_rank="__{rank}_0.distcp", shared=(".metadata",), passing=(".metadata.tmp",))
"""Those of torch.distributed.checkpoint as it is."""

DCP_OBJECTS = DCP_FILES._replace(commit=".metadata")
"""The same as objects of a bucket, whose names the library decides."""

TRACKER = "latest_checkpointed_iteration.txt"

MEGATRON_FILES = FileRule(
    of_rank="__{rank}_{writer}.distcp",
    shared=("common.pt", ".metadata", "metadata.json", TRACKER),
    passing=(".metadata.tmp",),
    writers=2,
)
"""Those that megatron-core 0.16.1 was traced to write, and the tracker of its training loop."""
