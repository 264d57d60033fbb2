"""Checks whether a plan fits the target's space and the hosts' memory, and suggests a smaller plan.

A function that refuses a plan raises UsageError. `foreseen` performs these checks without starting ranks.
"""

from __future__ import annotations

import resource
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.settings import PROFILES
from pytest_ckpt.sizing.plan import checkpoints_at_once
from pytest_ckpt.support.errors import Problems, UsageError
from pytest_ckpt.support.host_state import memory_available_bytes
from pytest_ckpt.support.units import counted, format_bytes
from pytest_ckpt.targets.schemes import check_in_time
from pytest_ckpt.targets.timed_calls import NoAnswerError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pytest_ckpt.facts.environment import HostFacts
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.targets import TargetFacts, TargetSpec
    from pytest_ckpt.sizing.plan import Plan, PlannedCheckpoint

# Rounding must not make a proposed scale too large.
_SLACK = 0.99
_SMALLEST_SCALE = 1e-6
# An acceptance run loads at least two checkpoints in turn.
_FEWEST_KEPT = 2

# One stat, one statvfs and one readdir of a directory.
_ANSWER_SECONDS = 10.0


def check_space(plan: Plan, settings: Settings, free: int) -> None:
    """Refuse a plan whose checkpoints do not fit the free space of the target."""
    tight = [c for c in plan.runnable if c.space_bytes > free]
    if not tight:
        return
    largest = max(tight, key=lambda c: c.space_bytes)
    count = checkpoints_at_once(settings)
    scale = min(_scale_that_fits(settings.scale, c.space_bytes, c.layout.bytes * count, free) for c in plan.runnable)
    models = ",".join(c.layout.model.word for c in plan.runnable if c.space_bytes <= free)
    ways = (_keep_fewer(tight, settings, free), f"choose --ckpt-model={models}" if models else "", _rehearse(scale))
    raise UsageError(
        f"Too little space on the target: {counted(count, 'checkpoint')} of {largest.subject} need "
        f"{format_bytes(largest.space_bytes)}, and {format_bytes(free)} are free.",
        ", or ".join(filter(None, ("Give the target more space", *ways))) + ".",
    )


def _keep_fewer(tight: Sequence[PlannedCheckpoint], settings: Settings, free: int) -> str:
    """Return the advice to keep fewer checkpoints if the plan then fits; otherwise an empty text.

    For chains of deltas, the result is empty.
    """
    if settings.keep_last or any(strategy.saves_deltas for strategy in settings.strategies):
        return ""
    fewer = replace(settings, keep_last=_FEWEST_KEPT)
    saved = checkpoints_at_once(settings) - checkpoints_at_once(fewer)
    fits = all(c.space_bytes - saved * c.checkpoint_bytes <= free for c in tight)
    return f"keep fewer checkpoints with --ckpt-keep-last={_FEWEST_KEPT}" if saved > 0 and fits else ""


def check_files(plan: Plan, settings: Settings, free: int | None, checked: int = 0) -> None:
    """Refuse a plan with more files than the target can still store.

    ``free`` is the number of free inodes; None if the target does not count files. ``checked`` is the number of files
    that conformance checks create.
    """
    count = checkpoints_at_once(settings)
    names = {c.subject: c.many_names.at_once if c.many_names else 0 for c in plan.runnable}
    need = max([checked, *(c.files_of_saves(count) + names[c.subject] for c in plan.runnable)])
    if free is None or need <= free:
        return
    raise UsageError(
        f"Too few free inodes on the target: the run has up to {need:,} files at a time, and {free:,} are free.",
        "Make room for more files (df -i), or name a target on a file system that was made with more inodes.",
    )


def check_file_size(plan: Plan, limit: int) -> None:
    """Refuse a plan with files larger than ``limit`` bytes, the RLIMIT_FSIZE of this user.

    RLIM_INFINITY means no limit. Ranks inherit the limit. If a rank exceeded the limit, the kernel's error EFBIG would
    look like an error of the storage.
    """
    largest = max((c.layout.largest_file_bytes for c in plan.runnable), default=0)
    if limit == resource.RLIM_INFINITY or largest <= limit:
        return
    raise UsageError(
        f"Processes of this user may write files of at most {format_bytes(limit)} (RLIMIT_FSIZE), and the largest file "
        f"of a checkpoint has {format_bytes(largest)}.",
        "Run 'ulimit -f unlimited' in the shell that starts pytest.",
    )


def check_memory(plan: Plan, hosts: Iterable[HostFacts]) -> None:
    """Refuse a plan whose ranks do not fit the memory of their hosts."""
    check_memory_of(plan, [(host.host, host.ranks, host.memory_available_bytes) for host in hosts])


def check_memory_of(plan: Plan, hosts: Sequence[tuple[str, Collection[int], int]]) -> None:
    """Refuse a plan whose ranks do not fit the memory of their hosts.

    ``hosts`` contains (name, ranks, available bytes) of each host.
    """
    for planned in plan.runnable:
        ranks, states = planned.rank_memory_bytes, planned.state_bytes
        tight: dict[str, str] = {}
        scales = []
        for host, on_it, there in hosts:
            need = sum(ranks[r] for r in on_it if r < len(ranks))
            if need > there:
                state = sum(states[r] for r in on_it if r < len(ranks))
                tight[host] = f"{format_bytes(need)} there, and {format_bytes(there)} are available"
                scales.append(_scale_that_fits(planned.layout.scale, need, state, there))
        if tight:
            ways = ("Spread the ranks over more hosts (--ckpt-hosts)", "choose a smaller --ckpt-model")
            raise UsageError(
                f"Too little memory on {', '.join(tight)}: {counted(planned.layout.processes, 'rank')} for "
                f"{planned.subject} need {'; '.join(tight.values())}.",
                ", or ".join(filter(None, (*ways, _rehearse(min(scales))))) + ".",
            )


def _scale_that_fits(scale: float, need: int, scaled: int, there: int) -> float:
    """Return the largest scale at which a plan fits the memory or space; 0 if no scale fits.

    At ``scale``, the plan needs ``need`` bytes, and ``there`` bytes are available. Only ``scaled`` bytes of the need
    grow with the scale.
    """
    # With engine stream, ``scaled`` is 0, because memory does not grow with the state.
    return max(0.0, scale * (there - (need - scaled)) / scaled * _SLACK) if scaled else 0.0


def _rehearse(scale: float) -> str:
    """Return the advice to rehearse at this scale or with a smaller profile; empty if the scale is too small."""
    if scale < _SMALLEST_SCALE:
        return ""
    profiles = [name for name, profile in PROFILES.items() if profile.scale <= scale]
    ways = [f"--ckpt-scale=1/{int(1 / scale) + 1}", *(f"--ckpt-profile={name}" for name in profiles)]
    return f"rehearse with {' or '.join(ways)}"


def foreseen(settings: Settings, plan: Plan, spec: TargetSpec) -> Problems:
    """Return the reasons to refuse a run: an unusable target, too little space, too little memory.

    A separate process inspects the target without writing. Network targets are not inspected. If the user names hosts
    or a launcher, memory is not checked, because ranks may then be on other hosts.
    """
    problems = Problems()
    with problems.noting():
        facts = None if spec.is_remote else _query_target(settings, spec)
        if facts and facts.capacity and settings.measures:
            check_space(plan, settings, facts.capacity.free_bytes)
    with problems.noting():
        if settings.measures and not settings.hosts and not settings.is_set("--ckpt-launcher"):
            ranks = range(max((c.layout.processes for c in plan.runnable), default=0))
            check_memory_of(plan, [("this host", ranks, memory_available_bytes())])
    return problems


def _query_target(settings: Settings, spec: TargetSpec) -> TargetFacts:
    text = settings.target or ""
    try:
        return check_in_time(spec, text, _ANSWER_SECONDS)
    except NoAnswerError as silence:
        raise UsageError(
            f"--ckpt-target {text}: {silence}.",
            "Unmount it (umount -l PATH) and mount it again, or contact its administrator.",
        ) from None
    except RefusedError as error:
        raise UsageError(str(error), error.remedy or "Try it by hand: stat PATH; df PATH; ls PATH.") from None
