"""Functions that return parts of SVG images as text. The classes of the style sheet define all colors."""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass


def printable(value: object) -> str:
    """Return a value as text in which U+FFFD replaces control characters, display overrides and surrogates.

    Newlines and tabs are kept.
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(c)[0] == "C" and c not in "\n\t" else c for c in text
    )


def escape(value: object) -> str:
    """Return a value as text that is escaped for an element or a quoted attribute."""
    return html.escape(printable(value), quote=True)


def number(value: float) -> str:
    """Return a coordinate as text with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def tag(name: str, content: str = "", **attributes: object) -> str:
    """Return one SVG element named ``name``; ``content`` is SVG and is not escaped again.

    ``attributes`` are the attributes of the element. In their names, a trailing underscore is removed (``class_``), and
    other underscores become hyphens.
    """
    parts = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{number(value) if isinstance(value, float) else escape(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{parts}>{content}</{name}>" if content else f"<{name}{parts}/>"


def label(x: float, y: float, content: object, class_: str = "t", anchor: str = "start") -> str:
    """Return a text element at (x, y). ``anchor`` states which point of the text is at ``x``: start, middle or end."""
    return tag("text", escape(content), x=float(x), y=float(y), class_=class_, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """Return a straight line from (x1, y1) to (x2, y2)."""
    return tag("path", d=f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}", class_=class_)


def rectangle(x: float, y: float, width: float, height: float, class_: str, hint: str = "") -> str:
    """Return a rectangle; ``hint`` is its tooltip."""
    inside = tag("title", escape(hint)) if hint else ""
    return tag("rect", inside, x=x, y=y, width=max(width, 0.0), height=max(height, 0.0), class_=class_)


def picture(
    key: str, width: int, height: int, title: str, description: str, parts: Iterable[str], shape: str = "wide"
) -> str:
    """Return an SVG image with a title and a description for screen readers.

    ``parts`` are the elements of the image. ``key`` makes the ids of the image unique in the document. ``shape`` is a
    class of the style sheet: half, wide or map.
    """
    name, about = f"{key}-t", f"{key}-d"
    body = tag("title", escape(title), id=name) + tag("desc", escape(description), id=about) + "".join(parts)
    return tag(
        "svg",
        body,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_labelledby=f"{name} {about}",
        class_=f"chart {shape}",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """A scale from values (``low`` to ``high``) to pixels (``start`` to ``end``).

    The scale is linear, or logarithmic if ``log`` is true. On a logarithmic scale, ``low`` must be above zero.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the pixel of a value. For a value outside the axis, return the nearest end of the axis."""
        inside = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(inside / self.low) / math.log(self.high / self.low)
        else:
            share = (inside - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, wanted: int = 5) -> list[float]:
        """Return round values within the axis. For a linear axis, return about ``wanted`` values."""
        if not self.log:
            step = round_step((self.high - self.low) / wanted)
            first = math.ceil(self.low / step - 1e-9)
            return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        factors = (1, 2, 5) if len(decades) <= 3 else (1,)
        values = [factor * 10.0**decade for decade in decades for factor in factors]
        return [v for v in values if self.low * (1 - 1e-9) <= v <= self.high * (1 + 1e-9)]


def round_step(step: float) -> float:
    """Return the smallest step of at least ``step`` that is 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= step * (1 - 1e-9))
