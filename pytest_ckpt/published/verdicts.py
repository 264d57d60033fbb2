"""The verdicts on a published result: whether its files prove that a requirement is met. Pure (no I/O).

DLIO's code is the source for DLIO's behaviour. The rules of MLPerf Storage (Rules.md, 4.3.1 and 4.7.1, and
checkpointing/README.md) are the source for the rule to clear caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pytest_ckpt.facts.measurement import Measurement, Operation, OperationKind
from pytest_ckpt.facts.proofs import CacheReading
from pytest_ckpt.facts.verdict import Reason, Verdict
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.speed import HOW_SURE
from pytest_ckpt.judging.verdicts import KIND_OF, decide, not_run
from pytest_ckpt.published.results import Result, comparable
from pytest_ckpt.published.runs import KINDS
from pytest_ckpt.published.times import ALL_RANKS, RANK_0
from pytest_ckpt.published.traffic import dropped_between
from pytest_ckpt.sizing.caches import cache_readings
from pytest_ckpt.sizing.limits import ClusterLimits
from pytest_ckpt.support.units import counted, format_bytes, format_count, format_percent, format_seconds

NOT_TESTED = "DLIO does not test this."
NOT_EXPORTED = "These files have no place for it: judge the directory of the run of {} that was exported."

_MAY_BE_CACHED = "A part of their reads may have come from a cache."

TimeOutcome = Literal["met", "failed", "met as far as recorded", "not known"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedTime:
    """The outcome of the saves, or of the loads, of a result.

    An operation is known if the exact time of its slowest process is known. ``known`` is the number of known
    operations. If the outcome is ``met`` or ``failed``, ``known`` is the number of all operations.

    The outcome is ``met as far as recorded`` if all known operations met the limit, and no recorded time of the other
    operations exceeds the limit. The verdict of the requirement is then "not run".
    """

    kind: OperationKind
    outcome: TimeOutcome
    known: int
    operations: int

    @property
    def text(self) -> str:
        """The outcome as text. A partial outcome contains the count: ``met as far as recorded: 9 of 10 loads``."""
        if self.outcome != "met as far as recorded":
            return self.outcome
        return f"{self.outcome}: {self.known} of {counted(self.operations, self.kind)}"


def recorded_time(result: Result, kind: OperationKind, verdicts: Iterable[Verdict]) -> RecordedTime:
    """Return the outcome of the saves, or of the loads, from the verdicts on a result."""
    verdict = next((v for v in verdicts if v.id == kind.upper()), None)
    operations = result.measurement.of_kind(kind)
    known = sum(map(_is_known, operations))
    outcome: TimeOutcome = "not known"
    if verdict and verdict.outcome in ("met", "failed"):
        outcome, known = ("met" if verdict.outcome == "met" else "failed"), len(operations)
    elif verdict and verdict.reason == "perhaps late" and known:
        outcome = "met as far as recorded"
    return RecordedTime(kind=kind, outcome=outcome, known=known, operations=len(operations))


def judge_result(result: Result, requirement: Requirement, limits: ClusterLimits, gates: Gates) -> Verdict:
    """Return the verdict of one requirement on a published result.

    If the files do not decide the requirement, the verdict is "not run" with the reason.
    """
    if kind := KIND_OF.get(requirement.id):
        return _time(result, requirement, limits, gates, kind)
    if requirement.id == "STRAGGLER":
        return _straggler(result, requirement, limits, gates)
    if requirement.id == "REPEAT":
        return _repeat(result, requirement, limits, gates)
    if exported_by := next((d for run in result.runs if (d := run.files.facts.disclosed.exported_by)), ""):
        because = NOT_EXPORTED.format(exported_by)
        return not_run(requirement, str(result.measurement.subject), "not recorded", because, gates)
    because = _WHY[requirement.id](result) if requirement.id in _WHY else NOT_TESTED
    verdict = not_run(requirement, str(result.measurement.subject), "not recorded", because, gates)
    return replace(verdict, detail="\n".join(_readings_text(result))) if requirement.id == "COLD" else verdict


def _time(
    result: Result, requirement: Requirement, limits: ClusterLimits, gates: Gates, kind: OperationKind
) -> Verdict:
    measurement, figures = result.measurement, result.figures[kind]
    if not figures.operations and not figures.planned:
        because = f"The result contains no {kind}s: they belong to another run."
        return not_run(requirement, str(measurement.subject), "not recorded", because, gates)
    if figures.operations == figures.planned:
        measurement = replace(measurement, operations_planned=figures.operations)
    verdict = decide(requirement, measurement, limits, gates)
    bounded = [o for o in measurement.of_kind(kind) if o.at_least_seconds is not None]
    if verdict.limit is not None and (between := _only_perhaps_late(measurement, kind, verdict.limit)):
        verdict = _of_known(_undecided(verdict, "perhaps late", between), measurement, kind, requirement, limits, gates)
    elif verdict.outcome == "met" and (unseen := _perhaps_late_unseen(measurement, kind, verdict.limit or 0.0)):
        verdict = _of_known(_undecided(verdict, "perhaps late", unseen), measurement, kind, requirement, limits, gates)
    elif verdict.outcome == "failed":
        # The count contains only the operations that were certainly late.
        perhaps = [_perhaps(o) for o in bounded if o.least_seconds <= (verdict.limit or 0.0) < o.seconds]
        verdict = replace(verdict, because=" ".join([verdict.because, *perhaps]))
    lines = [verdict.detail, f"basis: {bases_text(result, kind)}"]
    lines += [f"{_perhaps(o)} The longest recorded time is the lower bound." for o in bounded]
    if figures.published_seconds is not None:
        lines.append(f"published (mean of rank 0's own times): {format_seconds(figures.published_seconds)}")
    if figures.overstatement is not None and figures.slowest_mean_seconds is not None:
        lines.append(
            f"the same mean by the slowest process: {format_seconds(figures.slowest_mean_seconds)}, "
            f"{format_percent(figures.overstatement)} longer"
        )
    return replace(verdict, detail="\n".join(filter(None, lines)))


def _is_known(operation: Operation) -> bool:
    """Whether the exact time of the slowest process is known."""
    return operation.basis != RANK_0 and operation.at_least_seconds is None


def _of_known(
    verdict: Verdict,
    measurement: Measurement,
    kind: OperationKind,
    requirement: Requirement,
    limits: ClusterLimits,
    gates: Gates,
) -> Verdict:
    """Return the undecided ``verdict`` with the confidence bound and the estimate from operations with known times.

    If no operation has a known time, the bound and the estimate are None.
    """
    lines = [line for line in verdict.detail.splitlines() if not line.startswith(HOW_SURE)]
    known = tuple(filter(_is_known, measurement.of_kind(kind)))
    if not known:
        return replace(verdict, bound=None, estimate=None, detail="\n".join(lines))
    decided = decide(requirement, replace(measurement, operations=known, operations_planned=len(known)), limits, gates)
    lines += [line for line in decided.detail.splitlines() if line.startswith(HOW_SURE)]
    return replace(verdict, bound=decided.bound, estimate=decided.estimate, detail="\n".join(lines))


def _only_perhaps_late(measurement: Measurement, kind: OperationKind, limit: float) -> str:
    """Return a sentence on operations that may have exceeded the limit; otherwise return an empty text.

    The upper bound of such an operation's time exceeds the limit, and the lower bound does not. The text is empty if
    there is no such operation, or if another operation certainly exceeded the limit.
    """
    late = [o for o in measurement.of_kind(kind) if o.seconds > limit]
    if not late or any(o.least_seconds > limit for o in late):
        return ""
    return f"All others met {format_seconds(limit)}. {' '.join(map(_perhaps, late))}"


def _perhaps_late_unseen(measurement: Measurement, kind: OperationKind, limit: float) -> str:
    """Return a sentence on operations whose slowest process is unknown; empty if there are no such operations.

    The longest recorded time of such an operation is a lower bound, so it cannot prove that the limit was met.
    Therefore the removal of a slow rank's file gives no advantage.
    """
    operations = measurement.of_kind(kind)
    unseen = [o for o in operations if o.basis == RANK_0]
    if not unseen:
        return ""
    if len(unseen) == 1:
        which = f"{kind.capitalize()} {unseen[0].index} may have missed it: its"
    else:
        which = f"{len(unseen)} of {counted(len(operations), kind)} may have missed it: their"
    return f"The recorded times met {format_seconds(limit)}. {which} slowest process is not known."


def _undecided(verdict: Verdict, reason: Reason, because: str) -> Verdict:
    """Return the verdict changed to "not run". ``because`` explains why the files do not decide the requirement."""
    return replace(verdict, outcome="not run", reason=reason, measured=None, margin=None, because=because)


def _perhaps(operation: Operation) -> str:
    return (
        f"{operation.kind.capitalize()} {operation.index}, the last, took at least "
        f"{format_seconds(operation.least_seconds)} and at most {format_seconds(operation.seconds)}: the first load "
        "started then."
    )


def bases_text(result: Result, kind: OperationKind) -> str:
    """Return the number of operations for each basis, as text, such as ``9 inferred from rank 0, 1 rank 0 only``.

    A basis is the source of an operation's time. If all operations have one basis, the text is only the basis.
    """
    bases = result.figures[kind].bases
    if len(bases) == 1:
        return next(iter(bases))
    return ", ".join(f"{count} {basis}" for basis, count in bases.items())


def _straggler(result: Result, requirement: Requirement, limits: ClusterLimits, gates: Gates) -> Verdict:
    measurement = result.measurement
    if any(run.files.facts.rank_sync for run in result.runs):
        because = (
            "With checkpoint.rank_sync every rank waits for the slowest before it stops its clock: the ranks' own "
            "times are not recorded."
        )
        return not_run(requirement, str(measurement.subject), "not recorded", because, gates)
    complete = tuple(o for o in measurement.operations if o.basis == ALL_RANKS)
    if not complete:
        rank_count = max(run.rank_count for run in result.runs)
        because = f"Only {format_count(rank_count)} of {counted(measurement.processes, 'rank')} recorded their times."
        return not_run(requirement, str(measurement.subject), "not recorded", because, gates)
    verdict = decide(requirement, replace(measurement, operations=complete), limits, gates)
    left_out = len(measurement.operations) - len(complete)
    if not left_out:
        return verdict
    because = f"{verdict.because} Of {counted(left_out, 'other operation')} not every rank is recorded."
    # The straggler may be in exactly these operations.
    return (
        _undecided(verdict, "not recorded", because) if verdict.outcome == "met" else replace(verdict, because=because)
    )


def _repeat(result: Result, requirement: Requirement, limits: ClusterLimits, gates: Gates) -> Verdict:
    measurement = result.measurement
    kept = tuple(o for kind in KINDS for o in comparable(measurement.of_kind(kind)))
    verdict = decide(requirement, replace(measurement, operations=kept), limits, gates)
    unknown = sum(o.basis == RANK_0 or o.at_least_seconds is not None for o in measurement.operations)
    if unknown:
        because = f"{verdict.because} The slowest process of {unknown} of "
        because += f"{counted(len(measurement.operations), 'operation')} is not known."
        # Any of these ranks may have taken a different time.
        is_met = verdict.outcome == "met"
        verdict = _undecided(verdict, "perhaps late", because) if is_met else replace(verdict, because=because)
    if not result.signs:
        return verdict
    return replace(verdict, outcome="failed", because=" ".join([*result.signs, _MAY_BE_CACHED, verdict.because]))


def _cold(result: Result) -> str:
    """Return sentences on the clients' caches.

    The sentences state the submission rule on caches, and the data that may have been cached.
    """
    listed = ["DLIO neither drops caches nor checks their content."]
    readings = readings_of(result)
    rules = sorted({r.rule for r in readings if r.requires_drop})
    if not readings:
        listed.append(
            "It is not known whether MLPerf Storage's rule requires clearing them: the clients' number and memory are "
            "not recorded."
        )
    elif rules:
        listed.append(f"MLPerf Storage's rule requires clearing them between saves and loads ({rules[0]}).")
    else:
        listed.append(
            "MLPerf Storage's rule requires no clearing: the checkpoints are large enough compared with the memory."
        )
    if not any(run.of_kind("load") for run in result.runs):
        return listed[0]
    if any(run.of_kind("save") and run.of_kind("load") for run in result.runs):
        listed.append("Saves and loads are of one run, which does not clear them in between.")
    elif not any(run.of_kind("save") for run in result.runs):
        listed.append("The saves are another run's, and the files do not show whether they were cleared in between.")
    elif caches_dropped(result):
        listed.append("Saves and loads are of different runs; each host's kernel dropped its page cache in between.")
    else:
        listed.append(
            "Saves and loads are of different runs; the files do not show whether they were cleared in between."
        )
    listed += [
        _caches(result),
        network_text(result),
        *([*result.signs, _MAY_BE_CACHED] if result.signs else []),
    ]
    return " ".join(filter(None, listed))


def caches_dropped(result: Result) -> bool:
    """Whether the kernels' counters prove that each loading host dropped its page cache between saves and loads.

    These counters do not cover a cache of the storage vendor's client software.
    """
    saving = [run for run in result.runs if run.of_kind("save") and not run.of_kind("load")]
    loading = [run for run in result.runs if run.of_kind("load") and not run.of_kind("save")]
    if len(saving) != 1 or len(loading) != 1 or len(result.runs) != len(saving) + len(loading):
        return False
    return bool(dropped_between(saving[0].counters, loading[0].counters))


def network_text(result: Result) -> str:
    """Return a sentence on the bytes that the hosts received during the loads; empty if they are not recorded."""
    network = result.network
    if network is None:
        return ""
    share = format_percent(network.received_bytes / network.loaded_bytes, digits=3)
    amount = f"{'at least ' if network.at_least else ''}{format_bytes(network.received_bytes)}"
    text = f"During the loads the hosts' network interfaces received {amount}, {share} of the loaded bytes"
    if network.crossed:
        return f"{text}: the loads crossed the network."
    text += ", at the last sample before they ended" if network.at_least else ""
    return f"{text}. Caches and disks of the hosts are not in these counters, nor are RDMA adapters."


def _caches(result: Result) -> str:
    """Return a sentence on the size of the page caches when the runs with loads began; empty if not recorded."""
    loading = [run.files.facts.cached_bytes for run in result.runs if run.of_kind("load") and not run.of_kind("save")]
    known = [amount for amount in loading if amount is not None]
    if not known or len(known) < len(loading):
        return ""
    of_one = format_percent(max(known) / result.measurement.bytes, digits=2)
    return (
        f"By mlpstorage's metadata the clients' page caches contained {format_bytes(max(known))} when the loads' run "
        f"began, {of_one} of one checkpoint."
    )


def readings_of(result: Result) -> list[CacheReading]:
    """Return the two interpretations of the submission rule on caches, for each client.

    The computation assumes that the ranks fill the hosts in order and evenly. Return an empty list if the number of
    clients or their memory is not recorded, or if the ranks cannot be divided evenly.
    """
    facts = [run.files.facts for run in result.runs]
    memory = max((f.host_memory_bytes for f in facts), key=len)
    count = max(f.host_count or 0 for f in facts)
    measurement, saves = result.measurement, result.figures["save"].operations
    if not memory or len(memory) != count or measurement.processes % count:
        return []
    ranks = measurement.processes // count
    return [
        reading
        for host, amount in enumerate(memory)
        for reading in cache_readings(
            measurement.hosts[host] if host < len(measurement.hosts) else f"host {host + 1}",
            amount,
            sum(measurement.rank_bytes[host * ranks : (host + 1) * ranks]),
            saves or result.figures["load"].operations,
        )
    ]


def _readings_text(result: Result) -> list[str]:
    return [
        f"{r.host}: {r.rule}: {format_bytes(r.bytes_compared)} against {format_bytes(r.memory_bytes)} of memory, "
        + ("caches must be dropped" if r.requires_drop else "no drop needed")
        for r in readings_of(result)
    ]


def _durable(result: Result) -> str:
    because = "DLIO records no fsync of a file or directory, and commits by no rename."
    if any(run.files.facts.fsync for run in result.runs):
        because += " Its setting checkpoint.fsync is on here, but is stored under a name that its save never reads."
    return because


# The reasons why the files of a result do not show a property.
_WHY: Mapping[str, Callable[[Result], str]] = {
    "INTEGRITY": lambda _: "DLIO does not compare loaded bytes with saved bytes.",
    "COLD": _cold,
    "DURABLE-CALLS": _durable,
}
