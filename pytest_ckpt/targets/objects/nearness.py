"""Whether an endpoint is on this host: such a store is none that a cluster has, whatever it is fast at."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import urllib.parse
from typing import Literal

Nearness = Literal["loopback", "this host", "elsewhere"]


def nearness_of(endpoint: str, *, may_ask: bool) -> Nearness:
    """Return where an endpoint is; a name that is not known is elsewhere, and without ``may_ask`` none is looked up."""
    host = urllib.parse.urlsplit(endpoint).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return "loopback"
    flags = 0 if may_ask else socket.AI_NUMERICHOST
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, flags=flags)}
    except (OSError, UnicodeError):
        return "elsewhere"
    if found and all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in found):
        return "loopback"
    return "this host" if any(map(_is_own, found)) else "elsewhere"


def _is_own(address: str) -> bool:
    """Return whether an address is one of this host's: no other can be bound to."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as trial:
        trial.bind((address, 0))
        return True
    return False
