"""TCP streams between two hosts, to measure their network throughput.

Both hosts prove that they know a secret, the token.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from pytest_ckpt.wire.addresses import bound_within, own_addresses
from pytest_ckpt.wire.frames import exactly

# A single stream does not fill a fast network.
STREAMS = 4
_CONNECT_SECONDS = 3.0
_PROOF_SECONDS = 1.0
# Bytes that are in transit when a stream ends count only if they arrive within this time.
_LATE_SECONDS = 2.0
_CHUNK = bytes(1 << 20)
_NONCE_BYTES, _PROOF_BYTES = 16, 32
_CALLER, _CALLED = b"who calls", b"who is called"


class StreamListener:
    """Listens for the streams of another host. Raises UsageError if no port is free."""

    def __init__(self, token: bytes, ports: tuple[int, int] | None) -> None:
        self._token = token
        self._socket = bound_within(ports, backlog=STREAMS)
        self.port: int = self._socket.getsockname()[1]
        self.addresses = tuple(own_addresses())

    def accepted(self, seconds: float) -> list[socket.socket]:
        """Wait up to ``seconds`` for all streams from peers that know the token. Return all streams, or an empty list.

        Peers that do not know the token are disconnected.
        """
        links: list[socket.socket] = []
        end = time.monotonic() + seconds
        while len(links) < STREAMS and (left := end - time.monotonic()) > 0:
            self._socket.settimeout(left)
            with contextlib.suppress(OSError):
                link, _ = self._socket.accept()
                if _is_known(link, self._token, left):
                    links.append(link)
                else:
                    link.close()
        return _all_or_close(links)

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def connected(token: bytes, addresses: Sequence[str], port: int) -> list[socket.socket]:
    """Open all streams to another host and return them; empty if no peer that knows the token answers.

    The addresses are tried in order.
    """
    end = time.monotonic() + _CONNECT_SECONDS
    for number, address in enumerate(addresses):
        links: list[socket.socket] = []
        # An address of another network may silently drop packets, so each address has its share of the time.
        share = (end - time.monotonic()) / (len(addresses) - number)
        with contextlib.ExitStack() as undo, contextlib.suppress(OSError, EOFError):
            for _ in range(STREAMS):
                links.append(undo.enter_context(socket.create_connection((address, port), timeout=max(share, 0.1))))
                if not _is_called(links[-1], token):
                    break
            else:
                undo.pop_all()
                return links
    return []


def sent(links: Sequence[socket.socket], seconds: float) -> None:
    """Send on all streams for ``seconds``, then close them for writing. A broken stream ends earlier."""

    def send(link: socket.socket) -> None:
        with contextlib.suppress(OSError):
            link.settimeout(seconds + _LATE_SECONDS)
            while time.monotonic() < end:
                link.sendall(_CHUNK)
        with contextlib.suppress(OSError):
            link.shutdown(socket.SHUT_WR)

    end = time.monotonic() + seconds
    _on_each(links, send)


def received(links: Sequence[socket.socket], seconds: float) -> float | None:
    """Receive on all streams until they end; return their total throughput in bytes per second.

    The first quarter of ``seconds`` is not measured, because a stream starts slowly. The result is None if no bytes
    arrive after the first quarter.
    """
    counts: list[int] = []
    began = time.monotonic()
    since, last = began + seconds / 4, began

    def receive(link: socket.socket) -> None:
        nonlocal last
        buffer, total = bytearray(len(_CHUNK)), 0
        with contextlib.suppress(OSError):
            link.settimeout(seconds + _LATE_SECONDS)
            while (count := link.recv_into(buffer)) and (now := time.monotonic()) < began + seconds + _LATE_SECONDS:
                if now > since:
                    total, last = total + count, max(last, now)
        counts.append(total)

    _on_each(links, receive)
    return sum(counts) / (last - since) if last > since else None


def send_and_receive(links: Sequence[socket.socket], seconds: float, *, sends_first: bool) -> float | None:
    """Send on all streams, and receive on all streams. Return the throughput of receiving in bytes per second.

    If ``sends_first`` is true, send before receiving; otherwise receive first. Exactly one of the two hosts must send
    first. The result is None if no bytes were measured.
    """
    if sends_first:
        sent(links, seconds)
        return received(links, seconds)
    rate = received(links, seconds)
    sent(links, seconds)
    return rate


@contextlib.contextmanager
def closing(*links: Sequence[socket.socket]) -> Iterator[None]:
    """Close the streams at the end of the ``with`` block."""
    try:
        yield
    finally:
        for of in links:
            for link in of:
                link.close()


def _on_each(links: Sequence[socket.socket], do: Callable[[socket.socket], None]) -> None:
    threads = [threading.Thread(target=do, args=(link,), daemon=True) for link in links]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _all_or_close(links: list[socket.socket]) -> list[socket.socket]:
    if len(links) == STREAMS:
        return links
    for link in links:
        link.close()
    return []


def _is_known(link: socket.socket, token: bytes, seconds: float) -> bool:
    """Exchange proofs with a peer that do not reveal the token; return whether the peer knows the token."""
    link.settimeout(min(seconds, _PROOF_SECONDS))
    nonce = secrets.token_bytes(_NONCE_BYTES)
    with contextlib.suppress(OSError, EOFError):
        link.sendall(nonce)
        answer = exactly(link, _NONCE_BYTES + _PROOF_BYTES)
        theirs, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
        if hmac.compare_digest(proof, hmac.digest(token, _CALLER + nonce + theirs, "sha256")):
            link.sendall(hmac.digest(token, _CALLED + nonce + theirs, "sha256"))
            return True
    return False


def _is_called(link: socket.socket, token: bytes) -> bool:
    nonce, ours = exactly(link, _NONCE_BYTES), secrets.token_bytes(_NONCE_BYTES)
    link.sendall(ours + hmac.digest(token, _CALLER + nonce + ours, "sha256"))
    return hmac.compare_digest(exactly(link, _PROOF_BYTES), hmac.digest(token, _CALLED + nonce + ours, "sha256"))
