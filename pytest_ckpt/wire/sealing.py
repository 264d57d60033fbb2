"""Messages that nobody reads, changes, repeats or adds on the way: encrypted, then authenticated, and numbered.

It needs the standard library alone, as second clients do. A key stream of SHAKE-256 over a key and the message's number
encrypts; an HMAC of SHA-256 over number and cipher text authenticates. Keys are of one connection and one direction.
"""

from __future__ import annotations

import hashlib
import hmac

TAG_BYTES = 32
NONCE_BYTES = 16
_FROM_CALLER, _TO_CALLER = b"from the caller", b"to the caller"


class Forged(Exception):  # noqa: N818 - said of the message
    """A message that was not sealed by who knows the secret, or that was changed, repeated or left out on the way."""


class Seal:
    """One direction of a connection: one side seals with it, the other opens, in the same order."""

    def __init__(self, key: bytes) -> None:
        self._encrypting = hmac.digest(key, b"encrypt", "sha256")
        self._authenticating = hmac.digest(key, b"authenticate", "sha256")
        self._count = 0

    def seal(self, message: bytes) -> bytes:
        """Return a message as it may cross the network."""
        number = self._number()
        hidden = self._masked(number, message)
        return hidden + self._tag(number, hidden)

    def open(self, sealed: bytes) -> bytes:
        """Return the message. Raises Forged."""
        number = self._number()
        hidden, tag = sealed[:-TAG_BYTES], sealed[-TAG_BYTES:]
        if not hmac.compare_digest(tag, self._tag(number, hidden)):
            raise Forged
        return self._masked(number, hidden)

    def _number(self) -> bytes:
        number = self._count.to_bytes(8, "big")
        self._count += 1
        return number

    def _masked(self, number: bytes, data: bytes) -> bytes:
        mask = hashlib.shake_256(self._encrypting + number).digest(len(data))
        return (int.from_bytes(data, "big") ^ int.from_bytes(mask, "big")).to_bytes(len(data), "big")

    def _tag(self, number: bytes, hidden: bytes) -> bytes:
        return hmac.digest(self._authenticating, number + hidden, "sha256")


def seals(secret: bytes, nonces: bytes) -> tuple[Seal, Seal]:
    """Return (from the caller, to the caller) of a connection, whose two sides have each chosen half of ``nonces``."""
    from_caller, to_caller = (Seal(hmac.digest(secret, way + nonces, "sha256")) for way in (_FROM_CALLER, _TO_CALLER))
    return from_caller, to_caller
