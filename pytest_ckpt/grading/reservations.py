"""Reservations about a result, in addition to the grade. Pure.

The sentences state why the result may not be representative, and which tests are missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.facts.environment import CONFTEST
from pytest_ckpt.facts.observation import EVIDENCE_OF_CUTS, POWER_CUTS
from pytest_ckpt.grading.catalogue import chosen_suites
from pytest_ckpt.judging.clients import describe_effect, has_proven_fsync
from pytest_ckpt.support.units import counted, format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_ckpt.facts.measurement import Measurement, OperationKind
    from pytest_ckpt.facts.observation import Observation
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.judging.gates import Gates
    from pytest_ckpt.judging.requirement import Requirement
    from pytest_ckpt.sizing.limits import ClusterLimits
    from pytest_ckpt.sizing.plan import Plan

SHORTEST_SECONDS = 1.0
SMALLEST_BYTES_OF_HOST = 1_000_000_000
"""The minimum seconds of an operation, and its minimum bytes per host, to show the rate of an array."""

_USUAL_BUDGETS = (0.005, 0.2)
_LENIENT_LIMIT_SECONDS, _LONG_LIMIT_SECONDS = 600.0, 3600.0
_ACCELERATORS_OF_A_HOST = 8
_OF_A_LOCAL_DISK = 2 * _ACCELERATORS_OF_A_HOST


def unusual_inputs(limits: ClusterLimits) -> list[str]:
    """Return the operator's inputs that make limits unusually lenient or strict, one phrase each."""
    budgets = (("save", limits.save_budget), ("load", limits.load_budget))
    found = [
        f"{name} budget {format_percent(share)}"
        for name, share in budgets
        if not _USUAL_BUDGETS[0] <= share <= _USUAL_BUDGETS[1]
    ]
    if _is_lenient_rate(limits):
        found.append(f"failure rate '{limits.failures.spec}'")
    return found


def is_projectable(measurement: Measurement) -> bool:
    """Whether the operations are long and large enough for predictions about a cluster of another size.

    If ranks did not record their own times, as in some results of other tools, the result is always True.
    """
    if measurement.basis != "all ranks":
        return True
    return not _too_short(measurement) and not _too_small(measurement)


def relevance(
    plan: Plan,
    measurements: Sequence[Measurement],
    of_one_host: str,
    recorders: Sequence[str] = (),
    files_below: Sequence[str] = (),
) -> list[str]:
    """Return the reasons why a result may not represent a storage system, one sentence each.

    If the ranks did not record their own times, as in some results of other tools, the list is empty.

    - ``of_one_host``: a description of a target that only one host can use; empty for any other target.
    - ``recorders``: additional code in the process that recorded the results.
    - ``files_below``: files of this host that contain the target's bytes.
    """
    measured = [m for m in measurements if m.basis == "all ranks"]
    if not measured:
        return []
    return [
        *_of_the_operator(recorders, files_below),
        *_of_the_question(plan),
        *_of_clients(plan, measured, of_one_host),
    ]


def not_tested(
    settings: Settings,
    gates: Gates,
    catalogue: Mapping[str, Requirement],
    measurements: Sequence[Measurement],
    observations: Sequence[Observation] = (),
    *,
    has_files: bool,
) -> list[str]:
    """Return a sentence for each missing proof or test, with the resulting risk; empty for other tools' results."""
    measured = [m for m in measurements if m.basis == "all ranks"]
    if not measured:
        return []
    suites = chosen_suites(settings, gates, catalogue)
    durability = _of_durability(settings, measured, has_files=has_files)
    return [
        *durability,
        *_of_commits(measured, has_files=has_files),
        *_of_power_cuts(observations),
        *_of_missing_inputs(settings, suites, has_files=has_files),
    ]


def _of_the_operator(recorders: Sequence[str], files_below: Sequence[str]) -> Iterator[str]:
    if own := [phrase for phrase in recorders if phrase.startswith(CONFTEST)]:
        yield (
            f"Code of the operator ran in the process that recorded the results ({', '.join(own)}), and could change "
            "them: request a run without it."
        )
    if files_below:
        yield f"The target is stored in a file of this host ({', '.join(files_below)}): not a separate storage."


def _of_the_question(plan: Plan) -> Iterator[str]:
    limits = plan.limits
    # The headline lists these too (`grading.scope`).
    for planned in plan.runnable:
        if planned.layout.model.own:
            yield f"{_sentence(planned.layout.model.label)} is the operator's: it is not a model of the workload."
            break
    for name, share in (("save", limits.save_budget), ("load", limits.load_budget)):
        if not _USUAL_BUDGETS[0] <= share <= _USUAL_BUDGETS[1]:
            yield f"The {name} budget of {format_percent(share)} was set by the operator; usual are 0.5 % to 20 %."
    if _is_lenient_rate(limits):
        limit = format_seconds(limits.save_limit_seconds)
        yield f"The failure rate '{limits.failures.spec}' was stated by the operator: a save may take {limit}."
    if limits.save_limit_seconds > _LONG_LIMIT_SECONDS:
        yield f"The save limit is {format_seconds(limits.save_limit_seconds)}: nearly any storage meets it."
    if limits.save_limit_seconds < SHORTEST_SECONDS:
        yield f"The save limit is {format_seconds(limits.save_limit_seconds)}: saves are judged by latency."


def _is_lenient_rate(limits: ClusterLimits) -> bool:
    """Whether the operator's own failure rate leads to such a long save limit that the rate may be invented."""
    return limits.failures.spec != "llama3" and limits.save_limit_seconds > _LENIENT_LIMIT_SECONDS


def _of_clients(plan: Plan, measured: Sequence[Measurement], of_one_host: str) -> Iterator[str]:
    hosts = {host for m in measured for host in m.hosts}
    accelerators = plan.limits.accelerators
    if of_one_host and accelerators > _OF_A_LOCAL_DISK:
        yield f"The target is {of_one_host}: {counted(accelerators, 'accelerator')} cannot share it."
    elif len(hosts) == 1 and accelerators > _ACCELERATORS_OF_A_HOST:
        yield f"One host was the only client, for a cluster of {counted(accelerators, 'accelerator')}."
    if small := [m for m in measured if _too_small(m)]:
        least = min(small, key=_bytes_of_host)
        size = format_bytes(_bytes_of_host(least))
        yield f"A checkpoint of {least.subject} was {size} a host, less than 1 GB."
    if short := [(seconds, kind) for m in measured for kind, seconds in _slowest(m) if seconds < SHORTEST_SECONDS]:
        seconds, kind = min(short)
        yield f"The slowest {kind} of a checkpoint took {format_seconds(seconds)}, less than 1 s."


def _of_durability(settings: Settings, measured: Sequence[Measurement], *, has_files: bool) -> Iterator[str]:
    if not has_files or settings.power_cut or settings.fault_command or has_proven_fsync(measured):
        return
    reason = next((text for m in measured if m.client_proofs and (text := describe_effect(m.client_proofs))), "")
    yield " ".join(
        filter(
            None,
            (
                "Durability was acknowledged, not proven.",
                reason,
                "Neither a power cut (--ckpt-actions [power_cut] command) nor a failure of a component "
                "(--ckpt-actions [failover] fault) was tried.",
            ),
        )
    )


def _of_commits(measured: Sequence[Measurement], *, has_files: bool) -> Iterator[str]:
    if has_files and any(m.durability and "marker" in m.durability.commit_methods for m in measured):
        yield (
            "The target refuses to rename a directory: a marker file committed each checkpoint, as torch's DCP does. "
            "Libraries that rename the complete directory (Orbax, Hugging Face) cannot save there."
        )


def _of_power_cuts(observations: Sequence[Observation]) -> Iterator[str]:
    for seen in observations:
        if evidence := seen.facts.get(EVIDENCE_OF_CUTS):
            yield (
                f"That the power was cut rests on the operator's command (--ckpt-actions [power_cut] "
                f"command). {evidence}."
            )
        if bound := seen.facts.get(POWER_CUTS):
            # The number of power cuts is always printed, with its meaning.
            yield f"Power cuts: {bound}."


def _of_missing_inputs(settings: Settings, suites: Sequence[str], *, has_files: bool) -> Iterator[str]:
    if has_files and not settings.power_cut:
        yield (
            "No power was cut, so a volatile write cache would not have been noticed. "
            "Option: --ckpt-actions [power_cut] command."
        )
    if has_files and not (settings.second_mount or settings.has_several_hosts):
        yield "No second client took part, so the view of other hosts was not checked. Option: --ckpt-second-mount."
    if has_files and not settings.small_volume:
        yield "No volume was filled, so behaviour without space was not checked. Option: --ckpt-small-volume."
    if "conformance" not in suites:
        yield (
            "No behaviour check ran, so only speed, bytes and durable calls were checked. "
            "Option: --ckpt-suite=conformance."
        )
    if "contention" not in suites:
        yield "No second job ran, so the effects of other load were not measured. Option: --ckpt-suite=contention."
    if "endurance" not in suites:
        yield "Hours of load and a nearly full volume were not measured. Option: --ckpt-suite=endurance."


def _bytes_of_host(measurement: Measurement) -> float:
    return measurement.bytes / max(1, len(measurement.hosts))


def _too_small(measurement: Measurement) -> bool:
    return _bytes_of_host(measurement) < SMALLEST_BYTES_OF_HOST


def _too_short(measurement: Measurement) -> bool:
    return any(seconds < SHORTEST_SECONDS for _, seconds in _slowest(measurement))


def _slowest(measurement: Measurement) -> list[tuple[OperationKind, float]]:
    """Return (kind, seconds) of the slowest save and of the slowest load, if any."""
    kinds: tuple[OperationKind, ...] = ("save", "load")
    return [(kind, max(o.seconds for o in found)) for kind in kinds if (found := measurement.of_kind(kind))]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
