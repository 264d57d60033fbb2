"""The scope of a verdict: the cluster and the checkpoints that the verdict is valid for. Pure.

The headline contains the scope as text. The fields ``scope`` and ``certified_for`` of the report contain it as data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.bounds import Count, Text
from pytest_ckpt.facts.engines import NOT_DIRECT
from pytest_ckpt.grading.reservations import unusual_inputs
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.support.units import counted, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.facts.models import Model
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.judging.gates import Gates
    from pytest_ckpt.sizing.plan import Plan, PlannedCheckpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class ScopedCheckpoint:
    """One checkpoint in the scope of a verdict. ``bytes`` is always its size at full scale.

    ``full_processes`` is the number of processes in the model's full layout. ``processes`` is the number of processes
    that saved and loaded.
    """

    subject: Text
    model: str
    mode: str
    processes: Count
    full_processes: Count
    bytes: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """The scope of a verdict: cluster, checkpoints, engines, strategies, number of hosts and gate table.

    The smallest checkpoint comes first. ``text`` is the scope as a phrase.
    """

    accelerators: Count
    checkpoints: tuple[ScopedCheckpoint, ...]
    engines: tuple[str, ...]
    strategies: tuple[str, ...]
    hosts: Count
    gate_table: str
    text: str


def scope_of(plan: Plan, settings: Settings, gates: Gates, measurements: Iterable[Measurement] = ()) -> Scope:
    """Return the scope of a verdict on a run.

    If ``measurements`` is empty, the engines come from the plan and the hosts from the settings.
    """
    measured = {str(m.subject): m for m in measurements}
    hosts = {host for m in measured.values() for host in m.hosts} or {host.name for host in settings.hosts}
    engines = {str(c.subject): c.subject.engine for c in plan.runnable} | {s: m.engine for s, m in measured.items()}
    planned = sorted(plan.runnable, key=lambda c: c.layout.full_bytes)
    return Scope(
        accelerators=plan.limits.accelerators,
        checkpoints=tuple(
            ScopedCheckpoint(
                subject=str(c.subject),
                model=c.layout.model.name,
                mode=c.layout.mode,
                processes=c.layout.processes,
                full_processes=c.layout.model.processes,
                bytes=c.layout.full_bytes,
            )
            for c in planned
        ),
        engines=tuple(dict.fromkeys(engines[str(c.subject)] for c in planned)),
        strategies=tuple(dict.fromkeys(c.subject.strategy for c in planned)),
        hosts=len(hosts) or 1,
        gate_table=gates.name,
        text=", ".join((_sentence(planned, engines), *_not_direct(measured), *unusual_inputs(plan.limits))),
    )


def _not_direct(measured: Mapping[str, Measurement]) -> list[str]:
    """Return at most one phrase. It names the engines for direct I/O that used the client's page cache."""
    found = [m.engine for m in measured.values() if NOT_DIRECT in m.engine_facts.get("direct", "")]
    return [f"I/O of {named('engine', 'engines', found)} {NOT_DIRECT}"] if found else []


def _sentence(planned: Sequence[PlannedCheckpoint], engines: Mapping[str, str]) -> str:
    if not planned:
        return "no checkpoint was saved"
    largest = planned[-1].layout
    size = format_bytes(largest.full_bytes)
    if largest.mode == "subset":
        size += f", the share of {largest.processes} of its {counted(largest.model.processes, 'rank')}"
    elif largest.mode == "open":
        size += f", spread over {counted(largest.processes, 'rank')}"
    one = len({c.layout.name for c in planned}) == 1
    how = ", ".join(
        (
            named("engine", "engines", (engines[str(c.subject)] for c in planned)),
            named("strategy", "strategies", (c.subject.strategy for c in planned)),
        )
    )
    return f"checkpoints {f'of {largest.model.label} only' if one else f'up to {largest.model.label}'} ({size}), {how}"


def named(one: str, many: str, names: Iterable[str]) -> str:
    """Return a noun and a list of distinct names: ``engine torch``, ``engines torch, stream and dcp``.

    ``one`` is the singular of the noun, ``many`` the plural.
    """
    each = list(dict.fromkeys(names))
    listed = " and ".join(filter(None, (", ".join(each[:-1]), each[-1])))
    return f"{one if len(each) == 1 else many} {listed}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaleShortfall:
    """Why the checkpoints of a run are smaller than a certificate requires, and the remedy."""

    text: str
    remedy: str


def missing_model(plan: Plan, gates: Gates) -> ScaleShortfall | None:
    """Return the shortfall and its remedy if no checkpoint is as large as the gate table requires.

    If a checkpoint is large enough, or the table requires no size, the result is None.
    """
    if not gates.up_to:
        return None
    wanted = MODELS[gates.up_to]
    checkpoints = [c for c in plan.runnable if not c.rehearsal]
    if any(_covers(c, wanted) for c in checkpoints):
        return None
    largest = max((c.layout.model for c in checkpoints), key=lambda model: model.parameters, default=None)
    has = (
        f"the largest that this run saves as it must is {largest.label}"
        if largest
        else "this run does not save such a model"
    )
    is_requested = any(_covers(c, wanted) for c in plan.checkpoints)
    return ScaleShortfall(
        text=f"The gate table '{gates.name}' demands checkpoints of {wanted.label} or a larger model, and {has}.",
        remedy="more ranks: --ckpt-hosts" if is_requested else f"--ckpt-model={wanted.word}",
    )


def _covers(planned: PlannedCheckpoint, wanted: Model) -> bool:
    """Whether a checkpoint's model is at least as large as ``wanted``, compared by the number of parameters.

    The checkpoint of a user's model must also be at least as large in bytes.
    """
    model = planned.layout.model
    if model == wanted:
        return True
    is_large = model.own is None or planned.layout.cluster_bytes >= layout(wanted, mode="full").bytes
    return model.parameters >= wanted.parameters and is_large
