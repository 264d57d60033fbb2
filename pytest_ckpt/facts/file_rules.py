"""Which files an engine's library makes of a checkpoint, and what a recorded job made. Pure.

Every pytest run of an environment imports this module, as `pytest_ckpt.facts.engines` does: NamedTuples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

AS_SOON, AS_RECORDED = PACES = ("asap", "recorded")


class JobPattern(NamedTuple):
    """The pattern that an engine replays: its file's name, the digest of that, and its text (`facts.pattern`).

    As part of a `FileRule` it is contained in plan, task and report.

    ``pace``: whether calls follow each other at once, or after the recorded pauses.
    """

    file: str
    sha256: str
    text: str
    pace: str = AS_SOON

    def to_plain(self) -> dict[str, str]:
        """Return it in plain types; a pace only where it is another than that of older versions."""
        plain = self._asdict()
        return plain if self.pace != AS_SOON else {name: plain[name] for name in ("file", "sha256", "text")}


class FileRule(NamedTuple):
    """Which files a checkpoint has where the engine's library names them. Without ``of_rank`` they are the layout's.

    ``of_rank`` is the one file of each rank; ``{rank}`` stands for its number, ``{shard}`` for one of five digits that
    begins at 1. Rank 0 writes the ``shared`` ones too, which every rank reads. ``passing`` ones are there only while a
    save goes on. Where ``maximum_bytes`` is set, a rank has several files: at scale 1.0 each takes tensors, in their
    order, up to so many bytes, and the optimizer begins a new one (`pytest_ckpt.sizing.files`). ``{number}`` and
    ``{count}``, of five digits too, tell them apart. Where a rank has several ``writers``, each has a file of about as
    many bytes, and ``{writer}`` is its number, from 0. With a ``pattern`` files are those of a recorded job.

    ``consolidated`` names the files that rank 0 makes of those of all ranks, in the same save: whole tensors, as many
    files as each rank has at most; a load reads these.

    ``commit`` is the shared one by which the library commits a checkpoint itself: whole when that is there.
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
        """Return it in plain types; a size only where there is one, as plans of older versions have it."""
        plain: dict[str, Any] = {"of_rank": self.of_rank, "shared": list(self.shared), "passing": list(self.passing)}
        if self.pattern:
            plain["pattern"] = self.pattern.to_plain()
        plain |= {"maximum_bytes": self.maximum_bytes} if self.maximum_bytes else {}
        plain |= {"writers": self.writers} if self.writers > 1 else {}
        plain |= {"consolidated": self.consolidated} if self.consolidated else {}
        return plain | ({"commit": self.commit} if self.commit else {})


OF_LAYOUT = FileRule()
"""The files of the layout, which is what engines have whose files have no names of their own."""


# What Hugging Face's transformers 4 take for a file where nothing else is said (`max_shard_size`).
_MAXIMUM_SHARD_BYTES = 5_000_000_000

SAFETENSORS_FILES = FileRule(
    of_rank="shard-{shard}-model-{number}-of-{count}.safetensors",
    shared=("model.safetensors.index.json",),
    maximum_bytes=_MAXIMUM_SHARD_BYTES,
)
"""The names are those of torch's HuggingFaceStorageWriter, whose index is that of all files."""


CONSOLIDATED_FILES = SAFETENSORS_FILES._replace(consolidated="model-{number}-of-{count}.safetensors")
"""Those of the same writer with ``enable_consolidation``; it has the shards in a directory of their own."""

DCP_FILES = FileRule(of_rank="__{rank}_0.distcp", shared=(".metadata",), passing=(".metadata.tmp",))
"""Those of torch.distributed.checkpoint as it is."""

DCP_OBJECTS = DCP_FILES._replace(commit=".metadata")
"""The same as objects of a bucket, where the library has the last word."""

TRACKER = "latest_checkpointed_iteration.txt"

MEGATRON_FILES = FileRule(
    of_rank="__{rank}_{writer}.distcp",
    shared=("common.pt", ".metadata", "metadata.json", TRACKER),
    passing=(".metadata.tmp",),
    writers=2,
)
"""Those that megatron-core 0.16.1 was traced to write, and the tracker of its training loop."""
