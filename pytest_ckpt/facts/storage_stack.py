"""What lies below a target on one host: from its mount through block devices and files to the ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LayerKind = Literal["file system", "device", "file", "process", "network", "memory", "hypervisor", "unknown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer; ``depth`` counts from the mount of the target, which is 0. ``text`` names it, as in "ext4"."""

    kind: LayerKind
    text: str
    depth: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageStack:
    """All layers of one host, each before those below it.

    ``files`` are files of this host that hold the target's bytes, as a loop device has one: the page cache has the same
    bytes a second time there. ``blind`` says why the count of cached pages misses a cache, a phrase for each cause.
    """

    host: str = ""
    layers: tuple[Layer, ...] = ()
    files: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()

    @property
    def memory(self) -> tuple[str, ...]:
        """The ends that are memory of the host."""
        return tuple(layer.text for layer in self.layers if layer.kind == "memory")

    @property
    def processes(self) -> tuple[str, ...]:
        """The layers that a process serves: what it keeps in memory, the kernel neither counts nor drops."""
        return tuple(layer.text for layer in self.layers if layer.kind == "process")

    @property
    def sentence(self) -> str:
        """The layers in words, such as "ext4 on /dev/loop0 on the file /images/a on ext4 on /dev/vda"."""
        text = ""
        depth = -1
        for layer in self.layers:
            between = "" if not text else " and " if layer.depth <= depth else " on "
            text, depth = f"{text}{between}{layer.text}", layer.depth
        return text
