"""torch.distributed.checkpoint into a bucket: the state, the ranks and the comparison are those of engine ``dcp``.

All requests of a save until it has returned are the library's, the commit, too: rank 0 puts `.metadata.tmp`, has it
copied to `.metadata` and deletes it. Ours come behind, on the clock: the store is asked what it has of each object.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, cast

import torch

from pytest_ckpt.facts.file_rules import DCP_OBJECTS
from pytest_ckpt.facts.proofs import CommitProof
from pytest_ckpt.ranks.engines.dcp.arrivals import of_other_size
from pytest_ckpt.ranks.engines.dcp.engine import METADATA, DcpEngine
from pytest_ckpt.ranks.engines.dcp_objects.watched_objects import Client, WatchedObjects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter

    from pytest_ckpt.facts.proofs import Entry
    from pytest_ckpt.ranks.content import Content
    from pytest_ckpt.ranks.engines.dcp.watch import Watch
    from pytest_ckpt.ranks.engines.protocol import Clock, Comparison
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.sizing.models import RankLayout
    from pytest_ckpt.targets.protocol import Committed, CommittedObjects, Draft, DraftOfObjects, ObjectPlace


class ObjectsDcpEngine(DcpEngine):
    """What the clients have in common. ``client`` is the one of the engine, ``writes`` and ``reads`` are its classes.

    What a client logs may repeat keys; it is written nowhere.
    """

    client: Client
    writes: str
    reads: str

    def __init__(
        self, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions
    ) -> None:
        super().__init__(shard, content, group, activity, options, rule=DCP_OBJECTS)
        # Without any handler Python would print what is a warning and above.
        logging.getLogger().addHandler(logging.NullHandler())
        self._loaded: CommittedObjects | None = None

    def facts(self) -> dict[str, str]:
        """Return the versions, how the library is called, and which calls are whose."""
        return {
            "torch": torch.__version__,
            "client": self.client.name,
            "save": f"torch.distributed.checkpoint.save, {self.writes}",
            "load": f"torch.distributed.checkpoint.load, {self.reads}, into tensors that are there",
            "commit": "the library's and not ours: .metadata.tmp is put, copied to .metadata and deleted",
            "added": f"HEAD of each object behind the library's own calls, in every save: {self.added_text()}",
            "requests": f"those of {self.client.name} are not counted; what is listed are ours alone",
        }

    def verify(self, checkpoint: int) -> Comparison:
        """Compare as `DcpEngine`, and the sizes of the objects."""
        if self._loaded and not self._faults:
            sizes = self._loaded.sizes(list(self._sizes))
            self._faults += [
                of_other_size(name, sizes.get(name, 0), size)
                for name, size in self._sizes.items()
                if sizes.get(name, 0) != size
            ]
        return super().verify(checkpoint)

    def new_writer(self, place: ObjectPlace) -> FileSystemWriter:
        """Return the client's writer of a checkpoint."""
        raise NotImplementedError

    def new_reader(self, place: ObjectPlace) -> FileSystemReader:
        """Return the client's reader of a checkpoint."""
        raise NotImplementedError

    def _begin_save(self, draft: Draft, clock: Clock) -> tuple[FileSystemWriter, Watch]:
        objects = cast("DraftOfObjects", draft)
        writer = self.new_writer(objects.place())
        watch = WatchedObjects(clock, self._summed, writer.fs, self.client, objects.in_our_words)
        writer.fs = watch  # type: ignore[assignment]
        return writer, watch

    def _end_save(self, draft: Draft, files: Watch) -> None:
        """The library has written all that there is."""

    def _committed_as(self, entries: Sequence[Entry], files: Watch) -> CommitProof | None:
        """Compare what the store acknowledges with what was handed over. Raises OSError where it is other bytes."""
        for entry in entries:
            if (sent := files.sizes.get(entry.name)) != entry.bytes:
                what = f"the store acknowledges {entry.bytes} bytes, and {sent} were handed to {self.client.name}"
                raise OSError(errno.EIO, what, entry.name)
        return CommitProof(method="copy") if self._group.rank == 0 else None

    def _begin_load(self, committed: Committed, clock: Clock) -> tuple[FileSystemReader, Watch]:
        self._loaded = cast("CommittedObjects", committed)
        reader = self.new_reader(self._loaded.place())
        watch = WatchedObjects(clock, self._summed, reader.fs, self.client, self._loaded.in_our_words)
        reader.fs = watch  # type: ignore[assignment]
        return reader, watch

    def _look_at_sizes(self, committed: Committed, files: Watch) -> None:
        files.sizes |= cast("CommittedObjects", committed).sizes([*self._own_files, METADATA])
