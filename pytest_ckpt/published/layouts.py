"""Finds the layout of a published result from its configuration and the bytes it moved. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_ckpt.facts.models import Model
from pytest_ckpt.published.facts import Facts, model_by_architecture, model_by_name
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.models import SUBSET_PROCESSES, Layout, layout
from pytest_ckpt.support.units import counted, format_bytes, format_count

# The reference tool's own count of a checkpoint and ours are equal; the rest is rounding of a printed throughput.
_SAME_BYTES = 0.001


@dataclass(frozen=True, kw_only=True, slots=True)
class Recognized:
    """The layout, or None with the reason; and whether it was named by the records or told from the bytes."""

    layout: Layout | None
    source: str
    because: str = ""


def recognize(facts: Facts, moved_bytes: int | None, highest_rank: int, folder_name: str) -> Recognized:
    """Return the layout of a run.

    ``moved_bytes`` is one checkpoint as the times and throughputs give it, ``folder_name`` the folder that mlpstorage
    names after the model. Where records and bytes do not agree nothing is returned: the folder holds two runs' files.
    """
    named = model_by_architecture(facts.architecture) or model_by_name(facts.model) or model_by_name(folder_name)
    amount = moved_bytes or facts.bytes
    if named is None and amount is None:
        return Recognized(layout=None, source="", because="Neither a configuration nor a size says which model it is.")
    if facts.bytes and moved_bytes and not _alike(facts.bytes, moved_bytes):
        return Recognized(
            layout=None,
            source="",
            because=f"summary.json is of checkpoints of {format_bytes(facts.bytes)}, the operations moved "
            f"{format_bytes(moved_bytes)}: the files are of different runs.",
        )
    candidates = list(_layouts([named] if named else list(MODELS.values()), facts.processes))
    fitting = [c for c in candidates if c.processes > highest_rank and (amount is None or _alike(c.bytes, amount))]
    if facts.mode == "subset":
        fitting = [c for c in fitting if c.mode == "subset" or c.processes == c.model.processes] or fitting
    if len(fitting) == 1 or (fitting and facts.processes):
        return Recognized(layout=fitting[0], source="records" if named else "bytes")
    if fitting:
        names = " or ".join(found.name for found in fitting)
        because = f"Neither the processes nor the size of a checkpoint are recorded: it is {names}."
    else:
        because = _misfit(named, facts.processes, amount, highest_rank)
    return Recognized(layout=None, source="", because=because)


def _layouts(models: list[Model], processes: int | None) -> Iterator[Layout]:
    """Yield the layouts that so many processes can be; without a count, the full ones and the subsets."""
    for model in models:
        if processes in (None, model.processes):
            yield layout(model.name, mode="full")
        if processes in (None, SUBSET_PROCESSES) and model.processes != SUBSET_PROCESSES:
            yield layout(model.name, mode="subset")
        if processes and processes != model.processes and processes % model.model_parallel == 0:
            yield layout(model.name, mode="open", processes=processes)


def _misfit(named: Model | None, processes: int | None, amount: int | None, highest_rank: int) -> str:
    seen = [counted(processes, "process", "processes")] if processes else [f"a rank {format_count(highest_rank)}"]
    if amount:
        seen.append(f"checkpoints of {format_bytes(amount)}")
    models = [named] if named else list(MODELS.values())
    known = ", ".join(
        f"{found.name} {format_bytes(found.bytes)} by {format_count(found.processes)}"
        for found in _layouts(models, None)
    )
    return f"It has {' and '.join(seen)}, which no layout of the workload has ({known})."


def _alike(one: int, other: int) -> bool:
    return abs(one - other) <= _SAME_BYTES * max(one, other)
