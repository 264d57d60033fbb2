"""TOML as a user writes it, read so that every fault of it is one kind of error, and soon."""

from __future__ import annotations

import re
import tomllib
from typing import Any

_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'')
# Far more than anyone writes. The reader of the standard library takes the square of it in time.
_MAXIMUM_DOTS = 64
_TOO_DEEP = "its lists or tables lie too deep in each other"


def parse_toml(text: str) -> dict[str, Any]:
    """Return what TOML says. Raises ValueError, also for tables that lie deeper in each other than anyone writes."""
    if any(line.count(".") > _MAXIMUM_DOTS for line in _STRING.sub("", text).splitlines()):
        raise ValueError(_TOO_DEEP)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
