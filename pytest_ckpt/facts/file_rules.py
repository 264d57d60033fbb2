"""Rules for the names of a checkpoint's files, if an engine's library or a recorded job chooses the names. Pure.

If pytest-ckpt is installed, every pytest run imports this module. Rules are NamedTuples because Python creates these
classes faster than dataclasses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

AS_SOON, AS_RECORDED = PACES = ("asap", "recorded")


class JobPattern(NamedTuple):
    """The pattern (the recorded file calls) of a job that an engine replays: name of its file, SHA-256 and text.

    `facts.pattern` defines the text. Plan, task and report contain the pattern as a part of a `FileRule`. If ``pace``
    is ``asap``, each call of the replay follows immediately. If it is ``recorded``, each call follows after the
    recorded pause.
    """

    file: str
    sha256: str
    text: str
    pace: str = AS_SOON

    def to_plain(self) -> dict[str, str]:
        """Return the pattern in plain types.

        If the pace is the default, the result omits the pace. The result then equals the pattern in a plan of an older
        version.
        """
        plain = self._asdict()
        return plain if self.pace != AS_SOON else {name: plain[name] for name in ("file", "sha256", "text")}


class FileRule(NamedTuple):
    """The names of a checkpoint's files, if the engine's library chooses the names.

    If ``of_rank`` is empty, the layout defines the names. Otherwise:

    - ``of_rank``: the name of a rank's file. ``{rank}`` is replaced by the rank's number, ``{shard}`` by the rank's
      number plus 1 in five digits.
    - ``shared``: files that rank 0 writes and every rank reads.
    - ``passing``: temporary files, which exist only during a save.
    - ``maximum_bytes``: if set, a rank has several files. At scale 1.0 each file contains consecutive tensors up to
      this size. The first tensor of the optimizer begins a new file (`pytest_ckpt.sizing.files`). In names,
      ``{number}`` is the number of the file and ``{count}`` the number of files, each in five digits.
    - ``writers``: the number of files of about the same size that a rank writes. In names, ``{writer}`` is the number
      of the file, from 0.
    - ``pattern``: if set, the files are the files of the recorded job.
    - ``consolidated``: the names of the files that contain complete tensors. For each of these files, a rank writes one
      file with its parts of the tensors. In the same save, rank 0 combines the files of all ranks. Loads read only the
      files with complete tensors.
    - ``commit``: the shared file by which the library itself commits a checkpoint. The checkpoint is complete if this
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
        """Return the rule in plain types.

        If a field does not exist in older versions and has its default value, the result omits the field. The result
        then equals the rule in a plan of an older version.
        """
        plain: dict[str, Any] = {"of_rank": self.of_rank, "shared": list(self.shared), "passing": list(self.passing)}
        if self.pattern:
            plain["pattern"] = self.pattern.to_plain()
        plain |= {"maximum_bytes": self.maximum_bytes} if self.maximum_bytes else {}
        plain |= {"writers": self.writers} if self.writers > 1 else {}
        plain |= {"consolidated": self.consolidated} if self.consolidated else {}
        return plain | ({"commit": self.commit} if self.commit else {})


OF_LAYOUT = FileRule()
"""The rule for engines whose files are those of the layout."""


# The default size of a file in Hugging Face's transformers 4 (`max_shard_size`).
_MAXIMUM_SHARD_BYTES = 5_000_000_000

SAFETENSORS_FILES = FileRule(
    of_rank="shard-{shard}-model-{number}-of-{count}.safetensors",
    shared=("model.safetensors.index.json",),
    maximum_bytes=_MAXIMUM_SHARD_BYTES,
)
"""The names that torch's HuggingFaceStorageWriter uses; its index covers all files."""


CONSOLIDATED_FILES = SAFETENSORS_FILES._replace(consolidated="model-{number}-of-{count}.safetensors")
"""The names of the same writer with ``enable_consolidation``; shards and consolidated files are in one directory.

By default the library puts the shards into a separate directory; the engine changes this.
"""

DCP_FILES = FileRule(of_rank="__{rank}_0.distcp", shared=(".metadata",), passing=(".metadata.tmp",))
"""The names that torch.distributed.checkpoint uses by default."""

DCP_OBJECTS = DCP_FILES._replace(commit=".metadata")
"""The same names for objects in a bucket; the object ``.metadata`` commits a checkpoint."""

TRACKER = "latest_checkpointed_iteration.txt"

MEGATRON_FILES = FileRule(
    of_rank="__{rank}_{writer}.distcp",
    shared=("common.pt", ".metadata", "metadata.json", TRACKER),
    passing=(".metadata.tmp",),
    writers=2,
)
"""The names that megatron-core 0.16.1 uses, and the tracker file of its training loop.

They were recorded in a trace.
"""
