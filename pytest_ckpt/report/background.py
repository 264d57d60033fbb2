"""Saves in the background as the certificate shows them: a bar a save, with the steps of training beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.judging.save_costs import SaveCost, save_costs
from pytest_ckpt.report.charts import time_label, time_ticks
from pytest_ckpt.report.quantity import seconds_text
from pytest_ckpt.report.svg import Axis, label, line, picture, rectangle
from pytest_ckpt.support.units import counted

_WIDTH, _LEFT, _RIGHT = 1040, 60, 1010
_TOP, _ROW = 40.0, 30.0
_MAXIMUM_BARS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class BackgroundSave:
    """What one save cost, when all its bytes were durable, and the steps beside it. Seconds.

    ``alone_seconds`` is the median of a step without a save, ``beside_seconds`` the mean of one beside it.
    """

    cost: SaveCost
    stored_seconds: float
    steps: int
    alone_seconds: float
    beside_seconds: float | None


def background_saves(measurement: Mapping[str, Any] | None) -> list[BackgroundSave]:
    """Return the saves of a measurement that let the job go on; none where they did not."""
    if not measurement or not (measurement.get("patterns") or {}).get("training"):
        return []
    whole = from_plain(Measurement, measurement)
    assert whole.patterns
    assert whole.patterns.training
    found = []
    for cost, save in zip(save_costs(whole), whole.of_kind("save"), strict=False):
        steps = whole.patterns.training.of(save.checkpoint)
        if steps is None or save.stored_seconds is None:
            continue
        beside = sum(batch.seconds for batch in steps.beside)
        found.append(
            BackgroundSave(
                cost=cost,
                stored_seconds=save.stored_seconds,
                steps=steps.steps,
                alone_seconds=steps.alone_seconds,
                beside_seconds=beside / steps.steps if steps.steps else None,
            )
        )
    return found


def background_chart(key: str, saves: Sequence[BackgroundSave]) -> str:
    """Return a bar a save: copied, written, committed; and a mark for every step that went on beside it."""
    shown = saves[:_MAXIMUM_BARS]
    if not shown:
        return ""
    bottom = _TOP + len(shown) * _ROW
    axis = Axis(low=0.0, high=max(s.cost.seconds for s in shown) * 1.02, start=_LEFT, end=_RIGHT)
    ticks, unit = time_ticks(axis, 8)
    parts = [label(0, 16, f"every save from its begin, {unit[0]}", "t quiet")]
    for tick in ticks:
        parts.append(line(axis.at(tick), _TOP - 6, axis.at(tick), bottom, "grid"))
        parts.append(label(axis.at(tick), bottom + 17, time_label(tick, unit), "t", "middle"))
    for position, save in enumerate(shown):
        y = _TOP + position * _ROW
        parts.append(label(_LEFT - 8, y + 15, save.cost.index, "t", "end"))
        begin = 0.0
        points = (
            ("stage", save.cost.blocked_seconds),
            ("write", save.stored_seconds),
            ("commit", save.cost.seconds),
        )
        for phase, end in points:
            hint = f"save {save.cost.index}: {phase} until {seconds_text(end)}"
            parts.append(
                rectangle(axis.at(begin), y + 3, axis.at(end) - axis.at(begin), 14, f"bar phase-{phase}", hint)
            )
            begin = max(begin, end)
        if save.beside_seconds:
            parts += _steps(save, axis, y + 23)
    parts.append(line(_LEFT, bottom, _RIGHT, bottom, "axis"))
    longest = max(save.cost.seconds for save in saves)
    described = f"{counted(len(saves), 'save')}; the longest took {seconds_text(longest)}."
    if len(saves) > len(shown):
        described += f" The first {len(shown)} are shown."
    return picture(key, _WIDTH, int(bottom) + 26, "Saves beside training", described, parts, "wide")


def _steps(save: BackgroundSave, axis: Axis, y: float) -> list[str]:
    """Return where the steps beside a save ended, as far as they can be told apart."""
    ends = [save.cost.blocked_seconds + (n + 1) * (save.beside_seconds or 0.0) for n in range(save.steps)]
    every = max(1, len(ends) // 100)
    return [
        line(axis.at(save.cost.blocked_seconds), y, axis.at(min(ends[-1], save.cost.seconds)), y, "span"),
        *(line(axis.at(end), y - 3, axis.at(end), y + 3, "span") for end in ends[::every] if end <= axis.high),
    ]
