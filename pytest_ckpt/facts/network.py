"""How fast the network of a host is: measured between the hosts of a run before the run, or stated by the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

STREAM_SECONDS = 2.0
"""How long hosts stream to each other, for each of two directions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Streams:
    """What hosts need to stream to each other: a secret in hex, how long, and the ports that may be listened at."""

    token: str
    seconds: float = STREAM_SECONDS
    ports: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HostNetwork:
    """What one host's network sends and receives, in bytes a second; None: not known, for the reason ``why_not``.

    ``basis``: ``streams`` were TCP between two hosts while all others did the same, ``over`` the named addresses;
    ``stated`` is what the user said.
    """

    basis: Literal["streams", "stated"]
    sends_bytes_per_second: float | None = None
    receives_bytes_per_second: float | None = None
    over: str = ""
    why_not: str = ""
