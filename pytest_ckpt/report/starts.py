"""The starts of a run as pages and the terminal show them: interruptions, and what was kept or measured again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_ckpt.report.quantity import moment_text
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from pytest_ckpt.report.view import Document

_MAXIMUM_NAMES = 6
_ENDS = {
    "finished": "finished",
    "interrupted": "interrupted",
    "crashed": "ended by an error of pytest-ckpt",
    "killed": "killed",
}


def start_lines(document: Document) -> list[str]:
    """Return a sentence for each start and for what it did not complete; nothing for one start that was complete."""
    starts = document.get("starts") or []
    if len(starts) == 1 and starts[0]["end"] == "finished" and not starts[0]["broken_off"]:
        return []
    return [line for start in starts for line in _of_start(start)]


def _of_start(start: Document) -> Iterator[str]:
    which = f"Start {start['number']}"
    yield (
        f"{which}, {moment_text(start['started'])}, {', '.join(start['suites']) or 'no suite'}: {_ENDS[start['end']]}. "
        f"It measured {_names(start['measured'])}."
    )
    for broken in start["broken_off"]:
        where = f" in {broken['operation']}" if broken["operation"] else ""
        ended = f", after {counted(broken['operations'], 'save or load', 'saves and loads')}" if where else ""
        yield f"{which} did not complete {broken['name']}: it ended{where}{ended}."
    for replaced in start["replaced"]:
        failed = f" It had failed {', '.join(replaced['failed'])}." if replaced["failed"] else ""
        yield (
            f"{replaced['name']} of start {start['number']} or before was measured again under other conditions "
            f"({'; '.join(replaced['differences'])}).{failed}"
        )


def _names(names: Sequence[str]) -> str:
    if not names:
        return "nothing to its end"
    more = len(names) - _MAXIMUM_NAMES
    return ", ".join(names[:_MAXIMUM_NAMES]) + (f" and {more} more" if more > 0 else "")
