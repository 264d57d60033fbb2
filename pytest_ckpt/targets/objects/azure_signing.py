"""Signs requests of Azure Blob Storage by the key of its account (Shared Key). Pure.

Source: Microsoft, "Authorize with Shared Key", for version 2009-09-19 and later.
"""

from __future__ import annotations

import base64
import hmac
import urllib.parse
from collections.abc import Mapping

_NAMED = (
    "content-encoding", "content-language", "content-length", "content-md5", "content-type", "date",
    "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range",
)  # fmt: skip


def authorization(
    method: str, path: str, query: str, headers: Mapping[str, str], body_bytes: int, *, account: str, key: str
) -> str:
    """Return the header by which a request says who sends it; path and query are encoded, ``key`` is in base64.

    Raises ValueError for a key that is none.
    """
    sent = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    sent["content-length"] = str(body_bytes) if body_bytes else ""
    lines = [method, *(sent.get(name, "") for name in _NAMED)]
    lines += [f"{name}:{sent[name]}" for name in sorted(sent) if name.startswith("x-ms-")]
    asked = sorted((name.lower(), value) for name, value in urllib.parse.parse_qsl(query, keep_blank_values=True))
    resource = "\n".join([f"/{account}{path}", *(f"{name}:{value}" for name, value in asked)])
    text = "\n".join([*lines, resource])
    signature = base64.b64encode(hmac.digest(base64.b64decode(key, validate=True), text.encode(), "sha256")).decode()
    return f"SharedKey {account}:{signature}"
