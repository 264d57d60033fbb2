"""Where a host listens on the network: at one of the ports that the user allows, or where the kernel says."""

from __future__ import annotations

import contextlib
import socket

from pytest_ckpt.support.errors import UsageError


def bound_within(ports: tuple[int, int] | None, backlog: int) -> socket.socket:
    """Return a socket that listens at a port of a range, which several launches may share. Raises UsageError."""
    if ports is None:
        return _bound(0, backlog)
    first, last = ports
    for port in range(first, last + 1):
        with contextlib.suppress(OSError):
            return _bound(port, backlog)
    raise UsageError(
        f"--ckpt-ports {first}-{last}: none of these ports can be had on this host.",
        "Give a wider range: each launch, and each check with a second client, takes one while it lasts, and each host "
        "one more while the hosts measure their network.",
    )


def _bound(port: int, backlog: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=backlog)
