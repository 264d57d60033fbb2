"""Signs requests of S3: AWS Signature Version 4, with the bytes of a body left out of what is signed. Pure.

Source: AWS, "Authenticating Requests (AWS Signature Version 4)" for S3; the test has AWS's own example.
"""

from __future__ import annotations

import hashlib
import hmac
import urllib.parse
from collections.abc import Mapping, Sequence

from pytest_ckpt.targets.objects.credentials import Keys

UNSIGNED = "UNSIGNED-PAYLOAD"
"""Bodies carry a checksum of ours; to hash them once more would take longer than to send them."""

_ALGORITHM = "AWS4-HMAC-SHA256"


def encoded_path(path: str) -> str:
    """Return a path as it is sent and signed."""
    return urllib.parse.quote(path, safe="/-_.~")


def encoded_query(query: Sequence[tuple[str, str]]) -> str:
    """Return a query as it is sent and signed: sorted."""
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
    """Return the headers that a request is sent with: ``headers``, ``host`` among them, and its signature.

    ``path`` and ``query`` are encoded. ``moment`` is the time in UTC, as 20260102T030405Z; ``body`` is the SHA-256 of
    the body in hexadecimal digits, or that it is not signed.
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
