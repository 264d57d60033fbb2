"""What the kernel says of the parts of this host between a rank and the storage: readahead, client, NUMA nodes.

As in `client_state`, what cannot be read is left out. ``root`` is where the trees /proc and /sys begin.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Collection, Iterator
from pathlib import Path

_ROOT = Path("/")
_KIB_OF_A_MIB = 1024
_LUSTRE = "lustre"
# File systems whose module has another name. What runs in user space (FUSE) tells no version to the kernel.
_MODULES = {"nfs4": "nfs", "wekafs": "wekafsio", "gpfs": "mmfslinux", "smb3": "cifs", "fuse": "", "fuseblk": ""}
# Of a client that tells its version elsewhere than its module does.
_VERSION_FILES = {_LUSTRE: ("sys/fs/lustre/version", "proc/fs/lustre/version")}
_OUT_OF_TREE = "O"


def readahead_state(kind: str, device: str, root: Path = _ROOT) -> dict[str, str]:
    """Return how far the kernel reads ahead on a device, ``major:minor`` of a folder's file system, in KiB.

    Lustre has a figure of its own for each mount; where there are several it is not known which is meant.
    """
    if kind == _LUSTRE:
        own = {*root.glob("sys/fs/lustre/llite/*/max_read_ahead_mb")}
        own = own or {*root.glob("proc/fs/lustre/llite/*/max_read_ahead_mb")}
        mib = _read(own.pop()).partition(".")[0] if len(own) == 1 else ""
        return {"readahead_kib": str(int(mib) * _KIB_OF_A_MIB)} if mib.isdecimal() else {}
    block = root / "sys/dev/block" / device
    # Of a partition the disk has the figure.
    for file in (root / "sys/class/bdi" / device / "read_ahead_kb", block / "queue/read_ahead_kb",
                 block.resolve().parent / "queue/read_ahead_kb") if device else ():  # fmt: skip
        if (text := _read(file)).isdecimal():
            return {"readahead_kib": text}
    return {}


def version_state(kind: str, root: Path = _ROOT) -> dict[str, str]:
    """Return the client's module and version: its own, or the kernel's where it is the kernel's own module."""
    name = "" if kind.startswith("fuse.") else _MODULES.get(kind, kind)
    if not name:
        return {}
    module = root / "sys/module" / name
    listed = [_read(root / file) for file in _VERSION_FILES.get(kind, ())]
    for text in (*listed, _read(module / "version")):
        # Lustre writes "lustre: 2.15.3" in a line of several.
        if words := text.partition("\n")[0].removeprefix("lustre:").split():
            return {"client_module": name, "client_version": words[0]}
    if not module.is_dir():
        return {}
    is_of_kernel = _OUT_OF_TREE not in _read(module / "taint")
    return {"client_module": name} | ({"client_version": platform.release()} if is_of_kernel else {})


def numa_state(nic: str, cores: Collection[int], root: Path = _ROOT) -> dict[str, str]:
    """Return NUMA nodes: how many there are, those of the cores a rank may use, that of a link; and whether they meet.

    ``cores_near_nic`` is ``all``, ``some`` or ``none``. ``nic`` is empty where the link to the storage is not known.
    """
    nodes = numa_nodes(root)
    if not nodes:
        return {}
    own = sorted(node for node, of in nodes.items() if of & set(cores))
    found = {"numa_nodes": str(len(nodes))}
    if own:
        found["cores_numa"] = ",".join(map(str, own))
    # A virtual link has none, and a host without NUMA says -1.
    node = _read(root / "sys/class/net" / nic / "device/numa_node") if nic else ""
    if node.isdecimal():
        found["nic_numa"] = node
        near = set(cores) & nodes.get(int(node), frozenset())
        found["cores_near_nic"] = "all" if near == set(cores) else "some" if near else "none"
    return found


def numa_nodes(root: Path = _ROOT) -> dict[int, frozenset[int]]:
    """Return the cores of each NUMA node, by the number of the node; nothing where the kernel tells no nodes."""
    return {
        int(folder.name.removeprefix("node")): frozenset(_numbers(_read(folder / "cpulist")))
        for folder in root.glob("sys/devices/system/node/node[0-9]*")
        if folder.name.removeprefix("node").isdecimal()
    }


def cores_of_this_process() -> set[int]:
    """Return the numbers of the cores that this process may run on."""
    return os.sched_getaffinity(0)


def _numbers(text: str) -> Iterator[int]:
    """Yield the numbers of a list such as ``0-3,8``; nothing of what is none."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        with contextlib.suppress(ValueError):
            yield from range(int(first), int(last or first) + 1)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except (OSError, ValueError):
        return ""
