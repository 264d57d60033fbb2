"""Credentials, region and endpoint of an object store, and the signature of S3 requests.

Keys are first looked up in the environment. If the environment has no keys, botocore is imported (40 MB of memory) to
read profile files and machine roles. Credentials remain in this process.

Source of the signature: AWS, "Authenticating Requests (AWS Signature Version 4)" for S3, with an unsigned payload. A
test uses the example of AWS.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import os
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_ckpt.facts.targets import Access
from pytest_ckpt.targets.objects.errors import of_credentials
from pytest_ckpt.targets.objects.keys import BucketPrefix

ANY_REGION = "us-east-1"
"""The region for a store without regions, which the signature requires."""


class NoCredentialsError(Exception):
    """The environment, profiles and roles contain no keys, or the profile cannot be used."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Keys:
    """An access key and a secret key that sign requests, and an optional session token; never displayed."""

    access_key: str
    secret_key: str
    token: str = ""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Identity:
    """The keys, region and endpoint of a client. An empty ``endpoint`` means AWS's own endpoint.

    ``keys`` is a function that returns the current keys, because keys of a role expire.
    """

    keys: Callable[[], Keys]
    region: str
    endpoint: str


def find_identity(access: Access) -> Identity:
    """Return the keys, region and endpoint that are configured for this process. Raises NoCredentialsError."""
    if access.embedded:
        # The embedded server does not authenticate.
        embedded_keys = Keys(access_key="embedded", secret_key="embedded")
        return Identity(keys=lambda: embedded_keys, region=ANY_REGION, endpoint=access.endpoints[0])
    environment = os.environ
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or ""
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
    endpoint = access.endpoints[0] if access.endpoints else endpoint.rstrip("/")
    access_key, secret_key = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if access_key and secret_key:
        given = Keys(access_key=access_key, secret_key=secret_key, token=environment.get("AWS_SESSION_TOKEN", ""))
        return Identity(keys=lambda: given, region=region or ANY_REGION, endpoint=endpoint)
    return _of_library(region, endpoint)


def _of_library(region: str, endpoint: str) -> Identity:
    if importlib.util.find_spec("botocore") is None:
        raise NoCredentialsError("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set")
    import botocore.exceptions  # noqa: PLC0415 - only if the environment has no keys
    import botocore.session  # noqa: PLC0415

    try:
        session = botocore.session.Session()
        credentials: Any = session.get_credentials()
        if credentials is None:
            raise NoCredentialsError("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and no profile has keys")
        region = region or session.get_config_variable("region") or ANY_REGION
        endpoint = endpoint or str(session.get_scoped_config().get("endpoint_url", "")).rstrip("/")
    except botocore.exceptions.BotoCoreError as error:
        raise NoCredentialsError(str(error)) from None

    def keys() -> Keys:
        try:
            now = credentials.get_frozen_credentials()
        except botocore.exceptions.BotoCoreError as error:
            raise NoCredentialsError(str(error)) from None
        return Keys(access_key=now.access_key, secret_key=now.secret_key, token=now.token or "")

    return Identity(keys=keys, region=region, endpoint=endpoint)


UNSIGNED = "UNSIGNED-PAYLOAD"
"""The marker of a body that is not part of the signature. Bodies of data have a separate checksum; hashing them again
would take longer than the transfer.
"""

_ALGORITHM = "AWS4-HMAC-SHA256"


def encoded_path(path: str) -> str:
    """Return a path encoded for sending and signing."""
    return urllib.parse.quote(path, safe="/-_.~")


def encoded_query(query: Sequence[tuple[str, str]]) -> str:
    """Return a query sorted and encoded for sending and signing."""
    pairs = sorted((urllib.parse.quote(k, safe="-_.~"), urllib.parse.quote(v, safe="-_.~")) for k, v in query)
    return "&".join(f"{name}={value}" for name, value in pairs)


def signed(
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    *,
    keys: Keys,
    region: str,
    moment: str,
    body: str = UNSIGNED,
) -> dict[str, str]:
    """Return ``headers`` with the signature of the request added. ``headers`` must include ``host``.

    ``path`` and ``query`` are encoded. ``moment`` is the time in UTC, as 20260102T030405Z. ``body`` is the body's
    SHA-256 in hexadecimal digits, or the marker of an unsigned body.
    """
    added = {"x-amz-content-sha256": body, "x-amz-date": moment}
    if keys.token:
        added["x-amz-security-token"] = keys.token
    sent = {**headers, **added}
    named = {name.lower(): " ".join(value.split()) for name, value in sent.items()}
    names = sorted(name for name in named if name in {"host", "range"} or name.startswith("x-amz-"))
    lines = "".join(f"{name}:{named[name]}\n" for name in names)
    request = "\n".join((method, path, query, lines, ";".join(names), body))
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    text = "\n".join((_ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{keys.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    sent["Authorization"] = (
        f"{_ALGORITHM} Credential={keys.access_key}/{scope},SignedHeaders={';'.join(names)},Signature={signature}"
    )
    return sent


# A larger body has our own checksum and is not part of the signature.
_SMALL_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """The destination of requests: a URL, and the part of the path before every object key (``root``)."""

    url: str
    host: str
    netloc: str
    port: int | None
    is_tls: bool
    root: str


class Dialect(Protocol):
    """The endpoints of a store, and the signature of its requests. ``region`` is empty for a store without regions."""

    region: str
    endpoints: tuple[Endpoint, ...]

    def path(self, root: str, key: str) -> str:
        """Return the encoded path of a request for an object; ``root`` is the endpoint's path before the key.

        For a request to the bucket or the account, ``key`` is empty.
        """

    def signed(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: memoryview | bytes
    ) -> tuple[str, dict[str, str]]:
        """Return (query, headers) of a request with its signature. ``path`` and ``query`` are already encoded.

        Raises NoCredentialsError.
        """

    def hidden(self) -> tuple[str, ...]:
        """Return the secrets that messages must not contain."""


class PathOfKey:
    """Base class of dialects. The path of a request is the endpoint's path, followed by the key."""

    def path(self, root: str, key: str) -> str:
        """Return the encoded path of a request."""
        return encoded_path(f"{root}/{key}" if key or not root else root)


class DialectOfS3(PathOfKey):
    """Signs S3 requests with AWS Signature Version 4. Raises StoreError if there are no keys."""

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
        """Return (query, headers) of a request; the headers contain the signature.

        The signature covers ``body`` only if it is a ``bytes`` object of less than 1 MiB.
        """
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
        """Return the current keys and token."""
        keys = self._identity.keys()
        return keys.access_key, keys.secret_key, keys.token

    def _endpoint(self, url: str, bucket: str) -> Endpoint:
        """Return the endpoint for requests to a bucket.

        This is the endpoint at ``url``, or AWS's own endpoint if ``url`` is empty.
        """
        host, root = f"s3.{self.region}.{_suffix(self.region)}", f"/{bucket}"
        if not url and "." not in bucket:
            # AWS's TLS certificates cover bucket names without dots.
            host, root = f"{bucket}.{host}", ""
        return endpoint_of(url or f"https://{host}", root)


def endpoint_of(url: str, root: str) -> Endpoint:
    """Return a URL as an endpoint; ``root`` is the part of the path before every object key."""
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
    """Return whether an endpoint is AWS's own endpoint for a region. AWS libraries know this endpoint."""
    return (urllib.parse.urlsplit(endpoint).hostname or "").endswith(f"s3.{region}.{_suffix(region)}")


def _suffix(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
