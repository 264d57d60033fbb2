"""What `doctor` finds: one line a thing that it looks at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_ckpt.facts.targets import Access, TargetSpec
from pytest_ckpt.judging.cures import known_of, remedy_of
from pytest_ckpt.targets.schemes import leftovers_in_time
from pytest_ckpt.targets.timed_calls import NoAnswerError, RefusedError

UNPLANNED = " (what a run needs is known with --ckpt-target and --cluster)"
"""Behind what there is, where nothing says how much of it is needed."""

LOOK_AT_IT = "Look at the storage and its mount: dmesg, the server, the network."


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line: what was looked at, whether it can be done, and what to do if not.

    Without what is ``needed`` no run is possible; the rest limits what a run can prove.
    """

    name: str
    can: bool
    needed: bool
    description: str
    remedy: str = ""


def known_failures(kind: str) -> Iterator[Finding]:
    """Tell what is known of a kind of file system: which checks of behaviour it fails as it is mounted by default."""
    for row in known_of(kind):
        description = f"{row.name} fails {', '.join(row.checks)}: {row.why}"
        yield Finding(name="file system", can=False, needed=False, description=description, remedy=remedy_of(row))


def left_over(spec: TargetSpec, text: str, seconds: float, access: Access) -> Iterator[Finding]:
    """Tell what is on the target of runs whose controller was killed, or is on another host."""
    try:
        for one in leftovers_in_time(spec, text, seconds, access):
            description = f"{one.what}, by {one.why}"
            yield Finding(name="left over", can=False, needed=False, description=description, remedy=one.remedy)
    except NoAnswerError as silence:
        yield silent("left over", str(silence))
    except RefusedError as error:
        yield Finding(
            name="left over", can=False, needed=False, description=str(error), remedy=error.remedy or LOOK_AT_IT
        )


def silent(name: str, description: str) -> Finding:
    """Return that something on the target did not answer."""
    return Finding(name=name, can=False, needed=True, description=description, remedy=LOOK_AT_IT)


def unknown(name: str, why: str) -> Finding:
    """Return that something could not be looked at, for a reason that was told before."""
    return Finding(
        name=name, can=False, needed=False, description=f"not known: {why}", remedy="Fix the lines above first."
    )
