"""Pictures of another hand, cleaned: nothing in them runs, and nothing asks for anything from elsewhere. Pure."""

from __future__ import annotations

import base64
import re
import struct
import xml.etree.ElementTree as ET
import zlib
from dataclasses import dataclass

MAXIMUM_BYTES = 256 << 10
"""What a picture may have, before and after cleaning: it lies in the report and in the certificate."""

_MAXIMUM_PIXELS = 16_000_000
_MAXIMUM_ELEMENTS, _MAXIMUM_DEPTH = 5_000, 64
_PNG = b"\x89PNG\r\n\x1a\n"
_CHUNK_BYTES = 12
# Of a PNG what shows the picture; texts, profiles and times are left out.
_CHUNKS = frozenset((b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"sRGB", b"gAMA", b"pHYs"))
_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_ELEMENTS = frozenset(
    (
        *("svg", "g", "defs", "symbol", "use", "title", "desc", "path", "rect", "circle", "ellipse", "line"),
        *("polyline", "polygon", "text", "tspan", "marker", "clipPath", "linearGradient", "radialGradient", "stop"),
    )
)
_ATTRIBUTES = frozenset(
    (
        *("id", "class", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "ry", "fx", "fy", "dx", "dy", "d"),
        *("points", "width", "height", "viewBox", "preserveAspectRatio", "transform", "fill", "fill-opacity"),
        *("fill-rule", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin"),
        *("stroke-opacity", "stroke-miterlimit", "opacity", "font-family", "font-size", "font-weight", "font-style"),
        *("text-anchor", "dominant-baseline", "letter-spacing", "offset", "stop-color", "stop-opacity"),
        *("gradientUnits", "gradientTransform", "clip-path", "clip-rule", "clipPathUnits", "marker-start"),
        *("marker-mid", "marker-end", "markerWidth", "markerHeight", "refX", "refY", "orient", "markerUnits", "color"),
    )
)
# A reference within the picture; every other one, and everything that may be one, is taken away.
_INSIDE = re.compile(r"#[A-Za-z_][\w.-]*", re.ASCII)
_URL = re.compile(r"url\(\s*['\"]?#[A-Za-z_][\w.-]*['\"]?\s*\)", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A cleaned picture: ``kind`` is svg or png, ``content`` its bytes, ``removed`` how many parts were taken away."""

    kind: str
    content: bytes
    removed: int

    @property
    def address(self) -> str:
        """The picture as an address that holds it; in an ``img`` a browser runs nothing of it, either."""
        media = "image/svg+xml" if self.kind == "svg" else "image/png"
        return f"data:{media};base64,{base64.b64encode(self.content).decode()}"


def cleaned(data: bytes) -> Picture:
    """Return a picture without what could run or ask for something. Raises ValueError with what is wrong with it."""
    if len(data) > MAXIMUM_BYTES:
        raise ValueError(f"it has {len(data):,} bytes, and {MAXIMUM_BYTES:,} at most are expected")
    return _png(data) if data.startswith(_PNG) else _svg(data)


def cleaned_text(text: str) -> Picture:
    """Return a picture from its base64 text, cleaned again. Raises ValueError."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError(f"it is not base64: {error}") from None
    return cleaned(data)


def _png(data: bytes) -> Picture:
    kept, removed, at = [_PNG], 0, len(_PNG)
    names: list[bytes] = []
    while at < len(data):
        if at + _CHUNK_BYTES > len(data):
            raise ValueError("it is a PNG that is cut off")
        (length,) = struct.unpack_from(">I", data, at)
        name, end = data[at + 4 : at + 8], at + _CHUNK_BYTES + length
        if end > len(data) or struct.unpack_from(">I", data, end - 4)[0] != zlib.crc32(data[at + 4 : end - 4]):
            raise ValueError("it is a PNG with a broken part")
        if not names and name != b"IHDR":
            raise ValueError("it is a PNG without a header")
        if name == b"IHDR":
            width, height = struct.unpack_from(">II", data, at + 8) if length >= 8 else (0, 0)
            if not 0 < width * height <= _MAXIMUM_PIXELS:
                raise ValueError(f"it is a PNG of {width:,} by {height:,} pixels")
        names.append(name)
        if name in _CHUNKS:
            kept.append(data[at:end])
        else:
            removed += 1
        at = end
        if name == b"IEND":
            break
    if b"IDAT" not in names or names[-1] != b"IEND":
        raise ValueError("it is a PNG that is cut off")
    return Picture(kind="png", content=b"".join(kept), removed=removed + (at < len(data)))


def _svg(data: bytes) -> Picture:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is neither a PNG nor an SVG in UTF-8") from None
    # Entities may grow without end, or name files.
    if "<!ENTITY" in text.upper() or "<!DOCTYPE" in text.upper():
        raise ValueError("it has a DOCTYPE or entities, which are not taken")
    try:
        root = ET.fromstring(text)
    except (ET.ParseError, ValueError) as error:
        raise ValueError(f"it is no SVG: {error}") from None
    if _name(root.tag) != "svg":
        raise ValueError("it is no SVG")
    counts = [0, 0]
    made = _element(root, counts, 0)
    if not (made.get("viewBox") or (made.get("width") and made.get("height"))):
        raise ValueError("it says neither viewBox nor width and height")
    content = ET.tostring(made, encoding="unicode").encode()
    if len(content) > MAXIMUM_BYTES:
        raise ValueError(f"cleaned it has {len(content):,} bytes, and {MAXIMUM_BYTES:,} at most are expected")
    return Picture(kind="svg", content=content, removed=counts[1])


def _element(given: ET.Element, counts: list[int], depth: int) -> ET.Element:
    """Return an element with what may stay; ``counts`` are those kept, and the parts that were taken away."""
    counts[0] += 1
    if counts[0] > _MAXIMUM_ELEMENTS or depth > _MAXIMUM_DEPTH:
        raise ValueError("it has too many elements, or they lie too deep in each other")
    name = _name(given.tag)
    made = ET.Element(name, {"xmlns": _SVG} if depth == 0 else {})
    for attribute, value in given.attrib.items():
        if (kept := _attribute(attribute, value)) is None:
            counts[1] += 1
        else:
            made.set(*kept)
    made.text = given.text
    for child in given:
        if isinstance(child.tag, str) and _name(child.tag) in _ELEMENTS:
            below = _element(child, counts, depth + 1)
            below.tail = child.tail
            made.append(below)
        else:
            counts[1] += 1
    return made


def _attribute(name: str, value: str) -> tuple[str, str] | None:
    plain = name.removeprefix(f"{{{_XLINK}}}")
    if plain == "href":
        return (plain, value) if _INSIDE.fullmatch(value) else None
    if plain not in _ATTRIBUTES or "\\" in value or "url" in _URL.sub("", value).lower():
        return None
    return plain, value


def _name(tag: object) -> str:
    return tag.removeprefix(f"{{{_SVG}}}") if isinstance(tag, str) else ""
