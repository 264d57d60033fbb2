"""Engine ``megatron``: writes the same files as megatron-core 0.16.1 in the same order, and uses the same commit.

The calls come from a recorded trace; Megatron itself is not used. The large files are files of
torch.distributed.checkpoint, two for each rank. In this engine the library writes them in two threads; Megatron uses
two processes.

Rank 0 writes `common.pt` before the large files. After the library's `.metadata`, it writes `metadata.json`, then the
tracker, a file with the number of the newest checkpoint. In Megatron the training loop writes the tracker. Megatron
does not fsync `common.pt`, `metadata.json` or the tracker. As in every engine, pytest-ckpt adds the missing fsyncs
within the timed part and before the commit.

In this engine the tracker is in the checkpoint's directory, so it is a new file in each checkpoint. The requirement
POINTER tests whether a tracker is overwritten correctly.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import torch

from pytest_ckpt.facts.file_rules import MEGATRON_FILES, TRACKER
from pytest_ckpt.ranks.engines.dcp import DcpEngine
from pytest_ckpt.ranks.engines.protocol import LocalFault

if TYPE_CHECKING:
    from pytest_ckpt.ranks.content import Content
    from pytest_ckpt.ranks.engines.dcp_watch import WatchedFiles
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.sizing.models import RankLayout

COMMON, VERSION = "common.pt", "metadata.json"


class MegatronEngine(DcpEngine):
    """An engine like `DcpEngine`, with two large files per rank and the small files of Megatron."""

    def __init__(
        self, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions
    ) -> None:
        super().__init__(shard, content, group, activity, options, rule=MEGATRON_FILES)
        self._read: dict[str, bytes] = {}

    def facts(self) -> dict[str, str]:
        """Return how the files are written, and the files and directories that Megatron does not fsync."""
        return super().facts() | {
            "save": "files, order and commit as megatron-core 0.16.1 was traced; torch.distributed.checkpoint writes "
            "two files a rank, in two threads in place of two processes",
            "the job itself": "common.pt, metadata.json, the tracker and every directory without fsync",
        }

    def _write_before(self, directory: str, files: WatchedFiles) -> None:
        self._write_small(directory, files, (COMMON,))

    def _write_behind(self, directory: str, files: WatchedFiles) -> None:
        self._write_small(directory, files, (VERSION, TRACKER))

    def _write_small(self, directory: str, files: WatchedFiles, names: tuple[str, ...]) -> None:
        for name in names if self._group.rank == 0 else ():
            with files.create_stream(files.concat_path(directory, name), "wb") as out:
                out.write(_small(self._filled)[name])

    def _read_small(self, directory: str, files: WatchedFiles) -> None:
        # The training loop looks up the newest checkpoint, then the library looks up its format.
        for name in (TRACKER, VERSION, COMMON):
            with files.create_stream(files.concat_path(directory, name), "rb") as source:
                self._read[name] = source.read()

    def _faults_of_small(self, checkpoint: int) -> list[LocalFault]:
        return [
            LocalFault(
                kind="foreign",
                file=name,
                tensor="",
                offset=0,
                bytes=len(data),
                detail=f"it has not the {len(written)} bytes that rank 0 wrote",
            )
            for name, written in _small(checkpoint).items()
            if (data := self._read.get(name, b"")) != written
        ]


def _small(checkpoint: int) -> dict[str, bytes]:
    """Return {name: content} of a checkpoint's small files. The sizes of the files are the sizes in the trace."""
    common = io.BytesIO()
    torch.save({"iteration": checkpoint, "checkpoint_version": 3.0, "args": "a job's arguments"}, common)
    version = {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
    version |= {"common_backend": "torch", "common_backend_version": 1}
    return {
        COMMON: common.getvalue(),
        VERSION: json.dumps(version).encode(),
        TRACKER: str(checkpoint).encode(),
    }


def make(
    *, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions
) -> MegatronEngine:
    """Return the engine for the files of one rank. All ranks call each of the engine's methods together."""
    return MegatronEngine(shard, content, group, activity, options)
