"""Authenticated messages on a stream. For each message, the stream contains its length, the message and its tag.

The tag is an HMAC-SHA-256 of the sequence number and the message. The tag detects changed, repeated, omitted and added
messages. Each direction of a connection has a separate key. Messages are not encrypted. Messages contain no credentials
of the storage, but the message with a job contains the token of the network streams (`wire.streams`). This module
imports only the standard library, because second clients use it.
"""

from __future__ import annotations

import hmac
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

TAG_BYTES = 32
NONCE_BYTES = 16
_FROM_CALLER, _TO_CALLER = b"from the caller", b"to the caller"

CONTROLLER = "PYTEST_CKPT_CONTROLLER"
"""The variable with the listener's addresses and ports, to which a started process connects."""
SECRET = "PYTEST_CKPT_SECRET"
"""The variable with the secret of a launch, which proves that a process belongs to it."""
HANDED_ON = (CONTROLLER, SECRET)
"""The variables that a launcher must forward to the processes that it starts."""

GREETING = b"ckpt-1\r\n"
"""The first bytes that a connecting process sends, before its half of the nonces."""
MAXIMUM_BYTES = 1 << 30
"""The maximum length of a message."""
_LENGTH_BYTES = 4


class ForgedMessage(Exception):  # noqa: N818 - the name describes the message
    """A message was not authenticated with the secret, or was changed, repeated or lost in transit."""


class Seal:
    """The message authentication for one direction of a connection.

    The sender adds a tag to each message (``seal``). The receiver checks the tags in the same order (``open``).
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0

    def seal(self, message: bytes) -> bytes:
        """Return a message followed by its tag."""
        return message + self._next_tag(message)

    def open(self, sealed: bytes) -> bytes:
        """Return a message without its tag. Raises ForgedMessage if the tag does not match."""
        message, tag = sealed[:-TAG_BYTES], sealed[-TAG_BYTES:]
        if not hmac.compare_digest(tag, self._next_tag(message)):
            raise ForgedMessage
        return message

    def _next_tag(self, message: bytes) -> bytes:
        number = self._count.to_bytes(8, "big")
        self._count += 1
        return hmac.digest(self._key, number + message, "sha256")


def seals(secret: bytes, nonces: bytes) -> tuple[Seal, Seal]:
    """Return the two seals of a connection: (for messages from the connecting process, for messages to it).

    ``nonces`` are random bytes; each side has chosen half of them.
    """
    from_caller, to_caller = (Seal(hmac.digest(secret, way + nonces, "sha256")) for way in (_FROM_CALLER, _TO_CALLER))
    return from_caller, to_caller


def framed(seal: Seal, message: Any) -> bytes:
    """Return the bytes to send for a message: the length, the message as JSON, and its tag."""
    sealed = seal.seal(json.dumps(message, separators=(",", ":")).encode())
    if len(sealed) > MAXIMUM_BYTES:
        raise ValueError(f"a message of {len(sealed)} bytes is longer than {MAXIMUM_BYTES}")
    return len(sealed).to_bytes(_LENGTH_BYTES, "big") + sealed


class FrameReader:
    """Collects received bytes and returns complete messages. Bytes may arrive in pieces of any size."""

    def __init__(self, seal: Seal, maximum_bytes: int = MAXIMUM_BYTES) -> None:
        self._seal = seal
        self._unread = bytearray()
        self.maximum_bytes = maximum_bytes

    def add(self, data: bytes) -> None:
        """Add received bytes."""
        self._unread += data

    def is_complete(self) -> bool:
        """Return whether a complete message has arrived. Raises ForgedMessage for an invalid length."""
        if len(self._unread) < _LENGTH_BYTES:
            return False
        if not TAG_BYTES <= self._length <= self.maximum_bytes:
            raise ForgedMessage
        return len(self._unread) >= _LENGTH_BYTES + self._length

    def message(self) -> Any:
        """Remove and return the complete message. Raises ForgedMessage if its tag does not match."""
        end = _LENGTH_BYTES + self._length
        sealed = bytes(self._unread[_LENGTH_BYTES:end])
        del self._unread[:end]
        return json.loads(self._seal.open(sealed))

    @property
    def _length(self) -> int:
        return int.from_bytes(self._unread[:_LENGTH_BYTES], "big")


def exactly(link: socket.socket, count: int) -> bytes:
    """Read exactly ``count`` bytes. Raises EOFError if the stream ends earlier."""
    data = b""
    while len(data) < count:
        if not (more := link.recv(count - len(data))):
            raise EOFError
        data += more
    return data
