"""Values of a report that all output formats show.

A subject is a measured combination of model, mode, engine and strategy. A start is one pytest invocation of a run.
"""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pytest_ckpt.facts.engines import BUILT_IN
from pytest_ckpt.facts.measurement import clients_of_run
from pytest_ckpt.facts.options import NOT_SET
from pytest_ckpt.facts.strategies import STRATEGY_OF
from pytest_ckpt.grading.grading import EXIT_INCOMPLETE
from pytest_ckpt.judging.clients import GATES_DEMAND
from pytest_ckpt.judging.verdicts import KIND_OF
from pytest_ckpt.report.quantity import time_text
from pytest_ckpt.support.units import counted, format_bytes, format_percent, format_seconds, format_share

Document = Mapping[str, Any]
RehearsalResult = Literal["passed", "failed", "incomplete"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """The results of one kind of operation, saves or loads, for one subject (a model, and how it is saved).

    Values that were not measured are None.
    """

    kind: str
    operations: tuple[Document, ...]
    planned: int
    limit_seconds: float | None
    needed_bytes_per_second: float | None
    bytes: int | None
    sufficient_up_to_accelerators: int | None
    projected: bool
    is_proven: bool

    @property
    def seconds(self) -> list[float]:
        """The times of all operations, in order."""
        return [o["seconds"] for o in self.operations]

    @property
    def worst(self) -> Document | None:
        """The slowest operation, which determines the verdict."""
        return max(self.operations, key=lambda o: o["seconds"], default=None)

    @property
    def slowest_seconds(self) -> float | None:
        """The time of the slowest operation."""
        return max(self.seconds, default=None)

    @property
    def fastest_seconds(self) -> float | None:
        """The time of the fastest operation."""
        return min(self.seconds, default=None)

    @property
    def mean_seconds(self) -> float | None:
        """The mean of the times."""
        return statistics.fmean(self.seconds) if self.operations else None

    @property
    def median_seconds(self) -> float | None:
        """The median of the times."""
        return statistics.median(self.seconds) if self.operations else None

    @property
    def variation(self) -> float | None:
        """The coefficient of variation of the times: the sample standard deviation divided by the mean.

        None for fewer than two operations. Also None if the operations have different bytes, such as deltas and full
        saves.
        """
        if len({o.get("bytes") for o in self.operations}) > 1:
            return None
        mean = self.mean_seconds
        return statistics.stdev(self.seconds) / mean if mean and len(self.operations) > 1 else None

    @property
    def rank0_seconds(self) -> float | None:
        """The largest of the times that rank 0 measured. Published results use the times of rank 0."""
        return max((o["rank0_seconds"] for o in self.operations if o.get("rank0_seconds") is not None), default=None)

    @property
    def margin(self) -> float | None:
        """The unused share of the limit in the slowest operation; negative if that operation exceeds the limit."""
        slowest = self.slowest_seconds
        return None if slowest is None or not self.limit_seconds else 1 - slowest / self.limit_seconds

    @property
    def got_bytes_per_second(self) -> float | None:
        """The rate of the slowest operation."""
        slowest = max(self.operations, key=lambda o: o["seconds"], default=None)
        moved = slowest and (slowest.get("bytes") or self.bytes)
        return moved / slowest["seconds"] if slowest and moved and slowest["seconds"] else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """One subject (a model, and how it is saved) of a report: its plan, measurement and verdicts."""

    name: str
    checkpoint: Document
    measurement: Document | None
    verdicts: tuple[Document, ...]
    sizes: Document
    training: Document | None
    save: Kind
    load: Kind

    def undecided(self, kind: Kind) -> str:
        """Return the reason code if ``kind`` was measured but its verdict is ``not run``; otherwise empty."""
        of_kind = [v for v in self.verdicts if KIND_OF.get(v["id"]) == kind.kind and kind.operations]
        return next((v["reason"] for v in of_kind if v["outcome"] == "not run"), "")

    @property
    def kinds(self) -> tuple[Kind, Kind]:
        """The saves and the loads, in this order."""
        return self.save, self.load

    @property
    def clients(self) -> tuple[int, str]:
        """The number of clients that took part, and their unit (host or rank); 0 without a measurement."""
        ran = self.measurement or {}
        count, unit = clients_of_run(len(ran.get("hosts") or ()), ran.get("processes") or 0)
        return count, unit[:-1]

    @property
    def not_run(self) -> str:
        """The reason why the subject was not measured; empty if it was measured."""
        if self.measurement is not None:
            return ""
        reason = self.checkpoint.get("not_run") or next(
            (v["because"] for v in self.verdicts if v["outcome"] == "not run" and v.get("because")), ""
        )
        return str(reason or "nothing was measured")


def subjects(document: Document) -> list[Subject]:
    """Return every subject in the document, in the order of the plan."""
    plans = _by_subject(document.get("checkpoints"))
    measured = _by_subject(document.get("measurements"))
    sizes = _by_subject(document.get("sufficient_up_to_accelerators"))
    training = _by_subject(document.get("training"))
    verdicts = document.get("requirements") or []
    behaviour = behaviour_ids(document)
    judged = (v["subject"] for v in verdicts if v.get("subject") and v["id"] not in behaviour)
    names = dict.fromkeys([*plans, *measured, *judged, *sizes])
    found = []
    for name in names:
        plan, ran, size = plans.get(name, {}), measured.get(name), sizes.get(name, {})
        found.append(
            Subject(
                name=name,
                checkpoint=plan,
                measurement=ran,
                verdicts=tuple(v for v in verdicts if v.get("subject") == name and v["id"] not in behaviour),
                sizes=size,
                training=training.get(name),
                save=_kind("save", document, plan, ran or {}, size),
                load=_kind("load", document, plan, ran or {}, size),
            )
        )
    return found


def behaviour_ids(document: Document) -> set[str]:
    """Return the ids of the requirements on the target's behaviour (suite conformance)."""
    return {row["id"] for row in document.get("catalogue") or [] if row.get("suite") == "conformance"}


def plugins_by_id(document: Document) -> dict[str, str]:
    """Return {id of a requirement: name of the plugin that provides this requirement}."""
    return {row["id"]: row["plugin"] for row in document.get("catalogue") or [] if row.get("plugin")}


def next_steps(document: Document) -> dict[str, str]:
    """Return {id of a requirement: recommended first action after a failure}."""
    return {row["id"]: row["next_step"] for row in document.get("catalogue") or [] if row.get("next_step")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Conclusion:
    """The conclusion from the measured saves or loads of one subject about all saves or loads of this subject.

    The verdict on the requirement SAVE or LOAD contains ``bound`` and ``estimate``. ``bound`` states the share of all
    operations that is proven to meet the limit. ``estimate`` states the time that most operations do not exceed. One of
    the two fields may be None.
    """

    kind: str
    limit_seconds: float
    bound: Document | None
    estimate: Document | None

    @property
    def is_estimate_late(self) -> bool:
        """Whether the estimated time is over the limit."""
        return self.estimate is not None and self.estimate["seconds"] > self.limit_seconds


def how_sure(document: Document) -> dict[str, list[Conclusion]]:
    """Return {subject: conclusions that the verdicts on SAVE and LOAD draw about all saves and loads}."""
    conclusions: dict[str, list[Conclusion]] = {}
    for verdict in document.get("requirements") or []:
        bound, estimate = verdict.get("bound"), verdict.get("estimate")
        kind = KIND_OF.get(verdict["id"])
        if kind and (bound or estimate):
            found = Conclusion(kind=kind, limit_seconds=verdict["limit"], bound=bound, estimate=estimate)
            conclusions.setdefault(verdict["subject"], []).append(found)
    return conclusions


def closest_to_limits(subjects: Sequence[Subject]) -> str:
    """Return a sentence on two operations: the save and the load that needed the largest share of their limits.

    Times that were not judged are left out. Without times, the sentence is empty.
    """
    phrases = []
    for kinds in zip(*(subject.kinds for subject in subjects), strict=True):
        judged = [
            (kind.margin, kind, subject.name)
            for kind, subject in zip(kinds, subjects, strict=True)
            if kind.margin is not None and not subject.undecided(kind)
        ]
        if judged:
            _, kind, name = min(judged, key=lambda of: of[0])
            took, limit = (format_seconds(s) for s in (kind.slowest_seconds or 0.0, kind.limit_seconds or 0.0))
            phrases.append(f"slowest {kind.kind} {took} of {limit} allowed ({name})")
    text = ", ".join(phrases)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def amount(subjects: Sequence[Subject]) -> str:
    """Return a phrase with the bytes and the number of all timed saves and loads.

    Scenarios and checks are not counted.
    """
    totals: dict[str, tuple[int, int]] = {}
    for kind in (kind for subject in subjects for kind in subject.kinds):
        moved = sum(operation.get("bytes") or kind.bytes or 0 for operation in kind.operations)
        count, total = totals.get(kind.kind, (0, 0))
        totals[kind.kind] = (count + len(kind.operations), total + moved)
    return (
        ", ".join(
            f"{format_bytes(total)} in {counted(count, kind)}" for kind, (count, total) in totals.items() if count
        )
        or "no save and no load"
    )


def shares_shown(document: Document) -> list[str]:
    """Return sentences on the proven share: the share of all saves and loads that is proven to meet the limit.

    One sentence covers all subjects with equal shares.
    """
    subjects: dict[str, list[str]] = {}
    for subject, conclusions in how_sure(document).items():
        bounds = {f"{c.kind}s": c.bound for c in conclusions if c.bound}
        if not bounds:
            continue
        shares = " and ".join(
            f"{format_percent(bound['share'])} of {kind}{_misses(bound)}" for kind, bound in bounds.items()
        )
        confidence = format_share(next(iter(bounds.values()))["confidence"])
        sentence = f"With {confidence} confidence, at least {shares} meet the limit, if independent"
        subjects.setdefault(sentence, []).append(subject)
    is_one = len(subjects) == 1
    return [f"{sentence}." if is_one else f"{sentence}: {', '.join(of)}." for sentence, of in subjects.items()]


def _misses(bound: Document) -> str:
    """Return a text in brackets: how many operations missed the limit, and how many are allowed to miss it.

    If no miss is allowed, the text is empty.
    """
    allowed = bound.get("misses_allowed")
    return f" ({bound['trials'] - bound['met']} of {bound['trials']} missed, {allowed} allowed)" if allowed else ""


def unread_copies(document: Document) -> list[str]:
    """Return a sentence for each subject whose restart would read several copies of the model.

    A measured load reads only one copy.
    """
    copies_of = (
        (s.name, (s.checkpoint.get("demand") or {}).get("copies") or 1) for s in subjects(document) if s.load.seconds
    )
    return [
        f"{name}: each load read one copy of the model. A restart of "
        f"{counted(document['cluster']['accelerators'], 'accelerator')} reads up to "
        f"{counted(copies, 'copy', 'copies')}; LOAD did not measure this."
        for name, copies in copies_of
        if copies > 1
    ]


def methods(document: Document) -> list[str]:
    """Return the engines and strategies of a run, each with its help text. A plugin's engine has no help text."""
    scope = document.get("scope") or {}
    engines = {engine.name: engine.help for engine in BUILT_IN}
    strategies = {name: strategy.help for name, strategy in STRATEGY_OF.items()}
    named = [("engine", name, engines.get(name)) for name in scope.get("engines") or []]
    named += [("strategy", name, strategies.get(name)) for name in scope.get("strategies") or []]
    return [f"{kind} {name}{f': {text}' if text else ''}" for kind, name, text in named]


def cure(verdict: Document) -> str:
    """Return the known fix for the cause of a failure, from the verdict's detail; empty if no fix is known."""
    cures = (line.removeprefix("cure: ") for line in verdict["detail"].splitlines() if line.startswith("cure: "))
    return next(cures, "")


def behaviour(document: Document) -> list[Document]:
    """Return the verdicts on the target's behaviour."""
    ids = behaviour_ids(document)
    return [v for v in document.get("requirements") or [] if v["id"] in ids]


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictGroup:
    """Verdicts with the same reason. ``names`` contains the requirements and the subjects of these verdicts."""

    names: str
    because: str


def group_verdicts(verdicts: Sequence[Document], behaviour_of: Collection[str]) -> list[VerdictGroup]:
    """Return verdicts grouped by reason.

    ``behaviour_of`` contains the ids of the requirements on the target's behaviour.
    """
    causes: dict[tuple[str, str], list[str]] = {}
    for v in verdicts:
        name, of = (f"{v['id']} {v['subject']}", "") if v["id"] in behaviour_of else (v["id"], v["subject"])
        causes.setdefault((of, v["because"]), []).append(name)
    # Equal verdicts on several checkpoints are reported once.
    subjects: dict[tuple[str, str], list[str]] = {}
    for (of, because), names in causes.items():
        subjects.setdefault((", ".join(names), because), []).append(of)
    return [
        VerdictGroup(names=named + (f" of {', '.join(found)}" if any(found) else ""), because=because)
        for (named, because), found in subjects.items()
    ]


def rehearsal_result(document: Document) -> RehearsalResult:
    """Return the result of a rehearsal, which is a run that cannot be certified."""
    required = counts([v for v in document.get("requirements") or [] if v["severity"] == "required"])
    # A rehearsal may fail without a failed verdict, if the gate table's demands on clients are unmet.
    if required.get("failed") or any(reason.startswith(GATES_DEMAND) for reason in document.get("grade_reasons") or []):
        return "failed"
    is_complete = set(required) == {"met"} and document.get("exit_code") != EXIT_INCOMPLETE
    return "passed" if is_complete else "incomplete"


def counts(verdicts: Sequence[Document]) -> dict[str, int]:
    """Return {outcome: number of verdicts}. Outcomes without verdicts are omitted.

    Advisory verdicts that were not met are counted separately.
    """
    outcomes = ("failed", "not run", "waived")
    result = dict.fromkeys(("met", *outcomes, *(f"advisory {outcome}" for outcome in outcomes)), 0)
    for verdict in verdicts:
        outcome = verdict["outcome"]
        advisory = outcome in outcomes and verdict["severity"] == "advisory"
        result[f"advisory {outcome}" if advisory else outcome] += 1
    return {name: count for name, count in result.items() if count}


def names_in_short(names: Sequence[str], shown: int = 4) -> str:
    """Return the names as text.

    If there are more than ``shown`` + 1 names, the text contains only the first ``shown`` names, the last, and the
    count.
    """
    if len(names) <= shown + 1:
        return ", ".join(names)
    return f"{', '.join(names[:shown])}, … {names[-1]} ({len(names)})"


def _by_subject(rows: Sequence[Document] | None) -> dict[str, Document]:
    return {row["subject"]: row for row in rows or []}


def _kind(kind: str, document: Document, plan: Document, ran: Document, size: Document) -> Kind:
    operations = tuple(o for o in ran.get("operations") or [] if o["kind"] == kind)
    scale = ran.get("scale") or plan.get("scale") or 1.0
    limit = plan.get(f"{kind}_limit_seconds")
    if limit is None:
        whole = (document.get("cluster") or {}).get(f"{kind}_limit_seconds")
        limit = None if whole is None else whole * scale
    amount = ran.get("bytes") or plan.get("bytes")
    needed = plan.get(f"{kind}_bytes_per_second")
    if needed is None and limit and amount:
        needed = amount / limit
    planned = ran.get("operations_planned") or plan.get("operations") or 0
    return Kind(
        kind=kind,
        operations=operations,
        planned=max(planned, len(operations), max((o["index"] for o in operations), default=0)),
        limit_seconds=limit,
        needed_bytes_per_second=needed,
        bytes=amount,
        sufficient_up_to_accelerators=size.get(kind),
        projected=bool(size.get("projected")),
        is_proven=kind == "save" or size.get("is_load_proven", True),
    )


def judged_again_lines(document: Document) -> list[str]:
    """Return sentences that compare the judgement of a run with its later judgement (``pytest-ckpt judge``).

    For each judgement, the sentences state cluster, version and grade. They also state the limits that differ. If the
    report was not judged again, the result is empty.
    """
    judgement = document.get("judged_again")
    if not judgement:
        return []
    run, cluster = document["run"], document["cluster"]["accelerators"]
    graded = judgement["grade"] or "without a report, because it did not end"
    lines = [
        f"Run on {time_text(run['started'])} for a cluster of {counted(judgement['accelerators'], 'accelerator')}, "
        f"with pytest-ckpt {run['version']}: {graded}.",
        f"Judged again on {time_text(judgement['judged'])} for a cluster of {counted(cluster, 'accelerator')}, with "
        f"pytest-ckpt {judgement['version']}: {document['grade']}. Nothing was measured again.",
    ]
    changed = [
        f"{limit['option']} {limit['value'] or NOT_SET} ({limit['of_run'] or NOT_SET} in the run)"
        for limit in judgement["limits"]
    ]
    if changed:
        return [*lines, f"Other than in the run: {', '.join(changed)}."]
    return [*lines, "All limits are those of the run."]


def judge_command(document: Document) -> str:
    """Return the command that repeats the judgement of a report."""
    limits = (document.get("judged_again") or {}).get("limits") or []
    return shlex.join(["pytest-ckpt", "judge", "DIRECTORY", *(f"{of['option']}={of['value']}" for of in limits)])


_MAXIMUM_NAMES = 6
_ENDS = {
    "finished": "finished",
    "interrupted": "interrupted",
    "crashed": "ended by an error of pytest-ckpt",
    "killed": "killed",
}


def start_lines(document: Document) -> list[str]:
    """Return a sentence for each start (pytest invocation), and for the incomplete work of this start.

    If the run has one complete start, the result is empty.
    """
    starts = document.get("starts") or []
    if len(starts) == 1 and starts[0]["end"] == "finished" and not starts[0]["interrupted_work"]:
        return []
    return [line for start in starts for line in _of_start(start)]


def _of_start(start: Document) -> Iterator[str]:
    which = f"Start {start['number']}"
    yield (
        f"{which}, {time_text(start['started'])}, {', '.join(start['suites']) or 'no suite'}: {_ENDS[start['end']]}. "
        f"It measured {_names(start['measured'])}."
    )
    for broken in start["interrupted_work"]:
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
        return "no subject completely"
    more = len(names) - _MAXIMUM_NAMES
    return ", ".join(names[:_MAXIMUM_NAMES]) + (f" and {more} more" if more > 0 else "")
