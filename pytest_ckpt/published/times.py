"""One rank's own times, from its statistics file or from the log of rank 0. Pure.

A statistics file holds, by epoch, ``save_ckpt1``, ``load_ckpt1`` and so on: start and end on the rank's own clock
(without a zone), ``duration`` in seconds between the two, and ``throughput`` in GiB/s (printed as "GB/s") of the whole
checkpoint over that duration.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeGuard

from pytest_ckpt.facts.measurement import OperationKind

_OPERATION = re.compile(r"(save|load)_ckpt([1-9]\d{0,5})", re.ASCII)
_NUMBER = r"\d{1,15}(?:\.\d{1,15})?"
_LOGGED = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?) "
    r"(?:(?P<started>Starting (?:saving|loading) checkpoint)|(?P<ended>Finished (?:saving|loading) checkpoint)) "
    rf"(?P<number>\d{{1,6}})\b(?:.* in (?P<seconds>{_NUMBER}) s; Throughput: (?P<gib>{_NUMBER}) Gi?B/s)?",
    re.ASCII,
)
_CLOCK_START = datetime(2000, 1, 1)
# The file repeats its two time stamps as a duration, to the microsecond.
_SAME_SECONDS = 0.002
_SIZES = 3
_ENDLESS = 1e15

Key = tuple[OperationKind, int]


class Timing(NamedTuple):
    """One operation of one rank: ``start`` in seconds on that rank's clock, comparable with nobody else's."""

    start: float
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTimes:
    """What one rank recorded. ``bytes`` is one checkpoint of all ranks, None where no throughput was recorded.

    ``began`` is when the first of them was preceded by nothing but a pause, in seconds on this rank's clock.
    ``faults`` are sentences about what could not be believed; those operations are left out.
    """

    timings: Mapping[Key, Timing]
    bytes: int | None
    started: str = ""
    ended: str = ""
    is_training: bool = False
    faults: tuple[str, ...] = ()
    began: float | None = None


def rank_times(stats: Any) -> RankTimes:
    """Read the content of a ``<rank>_per_epoch_stats.json``."""
    if not isinstance(stats, dict):
        return RankTimes(timings={}, bytes=None, faults=("it holds no table of epochs",))
    timings: dict[Key, Timing] = {}
    sizes: list[float] = []
    faults: list[str] = []
    is_training = False
    started = ended = ""
    began: float | None = None
    before = 0
    for epoch in stats.values():
        if not isinstance(epoch, dict):
            faults.append("an epoch in it is no table")
            continue
        started = started or _text(epoch.get("start"))
        if not timings and (moment := _moment(epoch.get("start"))):
            began = _on_clock(moment)
        ended = _text(epoch.get("end")) or ended
        highest = before
        for name, entry in epoch.items():
            found = _OPERATION.fullmatch(name)
            if found is None:
                is_training = is_training or name.startswith("block")
                if name.startswith(("save_ckpt", "load_ckpt")):
                    faults.append(f"{name:.40} is no name of an operation")
                continue
            # Numbers start again in another epoch.
            number = before + int(found[2])
            highest = max(highest, number)
            timing = _timing(entry)
            if isinstance(timing, str):
                faults.append(f"{name} {timing}")
                continue
            timings["save" if found[1] == "save" else "load", number] = timing
            # All say the same size; a few are enough, of the many that a large tree holds.
            if len(sizes) < _SIZES and _is_positive(throughput := entry.get("throughput")):
                sizes.append(throughput * timing.seconds)
        before = highest
    return RankTimes(
        timings=timings,
        bytes=_checkpoint_bytes(sizes),
        started=started,
        ended=ended,
        is_training=is_training,
        faults=tuple(faults),
        began=began,
    )


def logged_times(lines: Iterable[str]) -> RankTimes:
    """Read rank 0's times from ``dlio.log``, for folders that have lost its statistics file."""
    starts: dict[Key, datetime] = {}
    timings: dict[Key, Timing] = {}
    sizes: list[float] = []
    first = last = ""
    for line in lines:
        found = _LOGGED.search(line)
        at = _moment(found["at"]) if found else None
        if found is None or at is None:
            continue
        key: Key = ("save" if "saving" in (found["started"] or found["ended"]) else "load", int(found["number"]))
        if found["started"]:
            starts[key] = at
            first = first or found["at"]
        elif key in starts:
            seconds = (at - starts[key]).total_seconds()
            last = found["at"]
            if seconds > 0:
                timings[key] = Timing(_on_clock(starts[key]), seconds)
                if found["gib"]:
                    sizes.append(float(found["gib"]) * float(found["seconds"]))
    return RankTimes(timings=timings, bytes=_checkpoint_bytes(sizes), started=first, ended=last)


def _timing(entry: Any) -> Timing | str:
    """Return an operation's timing, or what is wrong with it."""
    if not isinstance(entry, dict):
        return "is no table"
    start, end = _moment(entry.get("start")), _moment(entry.get("end"))
    if start is None or end is None:
        return f"has no {'start' if start is None else 'end'} that is a time"
    seconds = entry.get("duration")
    if not _is_positive(seconds):
        return f"has no duration above 0 ({seconds!r:.40})"
    apart = (end - start).total_seconds()
    if abs(apart - seconds) > _SAME_SECONDS:
        return f"says that it took {seconds:.6g} s, and its start and end are {apart:.6g} s apart"
    return Timing(_on_clock(start), float(seconds))


def _checkpoint_bytes(gib: list[float]) -> int | None:
    return round(statistics.median(gib) * 2**30) if gib else None


def _on_clock(moment: datetime) -> float:
    return (moment - _CLOCK_START).total_seconds()


def _moment(text: Any) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is None else moment.replace(tzinfo=None)


def _is_positive(value: Any) -> TypeGuard[float]:
    # Also false for what is not a number, and for what is too large for one.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _ENDLESS


def _text(value: Any) -> str:
    return value if _moment(value) else ""
