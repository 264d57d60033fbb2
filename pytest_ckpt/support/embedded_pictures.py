"""Checks users' pictures before they are embedded. Pure functions.

Only formats without scripts and references are accepted.
"""

from __future__ import annotations

import base64

MAXIMUM_BYTES = 256 << 10
"""The maximum size of a picture in bytes; the report and the certificate both contain the picture."""

# Media type, first bytes, and the bytes that end an intact file.
_FORMATS = (
    ("image/png", b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"),
    ("image/jpeg", b"\xff\xd8\xff", b"\xff\xd9"),
)


def media_type(content: bytes) -> str:
    """Return the media type of a PNG or JPEG. Raises ValueError with the reason if the picture is not accepted."""
    if len(content) > MAXIMUM_BYTES:
        raise ValueError(f"it has {len(content):,} bytes, and the maximum is {MAXIMUM_BYTES:,}")
    for media, first, last in _FORMATS:
        if content.startswith(first):
            if last not in content:
                raise ValueError("it is cut off")
            return media
    raise ValueError("it is not a PNG or JPEG; SVG is not supported")


def data_address(text: str) -> str:
    """Return the ``data:`` URL of a picture from its base64 text. Raises ValueError like `media_type`."""
    return f"data:{media_type(base64.b64decode(text, validate=True))};base64,{text}"
