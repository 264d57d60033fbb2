"""What the kernel says of this host as a client of storage: links, tuned values, and the mount of a folder.

Every fact is a text under a name; what cannot be read is left out, since a gate must not take a guess for a fact.
"""

from __future__ import annotations

import contextlib
import platform
import socket
import struct
from pathlib import Path

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
# The third of three numbers is the largest buffer that a connection may get.
_LARGEST = ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")
_UP = "up"
_NFS = ("nfs", "nfs4")
# Folders of a container's own, of which an overlay has many.
_FOLDERS = ("lowerdir", "upperdir", "workdir")
_FIELDS_OF_A_ROUTE = 8


def host_state(root: Path = _SYS, links: Path = _LINKS) -> dict[str, str]:
    """Return tuned values that matter to storage, and the links that are up: name, rate in Mb/s, MTU."""
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
    """Return the MTU of a link, and its rate in Mb/s; many virtual ones have none, and say so by -1."""
    found = {"nic": name}
    if mtu := _read(links / name / "mtu"):
        found["mtu"] = mtu
    rate = _read(links / name / "speed")
    if rate.isdigit() and int(rate) > 0:
        found["nic_mbit"] = rate
    return found


def mount_state(kind: str, options: str, links: Path = _LINKS, routes: Path = _ROUTES) -> dict[str, str]:
    """Return the options of a mount by name (``yes`` for one without a value), and the link to its server."""
    found = {"file_system": kind}
    for option in filter(None, options.split(",")):
        name, _, value = option.partition("=")
        if name not in _FOLDERS:
            found[name] = value or "yes"
    if kind in _NFS:
        # The kernel names the number of connections where it was asked for; it is one otherwise.
        found.setdefault("nconnect", "1")
    if link := _link_to(found.get("addr", ""), routes):
        found |= link_state(link, links)
    return found


def _link_to(address: str, routes: Path) -> str:
    """Return the link over which an address (IPv4) is reached, by the longest match; empty where that is not known."""
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


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
