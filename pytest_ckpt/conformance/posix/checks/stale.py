"""STALE: how long another client goes on seeing what is no longer so (semantics 7).

The other client looks first, so that its caches hold the old state as freshly as they can. Then this one makes a
change, and from the end of that call its clock runs until the other has answered that it agrees. So a figure includes
one way to the other client and back, and no two clocks are compared.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.posix.client import encoded
from pytest_ckpt.facts.checks import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.conformance.context import CheckContext, Findings
    from pytest_ckpt.conformance.posix.client import Client

_TRIALS = 20
# A cache that has not expired after so many times the limit is given up: whether it ever does is not worth the wait.
GIVE_UP_TIMES = 10
_OLD_TIME, _NEW_TIME = 10**9, 10**9 + 86400


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One change of a path, and what shows it: ``look``, a key of ``actions.LOOKS``, is ``old`` before, ``new`` after.

    ``stale`` is what a client still has that does not see it, a few words that a failure begins with.
    """

    what: str
    stale: str
    look: str
    old: Any
    new: Any
    prepare: Callable[[Path], object] = lambda path: None
    make: Callable[[Path], object]


def attributes(context: CheckContext, findings: Findings) -> None:
    """Change what the other client has seen of a file's attributes."""
    measure(context, findings, "STALE.attributes", _ATTRIBUTES)


def names(context: CheckContext, findings: Findings) -> None:
    """Change what stands behind names that the other client has looked up and listed."""
    measure(context, findings, "STALE.names", _NAMES)


def negative_names(context: CheckContext, findings: Findings) -> None:
    """Make names that the other client has looked for in vain."""
    measure(context, findings, "STALE.negative-names", _NEGATIVE_NAMES)


def measure(context: CheckContext, findings: Findings, check: str, changes: tuple[Change, ...]) -> None:
    """Make every change, again and again; the check's figure is the longest time until the other client agreed."""
    other, folder = context.second()
    limit = BY_NAME[check].limit
    assert limit is not None
    longest, spent = {change.what: 0.0 for change in changes}, 0.0
    for trial in range(context.count(_TRIALS, minimum=3)):
        for number, change in enumerate(changes):
            path = context.folder / f"{trial}-{number}"
            theirs = f"{folder}/{path.name}"
            context.tell(change.what, str(path))
            change.prepare(path)
            agreed, seconds = _look(findings, other, theirs, change, limit, before=True)
            if agreed:
                spent += seconds
                change.make(path)
                _, seconds = _look(findings, other, theirs, change, limit)
                longest[change.what] = max(seconds, longest[change.what])
                findings.measured = max(longest.values())
            findings.trials += 1
            spent += seconds
        # More trials of what was given up would only take more time.
        if spent > GIVE_UP_TIMES * limit:
            break
    findings.facts |= {f"longest after {what}": f"{seconds:.4f} s" for what, seconds in longest.items()}


def _look(
    findings: Findings, other: Client, path: str, change: Change, limit: float, *, before: bool = False
) -> tuple[bool, float]:
    """Have the other client look until it sees what it should; return whether it does, and when it had said so."""
    wanted, seconds = change.old if before else change.new, GIVE_UP_TIMES * limit
    began = time.monotonic()
    answer = other.ask("wait_until", path, look=change.look, wanted=wanted, seconds=seconds, patience=seconds + 60)
    took = time.monotonic() - began
    if not answer["agreed"]:
        findings.wrong(
            "state before a change is not seen" if before else change.stale,
            where=f"{path}, {'before' if before else 'after'} {change.what}, {answer['looks']:,} looks by {other.name}",
            seen=f"{change.look} still {_short(answer['last'])} after {took:.1f} s, when the check gave up",
            expected=f"{_short(wanted)} within {limit:g} s",
        )
    return answer["agreed"], took


def _short(value: Any) -> str:
    words = repr(value)
    return words if len(words) <= 80 else f"{words[:60]}… ({len(words):,} characters)"


def _write(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(bytes(4096))


def _with_time(path: Path) -> None:
    path.touch()
    os.utime(path, (_OLD_TIME, _OLD_TIME))


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.beside")


def _replace(path: Path) -> None:
    _beside(path).write_bytes(b"new bytes")
    _beside(path).replace(path)


def _folder_with_a_file(path: Path) -> None:
    path.mkdir()
    (path / "a").touch()


_ATTRIBUTES = (
    Change(
        what="a file grew",
        stale="stale size",
        look="size",
        old=1000,
        new=5096,
        prepare=_write(bytes(1000)),
        make=_append,
    ),
    Change(
        what="a file was truncated",
        stale="stale size",
        look="size",
        old=5096,
        new=7,
        prepare=_write(bytes(5096)),
        make=lambda path: os.truncate(path, 7),
    ),
    Change(
        what="a file's time was set",
        stale="stale time",
        look="mtime",
        old=_OLD_TIME,
        new=_NEW_TIME,
        prepare=_with_time,
        make=lambda path: os.utime(path, (_NEW_TIME, _NEW_TIME)),
    ),
)
_NAMES = (
    Change(
        what="a name was removed",
        stale="stale name",
        look="exists",
        old=True,
        new=False,
        prepare=Path.touch,
        make=Path.unlink,
    ),
    Change(
        what="a name was renamed away",
        stale="stale name",
        look="exists",
        old=True,
        new=False,
        prepare=Path.touch,
        make=lambda path: path.rename(_beside(path)),
    ),
    Change(
        what="a file was replaced by rename",
        stale="stale name of a replaced file",
        look="data",
        old=encoded(b"old bytes"),
        new=encoded(b"new bytes"),
        prepare=_write(b"old bytes"),
        make=_replace,
    ),
    Change(
        what="a name came into a folder",
        stale="stale listing",
        look="names",
        old=["a"],
        new=["a", "b"],
        prepare=_folder_with_a_file,
        make=lambda path: (path / "b").touch(),
    ),
    Change(
        what="a name went from a folder",
        stale="stale listing",
        look="names",
        old=["a"],
        new=[],
        prepare=_folder_with_a_file,
        make=lambda path: (path / "a").unlink(),
    ),
)
_NEGATIVE_NAMES = (
    Change(
        what="a missing file was made",
        stale="stale negative name",
        look="exists",
        old=False,
        new=True,
        make=Path.touch,
    ),
    Change(
        what="a missing folder was made",
        stale="stale negative name",
        look="exists",
        old=False,
        new=True,
        make=Path.mkdir,
    ),
    Change(
        what="a file was renamed to a missing name",
        stale="stale negative name",
        look="exists",
        old=False,
        new=True,
        prepare=lambda path: _beside(path).touch(),
        make=lambda path: _beside(path).rename(path),
    ),
)
