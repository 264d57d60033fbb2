"""torch's writer of Hugging Face's files, whose consolidation shows what it moves.

The library opens what it consolidates by the built-in `open` and says nothing until it has ended, which takes as long
as one client needs to read and write a whole checkpoint. Here the name `open` of its module leads to the watched files
of the save: the same calls, in pieces of at most 64 MiB.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch.distributed.checkpoint import _consolidate_hf_safetensors as library
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.storage import WriteResult

    from pytest_ckpt.ranks.engines.dcp.watched_files import WatchedFiles


class ConsolidatingWriter(HuggingFaceStorageWriter):
    """Saves each rank's shards, and on rank 0 whole tensors of them; all files stand in one folder.

    ``numbers`` says into which file each tensor goes, from 1. ``seconds`` is what the consolidation took here.
    """

    def __init__(self, folder: str, files: WatchedFiles, numbers: Mapping[str, int]) -> None:
        super().__init__(folder, dict(numbers), save_distributed=True, enable_consolidation=True)
        # The library would have the shards in a folder of their own.
        self.path = folder
        self.fs = files
        self._files = files
        self.seconds = 0.0

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Consolidate; called on rank 0 when all ranks have written."""
        began = time.perf_counter()
        with _opening_by(self._files):
            super().finish(metadata, results)
        self.seconds = time.perf_counter() - began


@contextmanager
def _opening_by(files: WatchedFiles) -> Iterator[None]:
    """Let the library's consolidation open files as ``files`` does."""
    vars(library)["open"] = files.open
    try:
        yield
    finally:
        del vars(library)["open"]
