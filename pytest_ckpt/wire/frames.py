"""Sealed messages on a stream: how long each is, then its bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_ckpt.wire.sealing import TAG_BYTES, Forged

if TYPE_CHECKING:
    import socket

    from pytest_ckpt.wire.sealing import Seal

CONTROLLER = "PYTEST_CKPT_CONTROLLER"
"""The variable that tells a process where to call: addresses and ports of who had it started."""
SECRET = "PYTEST_CKPT_SECRET"
"""The variable that holds the secret of a launch: what proves that a caller is of it."""
HANDED_ON = (CONTROLLER, SECRET)
"""What a launcher must hand on to what it starts."""

GREETING = b"ckpt-1\r\n"
"""What a caller says first, before its half of the nonces."""
MAXIMUM_BYTES = 1 << 30
"""No message is longer."""
_LENGTH_BYTES = 4


def framed(seal: Seal, message: Any) -> bytes:
    """Return a message as it is sent."""
    sealed = seal.seal(json.dumps(message, separators=(",", ":")).encode())
    if len(sealed) > MAXIMUM_BYTES:
        raise ValueError(f"a message of {len(sealed)} bytes is longer than {MAXIMUM_BYTES}")
    return len(sealed).to_bytes(_LENGTH_BYTES, "big") + sealed


class Unframed:
    """Takes what arrives, in whatever pieces, and gives the messages that are whole."""

    def __init__(self, seal: Seal, maximum_bytes: int = MAXIMUM_BYTES) -> None:
        self._seal = seal
        self._unread = bytearray()
        self.maximum_bytes = maximum_bytes

    def take(self, data: bytes) -> None:
        """Take in what has arrived."""
        self._unread += data

    def is_whole(self) -> bool:
        """Return whether there is a message. Raises Forged."""
        if len(self._unread) < _LENGTH_BYTES:
            return False
        if not TAG_BYTES <= self._length <= self.maximum_bytes:
            raise Forged
        return len(self._unread) >= _LENGTH_BYTES + self._length

    def message(self) -> Any:
        """Return the message that is whole. Raises Forged."""
        end = _LENGTH_BYTES + self._length
        sealed = bytes(self._unread[_LENGTH_BYTES:end])
        del self._unread[:end]
        return json.loads(self._seal.open(sealed))

    @property
    def _length(self) -> int:
        return int.from_bytes(self._unread[:_LENGTH_BYTES], "big")


def exactly(link: socket.socket, count: int) -> bytes:
    """Return so many bytes of what comes next. Raises EOFError where it ends before."""
    data = b""
    while len(data) < count:
        if not (more := link.recv(count - len(data))):
            raise EOFError
        data += more
    return data
