"""The rules for checkpointing submissions to MLPerf Storage, applied to published results. Pure (no I/O).

Source: Rules.md of MLPerf Storage, commit 0366ccf (sections 1, 2.1 and 4, table 3), and its checkpointing/README.md for
the metrics. Rule numbers and rule names are from this source. A rule is met only if the result's files prove it.

The two editions of the rules (`EDITIONS`) differ in rule 4.3.4. In round v3.0 a violation of this rule was only a
warning, because no checkpointing invocation recorded an accelerator. Pull request 848 of mlcommons/storage made the
violation an error for later rounds.

A new rule needs a row of `RULES`, a violating case in tests/published/test_rules.py, and a line in
docs/published_results.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Literal

from pytest_ckpt.facts.measurement import OperationKind
from pytest_ckpt.published.facts import DisclosedSettings, SystemDescription
from pytest_ckpt.published.results import Result
from pytest_ckpt.published.runs import KINDS
from pytest_ckpt.published.times import USUAL_SECONDS_BETWEEN
from pytest_ckpt.published.values import parsed_time
from pytest_ckpt.published.verdicts import caches_dropped, readings_of
from pytest_ckpt.sizing.models import SUBSET_PROCESSES
from pytest_ckpt.support.units import counted, format_bytes, format_count, format_percent, format_seconds

Outcome = Literal["met", "broken", "warning", "not told"]
EditionName = Literal["mlperf-v3", "mlperf-v4"]

EDITIONS: Mapping[EditionName, str] = {
    "mlperf-v3": "MLPerf Storage, Rules.md (commit 0366ccf), 4.3.4 a warning as in the round of v3.0: the rules "
    "on checkpointing that files can show",
    "mlperf-v4": "MLPerf Storage, Rules.md (commit 0366ccf), the public text after the round of v3.0: the rules on "
    "checkpointing that files can show",
}
"""The sources of the rules by edition. The text of v4.0 is not final."""

_WARNINGS: Mapping[EditionName, frozenset[str]] = {"mlperf-v3": frozenset({"4.3.4"}), "mlperf-v4": frozenset()}
"""The rules of each edition whose violation is only a warning."""

_TIMESTAMP = re.compile(r"\d{8}_\d{6}", re.ASCII)
_MAXIMUM_GAP_SECONDS = 30.0
_OPERATIONS = 10
_MINIMUM_A_HOST = 5
_MAXIMUM_DIRECTORIES = 2
# The models of a submission (4.3.3).
_OF_MLPERF = ("llama3-8b", "llama3-70b", "llama3-405b", "llama3-1t")
# The memory sizes of accelerators that a submission may name, in GB (table 3).
_ACCELERATOR_BYTES = {"b200": 180 * 10**9, "mi355": 288 * 10**9}
_CHANGEABLE = {"checkpoint.checkpoint_folder"}
# Parameters that mlpstorage itself overrides for a phase or a mode; other rules restrict their values.
_OTHER_RULES = {"checkpoint.num_checkpoints_write", "checkpoint.num_checkpoints_read", "checkpoint.mode"}
# If a mean over rank 0's times is shorter by this share, it is not the maximum over all processes.
_SAME_MEAN = 0.01

_Found = tuple[Outcome, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One submission rule: number, name, text, and the function ``judge``, which evaluates the rule for a result."""

    number: str
    name: str
    text: str
    judge: Callable[[Result], _Found]


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleResult:
    """The outcome of one rule for one result."""

    number: str
    name: str
    text: str
    outcome: Outcome
    because: str


def rule_results(result: Result, edition: EditionName) -> tuple[RuleResult, ...]:
    """Return the outcome of every submission rule for a result.

    ``edition`` is the edition of the rules; it determines which violations are only warnings.
    """
    found = []
    for rule in RULES:
        outcome, because = rule.judge(result)
        if outcome == "broken" and rule.number in _WARNINGS[edition]:
            outcome = "warning"
        found.append(RuleResult(number=rule.number, name=rule.name, text=rule.text, outcome=outcome, because=because))
    return tuple(found)


def is_open(result: Result) -> bool:
    """Whether the result is in the OPEN division. A result without a division counts as CLOSED."""
    return result.runs[0].files.place.division == "open"


def _by_mlpstorage(result: Result) -> _Found:
    if by := next((d.exported_by for d in _disclosed(result) if d.exported_by), ""):
        return "broken", f"{by} measured it, and exported the times."
    if all(d.has_metadata for d in _disclosed(result)):
        return "met", "Each invocation has mlpstorage's metadata."
    return "not told", "mlpstorage's metadata is missing for some invocation."


def _workload(result: Result) -> _Found:
    directories = sorted({run.files.place.model_directory for run in result.runs})
    model = result.layout.model.name
    if directories == [model]:
        return "met", f"The directory is {model}."
    if not result.runs[0].files.place.is_published_tree:
        return "not told", "The directory is in no tree of a submission."
    return "broken", f"The directory is {_some(directories)}, and the checkpoint belongs to {model}."


def _directories(result: Result) -> _Found:
    names = [run.directory.name for run in result.runs]
    if odd := [name for name in names if not _TIMESTAMP.fullmatch(name)]:
        return "broken", f"{_some(odd)} is no YYYYMMDD_HHmmss."
    if len(names) > _MAXIMUM_DIRECTORIES:
        return "broken", f"There are {len(names)} of them."
    return "met", f"There {'is' if len(names) == 1 else 'are'} {_some(names)}."


def _cache(result: Result) -> _Found:
    readings = readings_of(result)
    if not readings:
        return "not told", "The clients' number and memory are not recorded."
    rules = sorted({r.rule for r in readings if r.requires_drop})
    if not rules:
        return "met", "By both readings of the rule a client writes enough: caches need no clearing."
    worst = min((r for r in readings if r.requires_drop), key=lambda r: r.bytes_compared / r.memory_bytes)
    compared = f"{worst.rule} ({format_bytes(worst.bytes_compared)}; memory {format_bytes(worst.memory_bytes)})"
    if any(run.of_kind("save") and run.of_kind("load") for run in result.runs):
        if len(rules) == len({r.rule for r in readings}):
            return "broken", f"Caches need clearing, and one invocation saves and loads: {compared}."
        return (
            "not told",
            f"By one of two readings caches need clearing, which is not possible within one invocation: {compared}.",
        )
    if caches_dropped(result):
        return "met", f"Caches need clearing, and each host's kernel dropped its page cache in between: {compared}."
    return (
        "not told",
        f"Caches need clearing between the invocations, and the files do not show that it was done: {compared}.",
    )


def _fsync(result: Result) -> _Found:
    listed = [run.files.facts.fsync for run in result.runs if run.of_kind("save")]
    if False in listed:
        return "broken", "The configuration has checkpoint.fsync off."
    if not listed or None in listed:
        return "not told", "No configuration of an invocation that saves is there."
    return "met", "The configuration has it on. DLIO stores it under a name that its save never reads."


def _model(result: Result) -> _Found:
    is_recorded = any(run.files.facts.architecture or run.files.facts.model for run in result.runs)
    how = "as configured" if is_recorded else "by the size of a checkpoint"
    name = result.layout.model.name
    return "met" if name in _OF_MLPERF else "broken", f"It is {name}, {how}."


def _accelerator(result: Result) -> _Found:
    names = sorted({d.accelerator for d in _disclosed(result) if d.accelerator})
    if not names:
        if all(d.has_metadata for d in _disclosed(result)):
            return "broken", "The metadata names no accelerator."
        return "not told", "Metadata that could name an accelerator is missing."
    if len(names) > 1:
        return "broken", f"The invocations name different ones: {_some(names)}."
    memory = _ACCELERATOR_BYTES.get(names[0].lower())
    if memory is None:
        return "broken", f"{names[0]:.40} is not one of {', '.join(_ACCELERATOR_BYTES)}."
    together, needed = memory * result.layout.processes, result.layout.bytes
    outcome: Outcome = "met" if together >= needed else "broken"
    return outcome, f"{names[0]} x {result.layout.processes}: {format_bytes(together)} for {format_bytes(needed)}."


def _subset(result: Result) -> _Found:
    model = result.layout.model
    if result.layout.mode != "subset":
        return "met", "It is not a subset."
    return "broken", f"It is a subset of {model.name}, by {counted(SUBSET_PROCESSES, 'process', 'processes')}."


def _paths(result: Result) -> _Found:
    pairs = [(run.files.facts.checkpoint_folder, run.files.facts.disclosed.result_directory) for run in result.runs]
    if any(one and one.rstrip("/") == other.rstrip("/") for one, other in pairs):
        return "broken", f"Both are {pairs[0][0]:.200}."
    if not all(one and other for one, other in pairs):
        return "not told", "Not both are recorded for each invocation."
    return "met", f"Checkpoints lie in {pairs[0][0]:.200}, results in {pairs[0][1]:.200}."


def _file_systems(result: Result) -> _Found:
    probes = [run.files.facts.separation for run in result.runs]
    if shared := next((p for p in probes if p and p.same), None):
        return "broken", f"fs_separation.json: {shared.checkpoints:.200} and {shared.results:.200} share a file system."
    for run in result.runs:
        one, other = run.files.facts.checkpoint_folder, run.files.facts.disclosed.result_directory
        if one and one == other:
            return "broken", f"Both lie in {one:.200}."
        if one and other and PurePosixPath(one) in PurePosixPath(other).parents:
            return (
                "not told",
                "The results lie below the checkpoints: on one file system, unless another is mounted there.",
            )
    if any(p is None or p.same is None for p in probes):
        return "not told", "Not every invocation has an fs_separation.json with an answer."
    for run, probe in zip(result.runs, probes, strict=True):
        folder = run.files.facts.checkpoint_folder
        if probe and folder and not PurePosixPath(folder).is_relative_to(probe.checkpoints or folder):
            about = f"{probe.checkpoints:.200}, and the checkpoints are in {folder:.200}"
            return "not told", f"fs_separation.json is about {about}."
    return "met", "fs_separation.json of each invocation: they are different."


def _processes(result: Result) -> _Found:
    has, needed = result.layout.processes, result.layout.model.processes
    if is_open(result):
        parallel = result.layout.model.model_parallel
        outcome: Outcome = "met" if has % parallel == 0 and has >= needed else "broken"
        return (
            outcome,
            f"OPEN: {format_count(has)}; expected a multiple of {parallel}, {format_count(needed)} at least.",
        )
    return "met" if has == needed else "broken", f"{format_count(has)} of {format_count(needed)}."


def _a_host(result: Result) -> _Found:
    processes = result.layout.processes
    slots = max((d.slots for d in _disclosed(result)), key=len, default=())
    if slots and sum(slots) == processes:
        return "met" if min(slots) >= _MINIMUM_A_HOST else "broken", f"The host with the fewest has {min(slots)}."
    hosts = max((run.files.facts.host_count or 0 for run in result.runs), default=0)
    if not hosts:
        return "not told", "The number of hosts is not recorded."
    if processes / hosts < _MINIMUM_A_HOST:
        return "broken", f"{format_count(processes)} on {counted(hosts, 'host')}: {processes / hosts:.3g} each."
    if hosts == 1:
        return "met", f"{format_count(processes)} on one host."
    return (
        "not told",
        f"{processes / hosts:.3g} on average; the files do not show how many processes each of {format_count(hosts)} "
        "hosts had.",
    )


def _parameters(result: Result) -> _Found:
    pauses = {run.files.facts.seconds_between for run in result.runs} - {None, USUAL_SECONDS_BETWEEN}
    if pauses or any(run.files.facts.pause_varies for run in result.runs):
        shown = ", ".join(f"{p:g} s" for p in sorted(p for p in pauses if p is not None)) or "drawn at random"
        return _unless_open(result, f"checkpoint.time_between_checkpoints is {shown}.")
    listed = [d.changed_parameters for d in _disclosed(result)]
    if others := sorted({name for names in listed for name in names or ()} - _CHANGEABLE - _OTHER_RULES):
        return _unless_open(result, f"Changed: {_some(others)}.")
    if None in listed:
        return "not told", "Not every invocation records what was overridden."
    return "met", "Nothing else was changed."


def _unless_open(result: Result, because: str) -> _Found:
    # OPEN permits more changes but requires their disclosure in a file that is not read.
    return ("not told", f"{because} OPEN requires its disclosure.") if is_open(result) else ("broken", because)


def _operations(result: Result) -> _Found:
    counts = {kind: result.figures[kind].operations for kind in KINDS}
    shown = " and ".join(f"{counts[kind]} {kind}s" for kind in KINDS)
    if all(count == _OPERATIONS for count in counts.values()):
        return "met", f"{shown}."
    if 0 in counts.values():
        return "broken", f"{shown}: the files of the other invocation are missing."
    return "broken", f"{shown}."


def _order(result: Result) -> _Found:
    """Evaluate the order of the invocations: one saves, and another loads at most 30 s after the end of the saves.

    A single invocation that saves and then loads also meets the rule.
    """
    saving = [run for run in result.runs if run.of_kind("save")]
    loading = [run for run in result.runs if run.of_kind("load")]
    if not saving or not loading:
        return "broken", f"An invocation that {'loads' if saving else 'saves'} is missing."
    if saving == loading and len(saving) == 1:
        return "met", "One invocation saves, then loads: the rule on gaps does not apply."
    if len(saving) > 1 or len(loading) > 1 or saving == loading:
        return "broken", f"{len(saving)} invocations save and {len(loading)} load: expected one of each."
    (save,), (load,) = saving, loading
    ended = parsed_time(save.files.facts.disclosed.ended) or parsed_time(save.ended)
    if ended and (started := parsed_time(load.files.facts.disclosed.started)) and _same_zone(started, ended):
        return _gap((started - ended).total_seconds(), is_exact=bool(save.files.facts.disclosed.ended))
    began = parsed_time(load.started)
    if ended is None or began is None or not _same_zone(began, ended):
        return "not told", "When the one ended and the other began is not recorded."
    return _gap((began - ended).total_seconds(), is_exact=False)


def _gap(seconds: float, *, is_exact: bool) -> _Found:
    if seconds < 0:
        return "not told", f"The loads' began {format_seconds(-seconds)} before the saves' ended: clocks that differ."
    at_most = "" if is_exact else "at most "
    if seconds <= _MAXIMUM_GAP_SECONDS:
        return "met", f"The loads' began {at_most}{format_seconds(seconds)} after the saves' had ended."
    # For the start and end of an invocation, only bounds are recorded: it may have begun earlier.
    outcome: Outcome = "broken" if is_exact else "not told"
    return outcome, f"The loads' began {at_most}{format_seconds(seconds)} after the saves' had ended."


def _spans(result: Result, kind: OperationKind) -> list[tuple[float, float]]:
    """Return (start, end) of the saves, or of the loads, for each run that has such operations."""
    return [run.spans[kind] for run in result.runs if kind in run.spans]


def _pause(result: Result) -> float | None:
    """Return the seconds from the end of the last save to the start of the first load; None without saves or loads."""
    saves, loads = _spans(result, "save"), _spans(result, "load")
    return min(begin for begin, _ in loads) - max(end for _, end in saves) if saves and loads else None


def _duration(result: Result) -> _Found:
    """Evaluate whether a total duration is known (4.7.2).

    It is the time from the start of the first save to the end of the last load.
    """
    saves, loads = _spans(result, "save"), _spans(result, "load")
    gap = _pause(result)
    if gap is None:
        return "broken", f"There is no {'load' if saves else 'save'}, so the test has no total duration."
    if gap < 0:
        is_one = len(result.runs) == 1
        text = f"The first load began {format_seconds(-gap)} before the last save ended"
        return ("broken", f"{text}.") if is_one else ("not told", f"{text}: the clocks differ.")
    total = max(end for _, end in loads) - min(begin for begin, _ in saves)
    return "met", f"First save to last load: {format_seconds(total)}, {format_seconds(gap)} of it between the two."


def _remapping(result: Result) -> _Found:
    """Evaluate the declared remapping time (4.7.3).

    The declared time must agree with the system's description and with the recorded pause.
    """
    system = _described(result)
    if system is None:
        return "not told", "The description of the system (systems/SYSTEM.yaml) is missing."
    declared, is_split = system.remap_seconds, len(result.runs) > 1
    if declared is None:
        if is_split:
            return "broken", "Saves and loads are two invocations, and the description has no remap_time_in_seconds."
        return "met", "One invocation saves, then loads: nothing is remapped."
    if declared and system.simultaneous_writes and system.simultaneous_reads:
        return (
            "broken",
            f"The description declares {format_seconds(declared)}, and simultaneous reads and writes by several hosts.",
        )
    pause = _pause(result)
    if declared and pause is not None and 0 <= pause < declared / 2:
        return (
            "broken",
            f"The description declares {format_seconds(declared)}, and the loads began {format_seconds(pause)} after "
            "the saves.",
        )
    return "met", f"The description declares {format_seconds(declared)}."


def _simultaneous(result: Result) -> _Found:
    system = _described(result)
    if system is None:
        return "not told", "The description of the system (systems/SYSTEM.yaml) is missing."
    declared = {
        "several hosts": system.several_hosts,
        "simultaneous writes": system.simultaneous_writes,
        "simultaneous reads": system.simultaneous_reads,
    }
    if missing := [name for name, answer in declared.items() if answer is None]:
        return "broken", f"The description does not declare {', '.join(missing)}."
    return "met", ", ".join(f"{name}: {'yes' if answer else 'no'}" for name, answer in declared.items()) + "."


def _described(result: Result) -> SystemDescription | None:
    return next((run.files.facts.system for run in result.runs if run.files.facts.system), None)


def _metric(result: Result) -> _Found:
    listed, unknown = [], False
    for kind in KINDS:
        figure = result.figures[kind]
        if figure.published_in != "summary.json" or figure.overstatement is None:
            unknown = unknown or bool(figure.operations)
        elif figure.overstatement > _SAME_MEAN:
            listed.append(
                f"{kind}s took {format_percent(figure.overstatement, digits=2)} longer by the slowest process"
            )
    if listed:
        return "broken", f"summary.json has means of rank 0: {', '.join(listed)}."
    if unknown:
        return "not told", "A summary.json is missing for some invocation, or the slowest process is not known."
    return "met", "The means of summary.json are the means of the slowest process."


def _disclosed(result: Result) -> list[DisclosedSettings]:
    return [run.files.facts.disclosed for run in result.runs]


def _same_zone(one: datetime, other: datetime) -> bool:
    """Whether the difference of two times can be computed: both have a time zone, or neither has one."""
    return (one.tzinfo is None) == (other.tzinfo is None)


def _some(names: list[str]) -> str:
    shown = [f"{name:.60}" for name in names[:3]]
    return ", ".join(shown) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


RULES: tuple[Rule, ...] = (
    Rule(number="1", name="introduction", judge=_by_mlpstorage, text="mlpstorage ran the benchmark"),
    Rule(
        number="2.1.21",
        name="checkpointingWorkloads",
        judge=_workload,
        text="the workload's directory has the name of its model",
    ),
    Rule(
        number="2.1.23",
        name="checkpointingTimestamps",
        judge=_directories,
        text="one or two directories, named YYYYMMDD_HHmmss",
    ),
    Rule(
        number="4.3.1",
        name="checkpointDataSizeRatio",
        judge=_cache,
        text="each client writes more than 3 x its memory, else caches are cleared before the loads",
    ),
    Rule(number="4.3.2", name="checkpointFsyncVerification", judge=_fsync, text="fsync is on for every save"),
    Rule(number="4.3.3", name="checkpointModelConfigurationReq", judge=_model, text=f"one of {', '.join(_OF_MLPERF)}"),
    Rule(
        number="4.3.4",
        name="checkpointAggregateAcceleratorMemory",
        judge=_accelerator,
        text="the stated accelerators have memory for the checkpoint",
    ),
    Rule(
        number="4.3.5",
        name="checkpointSubsetRunValidation",
        judge=_subset,
        text="no subset, except llama3-8b with 8 processes",
    ),
    Rule(
        number="4.4.1",
        name="checkpointPathArgs",
        judge=_paths,
        text="directories of checkpoints and of results are recorded, and differ",
    ),
    Rule(
        number="4.4.2",
        name="checkpointFilesystemCheck",
        judge=_file_systems,
        text="checkpoints and results are on different file systems",
    ),
    Rule(
        number="4.6.1",
        name="checkpointClosedMpiProcesses",
        judge=_processes,
        text="8, 64, 512 and 1,024 processes for the four models; OPEN: multiples (4.6.4)",
    ),
    Rule(
        number="4.6.2",
        name="checkpointClosedAcceleratorsPerHost",
        judge=_a_host,
        text="more than 4 processes on each host",
    ),
    Rule(
        number="4.6.3",
        name="checkpointClosedCheckpointParameters",
        judge=_parameters,
        text="no parameter is changed, except the directory of the checkpoints",
    ),
    Rule(number="4.6, table 3", name="num-checkpoints", judge=_operations, text="10 saves and 10 loads in total"),
    Rule(
        number="4.7.1",
        name="checkpointCacheFlushValidation",
        judge=_order,
        text="saves, then loads; as two invocations at most 30 s apart",
    ),
    Rule(
        number="4.7.2",
        name="checkpointTotalTestDuration",
        judge=_duration,
        text="the test lasts from the first save's start to the last load's end",
    ),
    Rule(
        number="4.7.3",
        name="checkpointRemappingTimeReporting",
        judge=_remapping,
        text="the description of a remapping system has the time until another host can read",
    ),
    Rule(
        number="4.7.4",
        name="checkpointSimultaneousRwSupport",
        judge=_simultaneous,
        text="the description declares simultaneous reads and writes by several hosts",
    ),
    Rule(
        number="README",
        name="Metrics and Results Reporting",
        judge=_metric,
        text="a duration is the maximum over all processes",
    ),
)
