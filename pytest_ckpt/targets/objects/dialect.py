"""Who answers, and how a request is signed for him: what stores differ in below their requests. Here: S3."""

from __future__ import annotations

import hashlib
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pytest_ckpt.facts.targets import Access
from pytest_ckpt.targets.objects.credentials import NoCredentialsError, find_identity
from pytest_ckpt.targets.objects.errors import of_credentials
from pytest_ckpt.targets.objects.keys import BucketPrefix
from pytest_ckpt.targets.objects.signing import UNSIGNED, encoded_path, signed

# A larger body carries a checksum of ours, and is no part of what is signed.
_SMALL_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """Where requests go: its URL, and the path there before all keys."""

    url: str
    host: str
    netloc: str
    port: int | None
    is_tls: bool
    root: str


class Dialect(Protocol):
    """The endpoints of a store, and how requests are signed for it; ``region`` is empty where there are none."""

    region: str
    endpoints: tuple[Endpoint, ...]

    def path(self, root: str, key: str) -> str:
        """Return the path of a request, encoded; both are empty for the store itself."""

    def signed(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: memoryview | bytes
    ) -> tuple[str, dict[str, str]]:
        """Return the query and the headers that a request is sent with; path and query are encoded.

        Raises NoCredentialsError.
        """

    def hidden(self) -> tuple[str, ...]:
        """Return what no message may repeat."""


class PathOfKey:
    """A path is that of an endpoint and a key as they are written."""

    def path(self, root: str, key: str) -> str:
        """Return the path of a request, encoded."""
        return encoded_path(f"{root}/{key}" if key or not root else root)


class DialectOfS3(PathOfKey):
    """AWS Signature Version 4. Raises StoreError where nothing has keys."""

    def __init__(self, place: BucketPrefix, access: Access) -> None:
        try:
            self._identity = find_identity(access)
        except NoCredentialsError as error:
            raise of_credentials(str(error), place.url) from None
        self.region = self._identity.region
        named = (self._identity.endpoint, *access.endpoints[1:])
        self.endpoints = tuple(self._endpoint(url, place.bucket) for url in named)

    def signed(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: memoryview | bytes
    ) -> tuple[str, dict[str, str]]:
        """Sign a request; of a body only small bytes."""
        is_small = len(body) < _SMALL_BYTES and not isinstance(body, memoryview)
        sent = signed(
            method,
            path,
            query,
            headers,
            keys=self._identity.keys(),
            region=self.region,
            moment=time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
            body=hashlib.sha256(body).hexdigest() if is_small else UNSIGNED,
        )
        return query, sent

    def hidden(self) -> tuple[str, ...]:
        """Return the keys of now."""
        keys = self._identity.keys()
        return keys.access_key, keys.secret_key, keys.token

    def _endpoint(self, url: str, bucket: str) -> Endpoint:
        """Return where requests go; without a URL, to AWS itself."""
        host, root = f"s3.{self.region}.{_suffix(self.region)}", f"/{bucket}"
        if not url and "." not in bucket:
            # TLS certificates of AWS cover names of one part before theirs.
            host, root = f"{bucket}.{host}", ""
        return endpoint_of(url or f"https://{host}", root)


def endpoint_of(url: str, root: str) -> Endpoint:
    """Return where requests to a URL go."""
    parts = urllib.parse.urlsplit(url)
    return Endpoint(
        url=f"{parts.scheme}://{parts.netloc}",
        host=parts.hostname or "",
        netloc=parts.netloc,
        port=parts.port,
        is_tls=parts.scheme == "https",
        root=root,
    )


def is_aws_itself(endpoint: str, region: str) -> bool:
    """Return whether an endpoint is that of AWS for a region, which libraries of AWS find by themselves."""
    return (urllib.parse.urlsplit(endpoint).hostname or "").endswith(f"s3.{region}.{_suffix(region)}")


def _suffix(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
