"""The listening side: accepts messages only from processes that know the secret of the launch."""

from __future__ import annotations

import errno
import resource
import secrets
import selectors
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from pytest_ckpt.wire.addresses import bound_within, own_addresses, to_text
from pytest_ckpt.wire.frames import (
    CONTROLLER,
    GREETING,
    MAXIMUM_BYTES,
    NONCE_BYTES,
    SECRET,
    ForgedMessage,
    FrameReader,
    framed,
    seals,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_SECRET_BYTES = 32
_READ_BYTES = 1 << 18
_BACKLOG = 1024
# Unauthenticated peers are limited in number, memory and time.
_UNAUTHENTICATED_BYTES = 1 << 12
_UNAUTHENTICATED_SECONDS = 10.0
_MAXIMUM_UNAUTHENTICATED = 128
# Open descriptors of this process in addition to connections, including unauthenticated peers.
_OTHER_FILES = 512
# If this process may not open more descriptors, a new peer waits for this time in the kernel's queue.
_FULL_SECONDS = 1.0
# accept fails with these errors in that case; other errors concern a single connection, which has ended.
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_LOOPBACK = "127.0.0.1"

# The offset of tcpi_last_ack_recv in struct tcp_info of <linux/tcp.h>.
_LAST_ACK_RECV = 56

ENDED = object()
"""The last message of a connection: the other side has closed it or has ended."""


class Connection:
    """A connection from one process. `Listener.take_messages` returns its messages."""

    def __init__(self, link: socket.socket, secret: bytes, flushed: Callable[[Connection], None]) -> None:
        self.link = link
        self._flushed = flushed
        self.is_known = False
        self.since = time.monotonic()
        # When the other side closed the connection, by this host's monotonic clock, even if it was noticed later.
        self.ended = self.since
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._secret = secret
        self._greeting = b""
        self._unframed: FrameReader | None = None
        self._unsent = bytearray()

    @property
    def has_unsent(self) -> bool:
        """Whether some bytes of messages have not been sent yet."""
        return bool(self._unsent)

    def send(self, message: Any) -> None:
        """Send a message. Bytes that the network does not accept immediately are sent later."""
        self._unsent += framed(self._seal, message)
        self.flush()

    def flush(self) -> None:
        """Send the unsent bytes that the network accepts now.

        If the connection is closed or fails, all unsent bytes are discarded.
        """
        if self.link.fileno() < 0:
            self._unsent.clear()
            return
        try:
            while self._unsent:
                del self._unsent[: self.link.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            # The other host may be unreachable too (ETIMEDOUT, EHOSTUNREACH): `Listener.take_messages` reports the end,
            # as for other connections.
            self._unsent.clear()
        self._flushed(self)

    def messages(self, data: bytes) -> list[Any]:
        """Add received bytes; return the messages that are now complete. Raises ForgedMessage."""
        if self._unframed is None:
            self._greeting += data
            if self._greeting[: len(GREETING)] != GREETING[: len(self._greeting)]:
                raise ForgedMessage
            greeting, theirs = self._greeting[: len(GREETING)], self._greeting[len(GREETING) :]
            if len(theirs) < NONCE_BYTES:
                return []
            from_caller, self._seal = seals(self._secret, theirs[:NONCE_BYTES] + self._nonce)
            self._unframed, data = FrameReader(from_caller, _UNAUTHENTICATED_BYTES), theirs[NONCE_BYTES:]
            self._unsent += greeting + self._nonce
            self.flush()
        self._unframed.add(data)
        messages = []
        while self._unframed.is_complete():
            messages.append(self._unframed.message())
            if not self.is_known:
                self.is_known, self._unframed.maximum_bytes = True, MAXIMUM_BYTES
                self.send("welcome")
        # The first message of a process is empty and proves that it knows the secret.
        return [message for message in messages if message is not None]


class Listener:
    """Accepts connections while it is open. The descriptor `fileno` is readable when `take_messages` has work to do.

    If ``only_this_host`` is true, the listener uses the loopback interface only. Otherwise it listens on the first free
    port of ``ports``, or, if ``ports`` is None, on a port that the kernel chooses. ``callers`` is the expected number
    of connections. Raises UsageError if no port is free.

    A peer that does not prove within 10 s that it knows the secret is disconnected. If there are too many connections
    or no free descriptors, the oldest unauthenticated peer is disconnected.
    """

    def __init__(self, *, only_this_host: bool = False, callers: int = 1, ports: tuple[int, int] | None = None) -> None:
        _allow_open_files(callers + _OTHER_FILES)
        self._most = callers + _MAXIMUM_UNAUTHENTICATED
        self._secret = secrets.token_bytes(_SECRET_BYTES)
        self._socket = _bound_here() if only_this_host else bound_within(ports, _BACKLOG)
        self._socket.setblocking(False)
        self._port: int = self._socket.getsockname()[1]
        hosts = [] if only_this_host else own_addresses()
        self._addresses = [(host, self._port) for host in hosts or [_LOOPBACK]]
        self._selector = selectors.EpollSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        # No connection is accepted until this monotonic time; None: connections are accepted.
        self._full_until: float | None = None
        # In the order of their arrival. Only a few unauthenticated peers exist at a time.
        self._callers: dict[Connection, None] = {}
        self._unauthenticated: dict[Connection, None] = {}

    def __enter__(self) -> Listener:
        """Return this listener. It listens since its creation."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections and stop listening."""
        self.close()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that a process needs to connect: addresses and secret."""
        return {CONTROLLER: to_text(self._addresses), SECRET: self._secret.hex()}

    def fileno(self) -> int:
        """Return the descriptor that a selector can wait on."""
        return self._selector.fileno()

    def take_messages(self) -> list[tuple[Connection, Any]]:
        """Return (connection, message) for all arrived messages of authenticated connections, without waiting.

        `ENDED` is the last message of each connection.
        """
        messages: list[tuple[Connection, Any]] = []
        if self._full_until is not None and time.monotonic() >= self._full_until:
            self._full_until = None
            self._selector.register(self._socket, selectors.EVENT_READ)
        for key, events in self._selector.select(0):
            caller = key.data
            if caller is None:
                self._accept()
                continue
            if caller not in self._callers:
                # It was disconnected in favour of a newer peer.
                continue
            if events & selectors.EVENT_WRITE:
                caller.flush()
            if events & selectors.EVENT_READ:
                messages += self._read(caller)
        now = time.monotonic()
        self._turn_away([c for c in self._unauthenticated if now - c.since > _UNAUTHENTICATED_SECONDS])
        return messages

    def close(self) -> None:
        """Close all connections and stop listening."""
        self._turn_away(self._callers)
        self._selector.close()
        self._socket.close()

    def _accept(self) -> None:
        try:
            link, _ = self._socket.accept()
        except OSError as error:
            if error.errno in _FULL and not self._turn_away_oldest():
                # The socket would be readable again immediately, and the process would have no time for other work.
                self._selector.unregister(self._socket)
                self._full_until = time.monotonic() + _FULL_SECONDS
            return
        try:
            link.setblocking(False)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            caller = Connection(link, self._secret, self._watch)
            self._selector.register(link, selectors.EVENT_READ, caller)
        except OSError:
            # The peer has already closed the connection.
            link.close()
            return
        self._callers[caller] = self._unauthenticated[caller] = None
        if len(self._callers) > self._most:
            self._turn_away_oldest()

    def _turn_away_oldest(self) -> bool:
        """Disconnect the oldest unauthenticated peer; return whether there was one."""
        oldest = next(iter(self._unauthenticated), None)
        self._turn_away([] if oldest is None else [oldest])
        return oldest is not None

    def _read(self, caller: Connection) -> list[tuple[Connection, Any]]:
        try:
            data = caller.link.recv(_READ_BYTES)
            if data:
                messages = caller.messages(data)
                if caller.is_known:
                    self._unauthenticated.pop(caller, None)
                return [(caller, message) for message in messages]
            caller.ended = time.monotonic() - _seconds_since_last_segment(caller.link)
        except BlockingIOError:
            return []
        except (OSError, ForgedMessage, ValueError):
            caller.ended = time.monotonic()
        self._turn_away([caller])
        return [(caller, ENDED)] if caller.is_known else []

    def _watch(self, caller: Connection) -> None:
        """Let the selector report when a connection is readable; if it has unsent bytes, also when it is writable."""
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if caller.has_unsent else 0)
        if self._selector.get_key(caller.link).events != wanted:
            self._selector.modify(caller.link, wanted, caller)

    def _turn_away(self, callers: Iterable[Connection]) -> None:
        for caller in tuple(callers):
            self._selector.unregister(caller.link)
            del self._callers[caller]
            self._unauthenticated.pop(caller, None)
            caller.link.close()


def _allow_open_files(count: int) -> None:
    """Raise this process's limit of open files to ``count``, or to the permitted maximum."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def _bound_here() -> socket.socket:
    return socket.create_server((_LOOPBACK, 0), backlog=_BACKLOG)


def _seconds_since_last_segment(link: socket.socket) -> float:
    """Return the seconds since the last acknowledgment from the peer; on a closed connection, since the peer's FIN.

    If several connections are closed when they are read, this time shows which one was closed first. The resolution is
    a kernel tick, 1 to 10 ms. Raises OSError.
    """
    (milliseconds,) = struct.unpack_from("=I", link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 60), _LAST_ACK_RECV)
    return float(milliseconds) / 1000
