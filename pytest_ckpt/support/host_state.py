"""Facts that the kernel states about this host: available memory, client state, and waits of threads for a CPU.

Available memory respects the limits of control groups (Slurm, systemd). Client state consists of network links, tuned
values, the mount of a directory, readahead, the client's version and NUMA nodes. Every fact of client state is a named
text. An unreadable fact is omitted, because the gate table must not be applied to a guess. The parameters ``root``,
``links`` and ``routes`` are the kernel's directories and files, such as /proc/sys. Tests replace these paths.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import struct
from collections.abc import Collection, Iterator
from pathlib import Path

_CONTROL_GROUPS, _OWN_CONTROL_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# Version 1 writes a number near 2^63 if there is no limit; version 2 the word "max".
_UNLIMITED = 1 << 60
_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


SHARED_MEMORY = Path("/dev/shm")


def memory_of_host() -> dict[str, int]:
    """Return {kernel's name of a memory value (MemTotal, Cached): bytes} for this host."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return {key: int(rest.split()[0]) * 1024 for key, rest in (line.split(":", 1) for line in lines)}


def shared_memory_free_bytes(place: Path = SHARED_MEMORY) -> int:
    """Return the free bytes of this host's shared memory. In containers, shared memory has 64 MiB by default."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def memory_available_bytes() -> int:
    """Return the available memory of this host in bytes.

    If less memory remains in a control group of this process, return the remaining memory of that control group.
    """
    there, allowed = memory_of_host().get("MemAvailable", 0), memory_left_bytes()
    return there if allowed is None else min(there, allowed)


def memory_limit_bytes(root: Path = _CONTROL_GROUPS, of: Path = _OWN_CONTROL_GROUP) -> int | None:
    """Return the smallest memory limit of this process's control groups in bytes; None without a limit."""
    return min((limit for limit, _ in _limits(root, of)), default=None)


def memory_left_bytes(root: Path = _CONTROL_GROUPS, of: Path = _OWN_CONTROL_GROUP) -> int | None:
    """Return the smallest remaining memory of this process's control groups in bytes; None without a limit.

    Page cache without recent use counts as free, because the kernel frees it first.
    """
    return min((max(0, limit - used) for limit, used in _limits(root, of)), default=None)


def _limits(root: Path, of: Path) -> Iterator[tuple[int, int]]:
    """Yield (limit, used bytes) of every control group with a limit, from the process's own group upwards."""
    with contextlib.suppress(OSError):
        for line in of.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            home = root if not controllers else root / "memory" if "memory" in controllers.split(",") else None
            if home is None:
                continue
            inside = home / path.lstrip("/")
            for place in (inside, *(p for p in inside.parents if p == home or home in p.parents)):
                yield from _limit_of(place)


def _limit_of(place: Path) -> Iterator[tuple[int, int]]:
    for maximum, now, reclaimable in _FILES:
        with contextlib.suppress(OSError, ValueError):
            limit = int((place / maximum).read_text())
            if limit < _UNLIMITED:
                yield limit, _used(place, now, reclaimable)


def _used(place: Path, now: str, reclaimable: str) -> int:
    used = 0
    with contextlib.suppress(OSError, ValueError):
        used = int((place / now).read_text())
        facts = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
        used -= int(facts.get(reclaimable, 0))
    return used


_LINKS, _ROUTES = Path("/sys/class/net"), Path("/proc/net/route")
_SYS = Path("/proc/sys")
_TUNED = (
    "vm.dirty_ratio",
    "vm.dirty_background_ratio",
    "vm.dirty_bytes",
    "vm.dirty_background_bytes",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_congestion_control",
    "sunrpc.tcp_slot_table_entries",
    "sunrpc.tcp_max_slot_table_entries",
)
# The third of three numbers is the maximum buffer of a connection.
_LARGEST = ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")
_UP = "up"
_NFS = ("nfs", "nfs4")
# Directories of a container itself; an overlay has many of them.
_DIRECTORIES = ("lowerdir", "upperdir", "workdir")
_FIELDS_OF_A_ROUTE = 8

_ROOT = Path("/")
_KIB_OF_A_MIB = 1024
_LUSTRE = "lustre"
# File systems whose module has another name. A client in user space (FUSE) reports no version to the kernel.
_MODULES = {"nfs4": "nfs", "wekafs": "wekafsio", "gpfs": "mmfslinux", "smb3": "cifs", "fuse": "", "fuseblk": ""}
# For a client whose version differs from its module's version.
_VERSION_FILES = {_LUSTRE: ("sys/fs/lustre/version", "proc/fs/lustre/version")}
_OUT_OF_TREE = "O"


def host_state(root: Path = _SYS, links: Path = _LINKS) -> dict[str, str]:
    """Return the release of the kernel, the tuned values that affect storage, and the active network links.

    Each link has a name, a rate in Mb/s and an MTU.
    """
    found = {"kernel": platform.release()}
    found |= {name: text for name in _TUNED if (text := _read(root / name.replace(".", "/")))}
    for name in _LARGEST:
        if words := _read(root / name.replace(".", "/")).split():
            found[f"{name}_max"] = words[-1]
    shown = []
    with contextlib.suppress(OSError):
        for link in sorted(links.iterdir()):
            if link.name != "lo" and _read(link / "operstate") == _UP:
                facts = link_state(link.name, links)
                rate = f" {facts['nic_mbit']} Mb/s" if "nic_mbit" in facts else ""
                shown.append(f"{link.name}{rate} MTU {facts.get('mtu', '?')}")
    return found | ({"links": ", ".join(shown)} if shown else {})


def link_state(name: str, links: Path = _LINKS) -> dict[str, str]:
    """Return the MTU of a network link, and its rate in Mb/s. Many virtual links report no rate."""
    found = {"nic": name}
    if mtu := _read(links / name / "mtu"):
        found["mtu"] = mtu
    rate = _read(links / name / "speed")
    if rate.isdigit() and int(rate) > 0:
        found["nic_mbit"] = rate
    return found


def mount_state(kind: str, options: str, links: Path = _LINKS, routes: Path = _ROUTES) -> dict[str, str]:
    """Return the file system of a mount, its options by name, and the network link to its server.

    ``kind`` and ``options`` are as in the kernel's table of mounts. An option without a value has the value ``yes``.
    """
    found = {"file_system": kind}
    for option in filter(None, options.split(",")):
        name, _, value = option.partition("=")
        if name not in _DIRECTORIES:
            found[name] = value or "yes"
    if kind in _NFS:
        # The kernel lists the number of connections only if the mount sets it; otherwise it is one.
        found.setdefault("nconnect", "1")
    if link := _link_to(found.get("addr", ""), routes):
        found |= link_state(link, links)
    return found


def readahead_state(kind: str, device: str, root: Path = _ROOT) -> dict[str, str]:
    """Return the kernel's readahead on a device in KiB. ``device`` is given as ``major:minor``.

    Lustre has a separate value for each mount. If there are several Lustre mounts, the value is unknown and omitted.
    """
    if kind == _LUSTRE:
        own = {*root.glob("sys/fs/lustre/llite/*/max_read_ahead_mb")}
        own = own or {*root.glob("proc/fs/lustre/llite/*/max_read_ahead_mb")}
        mib = _read(own.pop()).partition(".")[0] if len(own) == 1 else ""
        return {"readahead_kib": str(int(mib) * _KIB_OF_A_MIB)} if mib.isdecimal() else {}
    block = root / "sys/dev/block" / device
    # For a partition, the disk has the value.
    for file in (root / "sys/class/bdi" / device / "read_ahead_kb", block / "queue/read_ahead_kb",
                 block.resolve().parent / "queue/read_ahead_kb") if device else ():  # fmt: skip
        if (text := _read(file)).isdecimal():
            return {"readahead_kib": text}
    return {}


def version_state(kind: str, root: Path = _ROOT) -> dict[str, str]:
    """Return the kernel module of a file system's client, and the version of the module.

    ``kind`` is the type of the file system. A module that is part of the kernel has the version of the kernel.
    """
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
    """Return the number of NUMA nodes, the nodes of ``cores``, and the node of the network link ``nic``.

    ``cores_near_nic`` states whether the cores are on the node of the link: ``all``, ``some`` or ``none``. ``nic`` is
    empty if the link to the storage is unknown.
    """
    nodes = numa_nodes(root)
    if not nodes:
        return {}
    own = sorted(node for node, of in nodes.items() if of & set(cores))
    found = {"numa_nodes": str(len(nodes))}
    if own:
        found["cores_numa"] = ",".join(map(str, own))
    # A virtual link has no node, and a host without NUMA reports -1.
    node = _read(root / "sys/class/net" / nic / "device/numa_node") if nic else ""
    if node.isdecimal():
        found["nic_numa"] = node
        near = set(cores) & nodes.get(int(node), frozenset())
        found["cores_near_nic"] = "all" if near == set(cores) else "some" if near else "none"
    return found


def numa_nodes(root: Path = _ROOT) -> dict[int, frozenset[int]]:
    """Return {number of a NUMA node: cores of this node}; empty if the kernel reports no nodes."""
    return {
        int(directory.name.removeprefix("node")): frozenset(_numbers(_read(directory / "cpulist")))
        for directory in root.glob("sys/devices/system/node/node[0-9]*")
        if directory.name.removeprefix("node").isdecimal()
    }


def cores_of_this_process() -> set[int]:
    """Return the numbers of the cores on which this process may run."""
    return os.sched_getaffinity(0)


def _link_to(address: str, routes: Path) -> str:
    """Return the network link to an IPv4 address, by the longest matching route; empty if unknown."""
    try:
        wanted = struct.unpack("<I", socket.inet_aton(address))[0] if address else None
    except OSError:
        wanted = None
    best, name = -1, ""
    for line in _read(routes).splitlines()[1:] if wanted is not None else ():
        fields = line.split()
        if len(fields) < _FIELDS_OF_A_ROUTE:
            continue
        with contextlib.suppress(ValueError):
            destination, mask = int(fields[1], 16), int(fields[7], 16)
            if wanted is not None and wanted & mask == destination and mask.bit_count() > best:
                best, name = mask.bit_count(), fields[0]
    return name


def _numbers(text: str) -> Iterator[int]:
    """Yield the numbers of a list such as ``0-3,8``; no numbers if the text is not a list."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        with contextlib.suppress(ValueError):
            yield from range(int(first), int(last or first) + 1)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except (OSError, ValueError):
        return ""


def run_queue_waits(tasks: Path = Path("/proc/self/task")) -> dict[str, int] | None:
    """Return {thread id: nanoseconds in which the thread was ready to run but had no CPU} for this process.

    The kernel reports this time as the second value of ``schedstat`` (kernel documentation, sched-stats). Return None
    if the kernel reports no such time.
    """
    found = {}
    try:
        for task in tasks.iterdir():
            try:
                found[task.name] = int((task / "schedstat").read_text("ascii").split()[1])
            except (OSError, ValueError, IndexError):
                continue
    except OSError:
        return None
    return found or None


_NANOSECONDS = 1e-9


class ProcessorWait:
    """Measures how long threads of this process wait for a CPU between ``begin`` and ``end``.

    Time in a storage call, and time in which the process was stopped, are not counted. Threads wait concurrently, so
    only the longest wait of one thread counts. Threads that end before ``end`` are not counted.
    """

    def __init__(self) -> None:
        self._before: dict[str, int] | None = None
        self._waits: dict[str, int] = {}
        self._is_known = True

    def begin(self) -> None:
        """Start a period: record how long each thread has waited so far."""
        self._before = run_queue_waits()

    def end(self) -> None:
        """End a period: add the time that each thread has waited since ``begin``."""
        after = run_queue_waits()
        if self._before is None or after is None:
            self._is_known = False
            return
        for thread, waited in after.items():
            self._waits[thread] = self._waits.get(thread, 0) + waited - self._before.get(thread, 0)

    def seconds(self, *, beyond: float) -> float | None:
        """Return the longest wait of one thread in seconds, over all periods; None if waits are unknown.

        ``beyond`` is the part of the periods, in seconds, that is outside of the timed operation. It is subtracted from
        the longest wait, because the thread may have waited for a CPU during this whole part.
        """
        if not self._is_known:
            return None
        return max(0.0, max(self._waits.values(), default=0) * _NANOSECONDS - max(0.0, beyond))
