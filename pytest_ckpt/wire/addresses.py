"""The addresses at which other hosts reach this host, and the port on which this host listens."""

from __future__ import annotations

import array
import contextlib
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

from pytest_ckpt.support.errors import UsageError

_SIOCGIFCONF = 0x8912
# struct ifreq: the name of an interface, then its address as struct sockaddr_in.
_ENTRY_BYTES, _ADDRESS_AT = 40, 20
_MAXIMUM_INTERFACES = 256
_GLOBAL_SCOPE = "00"

Address = tuple[str, int]


def own_addresses() -> list[str]:
    """Return the addresses at which other hosts can reach this host, IPv4 first.

    Loopback and link-local addresses are omitted, because other hosts cannot reach this host by them.
    """
    texts = [*_of_version_4(), *_of_version_6()]
    return [text for text in dict.fromkeys(texts) if _means_this_host(ipaddress.ip_address(text))]


def to_text(addresses: list[Address]) -> str:
    """Return addresses as a text without spaces, for an environment variable."""
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)


def from_text(text: str) -> list[Address]:
    """Return the addresses in a text that `to_text` returned. Raises ValueError for another text."""
    pairs = [word.rpartition(":") for word in text.split(",")]
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]


def _means_this_host(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return not (address.is_loopback or address.is_link_local or address.is_unspecified)


def _of_version_4() -> list[str]:
    buffer = array.array("B", bytes(_ENTRY_BYTES * _MAXIMUM_INTERFACES))
    start, length = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        answer = fcntl.ioctl(asking, _SIOCGIFCONF, struct.pack("iL", length, start))
    (used,) = struct.unpack_from("i", answer)
    entries = buffer.tobytes()[:used]
    return [socket.inet_ntoa(entries[at + _ADDRESS_AT : at + _ADDRESS_AT + 4]) for at in range(0, used, _ENTRY_BYTES)]


def _of_version_6() -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, _, _, scope, *_ = line.split()
            if scope == _GLOBAL_SCOPE:
                found.append(str(ipaddress.IPv6Address(bytes.fromhex(digits))))
    return found


def bound_within(ports: tuple[int, int] | None, backlog: int) -> socket.socket:
    """Return a socket that listens on the first free port of the range ``ports``. None: the kernel chooses the port.

    ``backlog`` is the length of the queue of new connections. Several launches may use the same range. Raises
    UsageError if no port of the range is free.
    """
    if ports is None:
        return _bound(0, backlog)
    first, last = ports
    for port in range(first, last + 1):
        with contextlib.suppress(OSError):
            return _bound(port, backlog)
    raise UsageError(
        f"--ckpt-ports {first}-{last}: no port of this range can be bound on this host.",
        "Give a wider range: each launch, and each check with a second client, takes one while it lasts, and each host "
        "one more while the hosts measure their network.",
    )


def _bound(port: int, backlog: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=backlog)
