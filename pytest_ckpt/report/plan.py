"""The plan of a run as text, and the lines that a run adds to pytest's header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.facts.checks import bytes_of_checks
from pytest_ckpt.facts.engines import STREAM
from pytest_ckpt.facts.strategies import STRATEGIES
from pytest_ckpt.facts.targets import TARGETS, CheckpointRef
from pytest_ckpt.grading.catalogue import REQUIREMENTS, chosen_suites
from pytest_ckpt.grading.document import plugin_sentences
from pytest_ckpt.grading.obstacles import not_given, obstacles, possible_grade, unmeasured
from pytest_ckpt.grading.scope import named
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.speed import misses_allowed
from pytest_ckpt.sizing.architectures import CHECKPOINT_SIZES
from pytest_ckpt.sizing.drains import LOCAL_CHECKPOINTS, PARTNER_CHECKPOINTS
from pytest_ckpt.sizing.files import consolidated_files, files_of
from pytest_ckpt.sizing.object_parts import MAXIMUM_PARTS, part_bytes
from pytest_ckpt.sizing.steps import planned_steps
from pytest_ckpt.sizing.stream_buffers import MAXIMUM_BUFFERS_BYTES, USUAL_DEPTH
from pytest_ckpt.support.units import (
    counted,
    format_binary_bytes,
    format_bytes,
    format_percent,
    format_rate,
    format_seconds,
    format_share,
)
from pytest_ckpt.targets.objects.keys import MARKER, RUN, checkpoint_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_ckpt.facts.environment import Environment
    from pytest_ckpt.facts.settings import Assurance, Settings
    from pytest_ckpt.facts.targets import TargetFacts
    from pytest_ckpt.grading.obstacles import CacheVisibility, Obstacle
    from pytest_ckpt.judging.gates import Gates
    from pytest_ckpt.sizing.limits import ClusterLimits
    from pytest_ckpt.sizing.plan import Plan, PlannedCheckpoint
    from pytest_ckpt.sizing.steps import Steps


def objects_of(planned: PlannedCheckpoint, settings: Settings) -> Iterator[str]:
    """Yield a line on the objects that one full save creates. If the target is not an object store, yield nothing."""
    scheme, found, location = (settings.target or "").partition("://")
    if not found or scheme not in TARGETS or not TARGETS[scheme].is_remote:
        return
    first = CheckpointRef(subject=planned.subject.slug, number=1)
    place = f"{scheme}://{location.rstrip('/')}/{RUN}…/{checkpoint_key(first)}/"
    if commit := planned.engine.files.commit:
        yield (
            f"  keys   {counted(planned.files, 'object')} a checkpoint below {place}; the engine's library chooses "
            f"parts and requests, and commits by {commit}"
        )
        return
    sizes = [f.bytes for shard in planned.layout.ranks() for f in files_of(shard, planned.engine.files)]
    steps = [part_bytes(size if planned.engine.name == STREAM else None, settings.io_size_bytes) for size in sizes]
    numbers = [-(-size // step) if size > step else 0 for size, step in zip(sizes, steps, strict=True)]
    # Each object needs two queries, one before and one after its transfer. A multipart object needs a begin, its parts
    # and an end; another object needs one put. The marker adds two requests.
    requests = sum(2 + (number + 2 if number else 1) for number in numbers) + 2
    yield (
        f"  keys   {counted(len(sizes), 'object')} and {MARKER} a checkpoint below {place}, "
        f"{counted(sum(numbers), 'part')} of {format_binary_bytes(max(steps))}, at most {max(numbers):,} of one object "
        f"({MAXIMUM_PARTS:,} are allowed); about {counted(requests, 'request')} a save"
    )


COLD_UNTRIED = (
    "whether cached pages of the target can be counted; if not, COLD needs another proof. pytest-ckpt doctor tests it "
    "with a file of 4 MiB; plan writes no files."
)


def describe(plan: Plan, settings: Settings, target: TargetFacts | None) -> list[str]:
    """Return the plan as lines of text."""
    limits = plan.limits
    lines = [f"cluster of {counted(limits.accelerators, 'accelerator')}", ""]
    lines += [f"  {sentence}" for _, sentence in limits.reasons]
    lines += ["", "  inputs of the limits:", *(f"    {given.sentence}" for given in limits.inputs)]
    for planned in plan.checkpoints:
        shards, asks = planned.layout, planned.demand
        scale = "" if shards.scale == 1 else f" at scale {shards.scale:g}"
        published = CHECKPOINT_SIZES.get((shards.model.name, shards.mode))
        lines += [
            "",
            f"{planned.subject}{scale}: {counted(shards.processes, 'rank')}, {counted(planned.files, 'file')}, "
            f"{counted(shards.bytes, 'byte')} ({format_bytes(shards.bytes)}) a checkpoint"
            + (
                f", {format_binary_bytes(shards.bytes)}, published as {published}"
                if published and shards.scale == 1
                else ""
            ),
            *_save(planned, limits, settings),
            *_deltas(planned),
            *_consolidated(planned),
            *objects_of(planned, settings),
            f"  load   within {format_seconds(asks.load_limit_seconds)}: {format_rate(asks.load_bytes_per_second)}",
            f"  run    {counted(planned.operations, 'save')}, {counted(planned.operations, 'load')}, "
            f"space {format_bytes(planned.space_bytes)}, memory {format_bytes(planned.largest_rank_memory_bytes)} "
            f"for the largest rank, {format_bytes(max(planned.host_memory_bytes))} for the largest host",
            *_ramp(planned),
            *_confidence(planned, settings),
            f"  cluster writes {format_bytes(asks.bytes_per_day)} a day, "
            f"{format_rate(asks.sustained_bytes_per_second)} sustained; while saving "
            f"{format_rate(asks.cluster_save_bytes_per_second)}: {format_rate(asks.per_writer_bytes_per_second)} for "
            f"each of {counted(asks.writers, 'writing accelerator')}, "
            f"{format_rate(asks.per_node_bytes_per_second)} a node of 8",
        ]
        lines += [f"  also   {sentence}" for sentence in planned.scenarios]
        if planned.not_run:
            lines.append(f"  not run: {planned.not_run}")
        if planned.rehearsal:
            lines.append(f"  rehearsal: {planned.rehearsal}")
    return lines + _in_all(plan, settings, target)


def _consolidated(planned: PlannedCheckpoint) -> Iterator[str]:
    if planned.engine.files.consolidated:
        count = len(consolidated_files(planned.layout.rank(0), planned.engine.files))
        yield (
            f"  whole  in each save rank 0 reads {format_bytes(planned.layout.bytes)} of shards and writes them again, "
            f"to {counted(count, 'file')}; the bytes written here a day and by a cluster count only the shards"
        )


def _deltas(planned: PlannedCheckpoint) -> Iterator[str]:
    rule = planned.deltas
    if rule is None:
        return
    of_deltas = [size for n, size in enumerate(planned.save_bytes, start=1) if rule.is_delta(n)]
    longest = max(planned.load_bytes)
    yield (
        f"  chain  a full save, then {counted(rule.deltas, 'delta')} of {format_bytes(max(of_deltas, default=0))}; "
        f"the longest restore reads {format_bytes(longest)}, {longest / planned.layout.bytes:.3g} x a checkpoint"
    )


def _save(planned: PlannedCheckpoint, limits: ClusterLimits, settings: Settings) -> Iterator[str]:
    asks = planned.demand
    how = "drained " if planned.drains else "" if planned.strategy.blocks else "committed "
    within = format_seconds(asks.save_limit_seconds)
    yield f"  save   {how}within {within}: {format_rate(asks.save_bytes_per_second)}"
    if planned.strategy.compresses:
        yield (
            "  codec  bytes before compression, as for sync: the stored volume depends on the data of a job; the "
            "space is planned for incompressible files"
        )
    limit = limits.save_limit_seconds * planned.layout.bytes / planned.layout.full_bytes
    if planned.drains:
        yield (
            f"  train  loses at most {format_seconds(limit)} a save, to the local tier: blocked, slower steps, and the "
            f"work at risk; 1 of {counted(planned.drains.every, 'save')} is drained, and "
            f"{_local_space(planned.checkpoint_bytes, settings)}"
        )
    elif not planned.strategy.blocks:
        yield (
            f"  train  loses at most {format_seconds(limit)} a save: blocked, slower steps, and the time until the "
            f"commit / {limits.checkpoints_per_failure}"
        )


def _ramp(planned: PlannedCheckpoint) -> Iterator[str]:
    """Yield lines on the ramp, a search for the best number of requests in flight. Without a ramp, yield nothing."""
    if not (ramp := planned.ramp):
        return
    if not ramp.depths:
        yield f"  depth  {USUAL_DEPTH} requests in flight on each rank: {ramp.because}"
        return
    yield (
        f"  depth  found by a ramp before the first save: {', '.join(map(str, ramp.depths))} requests in flight on "
        f"each rank, each with a save and a load of a scratch checkpoint of {format_bytes(ramp.bytes)}, "
        f"twice; at most {format_bytes(MAXIMUM_BUFFERS_BYTES)} of buffers on each rank"
    )
    depths: dict[str, list[str]] = {}
    for depth, memory in planned.memory_after_ramp.items():
        depths.setdefault(format_bytes(memory), []).append(str(depth))
    after = "; ".join(f"{memory} with {', '.join(of)} in flight" for memory, of in depths.items())
    yield f"         after the ramp, memory for the largest rank: {after}"


def _local_space(checkpoint_bytes: int, settings: Settings) -> str:
    """Return a phrase on the space that the local tiers of all hosts need together."""
    if settings.has_several_hosts:
        return (
            f"the local tiers of the hosts store {PARTNER_CHECKPOINTS} checkpoints, "
            f"{format_bytes(PARTNER_CHECKPOINTS * checkpoint_bytes)}: half of them are copies for a partner host"
        )
    stored = LOCAL_CHECKPOINTS * checkpoint_bytes
    return f"the local tier stores {LOCAL_CHECKPOINTS} checkpoints, {format_bytes(stored)}"


def _confidence(planned: PlannedCheckpoint, settings: Settings) -> Iterator[str]:
    """Yield lines on the share of all saves and loads that the planned operations prove to meet the limit.

    ``settings.assurance`` contains the share and the confidence that the user requires. Without it, yield nothing. The
    first line states how many of the planned operations must meet the limit for this proof.
    """
    if not (wanted := settings.assurance):
        return
    asks, share = planned.demand, format_share(wanted.share)
    yield (
        f"  sure   if {_required_operations(planned, wanted)} meet the limit: "
        f"{format_share(wanted.confidence)} confident that {share} of saves take at "
        f"most {format_seconds(asks.save_limit_seconds)} and {share} of loads at most "
        f"{format_seconds(asks.load_limit_seconds)}, if they are independent"
    )
    if not settings.keep_last and planned.deltas is None:
        yield (
            f"         all {counted(planned.operations, 'checkpoint')} stay until they are loaded; "
            "--ckpt-keep-last=2 keeps two and loads them in turn"
        )


def _required_operations(planned: PlannedCheckpoint, wanted: Assurance) -> str:
    """Return, as text, how many of the planned saves and loads must meet the limit."""
    if not (misses := misses_allowed(wanted, planned.operations)):
        return "all"
    return f"all but {misses} of the {planned.operations} saves, and of the {planned.operations} loads,"


def in_all(plan: Plan, settings: Settings, target: TargetFacts | None) -> str:
    """Return a sentence on all saves, loads and additional steps of a run: their number, bytes and maximum time.

    The maximum time is the total time of these steps if each step just meets its limit. If the run measures no saves
    and loads, return an empty text.
    """
    if not plan.runnable or not settings.measures:
        return ""
    operations = sum(c.operations for c in plan.runnable)
    moved = sum(c.saved_bytes for c in plan.runnable)
    read = sum(c.loaded_bytes for c in plan.runnable)
    steps = [s for c in plan.runnable for s in planned_steps(c, settings, target)]
    seconds = sum(s.limit_seconds for s in steps)
    return (
        f"{counted(operations, 'save writes', 'saves write')} {format_bytes(moved)} and "
        f"{counted(operations, 'load reads', 'loads read')} "
        f"{'as much' if read == moved else format_bytes(read)}{_additional_steps(steps)}: "
        f"at most {format_seconds(seconds)} if every save and load just meets its limit"
    )


def _in_all(plan: Plan, settings: Settings, target: TargetFacts | None) -> list[str]:
    if not (text := in_all(plan, settings, target)):
        return []
    return [
        "",
        f"in all: {text}",
        "        not included: starting the ranks, the ramp of engine stream, generating and comparing content, "
        "ballast, checks of behaviour; after its first save the run prints how long it will take",
        f"        memory of pytest itself, in addition to the ranks: {format_bytes(plan.controller_memory_bytes)}",
    ]


def _additional_steps(steps: Sequence[Steps]) -> str:
    """Return a phrase on the additional steps of a run: their number and, if known, their bytes.

    Additional steps are all steps except the subjects' own saves and loads.
    """
    others = [s for s in steps if s.kind not in {"save", "load"}]
    if not others:
        return ""
    # Patterns with a fixed duration or small checkpoints: their bytes depend on the storage.
    are_open, are_fewer = any(s.bytes_each == 0 for s in others), any(s.is_maximum for s in others)
    bound = "about " if are_open and are_fewer else "at least " if are_open else "at most " if are_fewer else ""
    moved = sum(s.count * s.bytes_each for s in others)
    count = sum(s.count for s in others)
    if not moved:
        return f", {counted(count, 'more step')} in addition"
    moves = "moves" if count == 1 else "move"
    return f", {counted(count, 'more step')} in addition {moves} {bound}{format_bytes(moved)}"


def describe_obstacles(found: Sequence[Obstacle], not_tried: Sequence[str] = ()) -> list[str]:
    """Return lines on the best possible grade, and on the obstacles to a certificate with this command.

    ``found`` are the known obstacles. ``not_tried`` describes possible obstacles that were not checked.
    """
    best = possible_grade(found)
    sentence = f"grade possible: {best}" + (", the run would not start" if best == "none" else "")
    lines = [f"{sentence}; between this command and a certificate:" if found else sentence]
    lines += [f"  {obstacle.line}" for obstacle in found]
    return ["", *lines, *(f"  not tried: {text}" for text in not_tried)]


def describe_ranks(plan: Plan) -> list[str]:
    """Return a line for every file of every rank."""
    lines = []
    for planned in plan.checkpoints:
        lines += ["", f"{planned.subject}: rank, bytes, file"]
        for rank in planned.layout.ranks():
            files = files_of(rank, planned.engine.files)
            lines += [f"{rank.rank:>6} {file.bytes:>16,} {file.name}" for file in files]
    return lines


def header_lines(
    plan: Plan,
    settings: Settings,
    gates: Gates,
    target: TargetFacts,
    environment: Environment,
    notices: Sequence[str],
    catalogue: Mapping[str, Requirement] = REQUIREMENTS,
    cache_visibility: CacheVisibility = "not_tested",
) -> list[str]:
    """Return the lines that a run adds to pytest's header."""
    limits = plan.limits
    hosts = environment.hosts
    saves = f"{format_bytes(plan.space_bytes)} needed" if settings.measures else "no checkpoint is written"
    checks = bytes_of_checks("posix" if "paths" in target.capabilities else "objects", settings.effort)
    is_more = "conformance" in chosen_suites(settings, gates, catalogue) and checks > plan.space_bytes
    needed = f"{saves}, {format_bytes(checks)} by its checks" if is_more else saves
    lines = [
        f"ckpt target: {target.location} ({', '.join((*_described(target), needed))})",
        *([f"ckpt storage: {target.stack.sentence}"] if target.stack else []),
        f"ckpt cluster: {counted(limits.accelerators, 'accelerator')}, "
        f"{limits.failures_per_day:.3g} failures a day ({limits.failures.spec}), save budget "
        f"{format_percent(limits.save_budget)}: a save within {format_seconds(limits.save_limit_seconds)}, "
        f"a load within {format_seconds(limits.load_limit_seconds)} at full size",
    ]
    for planned in plan.checkpoints if settings.measures else ():
        asks = planned.demand
        lines.append(
            f"ckpt {planned.subject}: "
            + (
                f"not run: {planned.not_run}"
                if planned.not_run
                else f"{counted(planned.layout.processes, 'rank')}, {format_bytes(planned.layout.bytes)} a checkpoint, "
                f"{counted(planned.operations, 'save and load', 'saves and loads')}, needs "
                f"{format_rate(asks.save_bytes_per_second)} to save, {format_rate(asks.load_bytes_per_second)} to load"
            )
        )
    if together := in_all(plan, settings, target):
        lines.append(f"ckpt in all: {together}")
    names = (
        ", ".join(f"{h.host} ({counted(len(h.ranks), 'rank')}, {counted(h.cores, 'core')})" for h in hosts) or "none"
    )
    how = [named("engine", "engines", (engine.name for engine in settings.engines))]
    if settings.strategies != STRATEGIES[:1]:
        how.append(named("strategy", "strategies", (strategy.name for strategy in settings.strategies)))
    lines.append(f"ckpt ranks: {'; '.join(how)}; hosts: {names}; launcher: {environment.launcher}")
    extends = f" (extends {gates.extends})" if gates.extends else ""
    suites = ", ".join(chosen_suites(settings, gates, catalogue))
    lines.append(f"ckpt gate table: {gates.name}{extends}; suites: {suites}")
    lines += [f"ckpt gate table: relaxed: {sentence}" for sentence in gates.relaxed]
    lines += [f"ckpt {sentence}" for sentence in plugin_sentences(environment.plugins)]
    found = obstacles(plan, settings, gates, catalogue, cache_visibility=cache_visibility)
    lines.append(f"ckpt grade possible: {possible_grade(found)}")
    lines += [f"ckpt obstacle: {obstacle.line}" for obstacle in found]
    seen = (*not_given(settings, gates, catalogue), *unmeasured(plan, settings, gates, catalogue), *notices)
    return lines + [f"ckpt note: {notice}" for notice in seen]


def _described(target: TargetFacts) -> Iterator[str]:
    """Yield phrases on the target: kind, source, plugin and free space."""
    if target.mount_point:
        yield f"{target.kind} on {target.mount_point}"
    else:
        yield target.kind
        if target.source:
            yield target.source
    if target.plugin:
        yield f"brought by {target.plugin}"
    if target.capacity:
        yield f"{format_bytes(target.capacity.free_bytes)} free"
