"""The content of objects that checks make: every name and version has bytes of its own, so that any others are told."""

from __future__ import annotations

from pytest_ckpt.conformance.content import random_bytes

SIZE_OF_VERSION = 1000


def content(seed: int, name: str, version: int, size: int = 0) -> bytes:
    """Return the bytes of a version; of no size, those of ``sized``."""
    return random_bytes(size or sized(version), seed, name, version)


def sized(version: int) -> int:
    """Return the bytes that a version has, so that a size tells versions apart."""
    return SIZE_OF_VERSION + version


def described(data: bytes, seed: int, name: str, versions: range, size: int = 0) -> str:
    """Return which version these bytes are, in words."""
    for version in versions:
        if data == content(seed, name, version, size):
            return f"version {version}"
    return f"{len(data):,} bytes that are no version of it"
