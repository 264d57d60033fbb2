"""How commands say something to people: what files and names hold must not steer the terminal that shows it."""

from __future__ import annotations

from collections.abc import Iterable


def say(lines: Iterable[str]) -> None:
    """Print lines as they come; each stays one line, without what steers a terminal."""
    from pytest_ckpt.report.svg import printable  # noqa: PLC0415 - only when there is something to say

    for line in lines:
        print(printable(line).replace("\n", " "), flush=True)
