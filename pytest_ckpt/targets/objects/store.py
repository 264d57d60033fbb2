"""A run's area in a bucket, attached.

The objects of a checkpoint have a common prefix. Rank 0 commits by one more object, the marker, which names all other
objects with their bytes and checksums. Without it the checkpoint does not exist. A load reads the marker first, and a
deletion removes it first.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Sequence
from typing import Literal

from pytest_ckpt.facts.proofs import CommitProof, Entry
from pytest_ckpt.facts.requests import Tallies
from pytest_ckpt.facts.targets import AreaRef, Capability, CheckpointRef
from pytest_ckpt.targets.objects import parts
from pytest_ckpt.targets.objects.checkpoint import ObjectsCommitted, ObjectsDraft, marker_text
from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.keys import MARKER, checkpoint_key, checkpoint_number, prefix_of
from pytest_ckpt.targets.protocol import Phases
from pytest_ckpt.targets.without_paths import StoreWithoutCache

CAPABILITIES: frozenset[Capability] = frozenset()
"""Nothing that a mounted file system has, and no cache on the client."""


def open_store(area: AreaRef) -> ObjectStore:
    """Attach to an area, or to the place where a run will create one."""
    return ObjectStore(area)


class ObjectStore(StoreWithoutCache):
    """The objects of a run."""

    capabilities = CAPABILITIES
    wants_entries = True
    of_each_host = False

    def __init__(self, area: AreaRef) -> None:
        place = prefix_of(area)
        self._below = place.below
        self._bucket = Bucket(place, area.access)

    def is_reachable(self) -> bool:
        """Return whether the bucket answers this process."""
        try:
            self._bucket.look(self._below)
        except OSError:
            return False
        return True

    def prepare(self, subject: str) -> None:
        """Nothing is needed."""

    def part_bytes(self, size: int) -> int:
        """Return the bytes of each part of an object of so many bytes, but for its last."""
        return parts.part_bytes(size, self._bucket.part_bytes)

    def begin(self, ref: CheckpointRef, phases: Phases) -> ObjectsDraft:
        """Begin this rank's part of a checkpoint."""

        def publish(entries: Sequence[Entry]) -> CommitProof:
            return self.commit(ref, entries, phases)

        return ObjectsDraft(self._bucket, self._key(ref), phases, publish)

    def commit(self, ref: CheckpointRef, entries: Sequence[Entry], phases: Phases) -> CommitProof:
        """Put the marker, which names every object; the checkpoint must not have one yet."""
        key, text = self._marker(ref), marker_text(entries)
        with phases.phase("commit", MARKER):
            try:
                self._bucket.put(key, text, if_absent=True)
            except FileExistsError:
                # A repeated request finds its own earlier effect.
                if self._bucket.get(key) != text:
                    raise
            if (seen := self._bucket.head(key).bytes) != len(text):
                raise OSError(errno.EIO, f"the store acknowledges {seen} bytes of {len(text)}", self._bucket.url(key))
        return CommitProof(method="marker")

    def is_committed(self, ref: CheckpointRef) -> bool:
        """Return whether it has a marker, or a library's own commit object."""
        return self._bucket.is_there(self._marker(ref))

    def put(self, name: str, data: bytes, when: Literal["always", "if absent"] = "always") -> bool:
        """Write a small object."""
        try:
            self._bucket.put(f"{self._below}{name}", data, if_absent=when == "if absent")
        except FileExistsError:
            return False
        return True

    def committed(self, subject: str) -> Sequence[int]:
        """Return the numbers of checkpoints that have a marker."""
        keys = [key.split("/")[-2:] for key in self._bucket.keys(f"{self._below}{subject}/")]
        numbers = {checkpoint_number(directory) for directory, name in keys if name == MARKER}
        return sorted(number for number in numbers if number is not None)

    def open(self, ref: CheckpointRef, phases: Phases) -> ObjectsCommitted:
        """Return a committed checkpoint; its marker is read when the first of its objects is opened."""
        return ObjectsCommitted(self._bucket, self._key(ref), phases, ref.commit)

    def delete(self, ref: CheckpointRef, names: Collection[str]) -> None:
        """Delete the marker, which other ranks may have deleted, then this rank's objects."""
        self._bucket.delete(self._marker(ref))
        for name in names:
            self._bucket.delete(f"{self._key(ref)}/{name}")

    def finish_delete(self, ref: CheckpointRef) -> None:
        """A bucket has no directories to remove."""

    def clear(self, subject: str) -> None:
        """Nothing is left."""

    def requests(self) -> Tallies:
        """Return the counts of its requests."""
        return self._bucket.tallies()

    def close(self) -> None:
        """Close the connections."""
        self._bucket.close()

    def _key(self, ref: CheckpointRef) -> str:
        return f"{self._below}{checkpoint_key(ref)}"

    def _marker(self, ref: CheckpointRef) -> str:
        return f"{self._key(ref)}/{ref.commit or MARKER}"
