"""Messages that nobody changes, repeats, leaves out or adds on the way: authenticated and numbered, not hidden.

It needs the standard library alone, as second clients do. An HMAC of SHA-256 over number and message authenticates;
keys are of one connection and one direction. Whoever sees the network can read a message: it holds no credentials.
"""

from __future__ import annotations

import hmac

TAG_BYTES = 32
NONCE_BYTES = 16
_FROM_CALLER, _TO_CALLER = b"from the caller", b"to the caller"


class Forged(Exception):  # noqa: N818 - said of the message
    """A message that was not sealed by who knows the secret, or that was changed, repeated or left out on the way."""


class Seal:
    """One direction of a connection: one side seals with it, the other opens, in the same order."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0

    def seal(self, message: bytes) -> bytes:
        """Return a message as it may cross the network."""
        return message + self._next_tag(message)

    def open(self, sealed: bytes) -> bytes:
        """Return the message. Raises Forged."""
        message, tag = sealed[:-TAG_BYTES], sealed[-TAG_BYTES:]
        if not hmac.compare_digest(tag, self._next_tag(message)):
            raise Forged
        return message

    def _next_tag(self, message: bytes) -> bytes:
        number = self._count.to_bytes(8, "big")
        self._count += 1
        return hmac.digest(self._key, number + message, "sha256")


def seals(secret: bytes, nonces: bytes) -> tuple[Seal, Seal]:
    """Return (from the caller, to the caller) of a connection, whose two sides have each chosen half of ``nonces``."""
    from_caller, to_caller = (Seal(hmac.digest(secret, way + nonces, "sha256")) for way in (_FROM_CALLER, _TO_CALLER))
    return from_caller, to_caller
