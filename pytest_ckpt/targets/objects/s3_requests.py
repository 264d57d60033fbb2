"""Opens the way by which requests go to a store, by the scheme of its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pytest_ckpt.facts.requests import Tallies
from pytest_ckpt.facts.targets import Access
from pytest_ckpt.targets.objects.checksums import ALGORITHMS, MD5
from pytest_ckpt.targets.objects.dialect import DialectOfS3
from pytest_ckpt.targets.objects.keys import BucketPrefix
from pytest_ckpt.targets.objects.wire import Answer, Patience, Wire

_NOT_ASKED = "x-amz-checksum-sha1"


class S3Requests(Protocol):
    """Requests of S3 to a store that understands them, or that has them in other words.

    ``digests`` are the headers by which it can be told the checksum of a body; those of ``kept`` it returns with HEAD.
    """

    digests: tuple[str, ...]
    kept: tuple[str, ...]

    @property
    def region(self) -> str:
        """The region by which requests are signed, empty where there is none."""

    @property
    def endpoint(self) -> str:
        """The URL that requests go to now."""

    def ask(
        self,
        what: str,
        method: str,
        place: str,
        *,
        key: str = "",
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        body: memoryview | bytes = b"",
        into: memoryview | None = None,
        moved: Callable[[int], None] = lambda _count: None,
    ) -> Answer:
        """Return the answer to a request, as `Wire.ask`. Raises StoreError."""

    def tallies(self) -> Tallies:
        """Return what was counted so far."""

    def close(self) -> None:
        """Close all connections."""


class AskingS3(Wire):
    """Requests as they are."""

    digests = tuple(header for header in ALGORITHMS if header != _NOT_ASKED)
    kept = tuple(header for header in digests if header != MD5)


def open_wire(place: BucketPrefix, access: Access, patience: Patience) -> S3Requests:
    """Return how requests go to the bucket of a place. Raises StoreError where there are no credentials."""
    if place.scheme == "az":
        from pytest_ckpt.targets.objects.azure import AskingAzure  # noqa: PLC0415 - where it is asked for

        return AskingAzure(place, access, patience)
    if place.scheme == "gs":
        from pytest_ckpt.targets.objects.google import AskingGoogle  # noqa: PLC0415

        return AskingGoogle(place, access, patience)
    return AskingS3(DialectOfS3(place, access), access, patience)
