"""The requirements on a target's behaviour and their judge. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.judging.decision import Decision, measured_as, not_decided
from pytest_ckpt.judging.wording import describe_blocked
from pytest_ckpt.support.units import compared, counted, format_count, format_general, format_seconds

if TYPE_CHECKING:
    from pytest_ckpt.facts.check_row import Check
    from pytest_ckpt.facts.observation import Anomaly, Observation
    from pytest_ckpt.facts.targets import Capability
    from pytest_ckpt.facts.verdict import Severity

_NEEDS = {
    "second client": "No second client (--ckpt-second-mount, or a second host in --ckpt-hosts).",
    "power cut": "No power-cut command (--ckpt-power-cut).",
    "small folder": "No folder to fill (--ckpt-full-target: one on a small volume or quota).",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Behaviour:
    """A row of the table: one requirement on how a target behaves; its checks are rows of facts.checks.

    ``needs`` as of a `Requirement`.
    """

    id: str
    title: str
    severity: Severity
    source: str
    needs: frozenset[Capability] = frozenset({"paths"})


BEHAVIOURS = (
    Behaviour(
        id="COMMIT",
        title="A rename replaces at once",
        severity="required",
        source="POSIX rename(); relied on by torch DCP, Megatron-Core, Orbax, Hugging Face",
    ),
    Behaviour(
        id="VISIBLE",
        title="What was closed is read elsewhere",
        severity="required",
        source="close-to-open consistency (NFS); IO500 rule 2; storage acceptance list of NVIDIA, N-011",
    ),
    Behaviour(
        id="PUBLISH",
        title="Who sees a checkpoint finds all of it",
        severity="required",
        source="our limit: 10 s from the commit; close-to-open consistency (NFS)",
    ),
    Behaviour(
        id="STALE",
        title="No client works with old names or attributes",
        severity="required",
        source="our limit: 1 s; storage acceptance list of NVIDIA, HSS17 and N-011",
    ),
    Behaviour(
        id="EXCLUSIVE",
        title="One creator wins",
        severity="required",
        source="POSIX open(O_CREAT | O_EXCL); relied on by NVRx",
    ),
    Behaviour(
        id="DIRECT",
        title="Direct and buffered access agree",
        severity="advisory",
        source="open(2): O_DIRECT; relied on by the fast writer of DeepSpeed",
    ),
    Behaviour(
        id="MMAP",
        title="Files can be mapped",
        severity="required",
        source="POSIX mmap(); relied on by safetensors and torch.load(mmap=True)",
    ),
    Behaviour(
        id="POINTER",
        title="A small file is overwritten without garbage",
        severity="required",
        source="relied on by DeepSpeed (latest) and Megatron (tracker file)",
    ),
    Behaviour(
        id="SPARSE",
        title="Several writers fill one file",
        severity="required",
        source="POSIX pwrite(); relied on by DataStates",
    ),
    Behaviour(
        id="CLONE-FRESH",
        title="A copy of a new file is complete",
        severity="advisory",
        source="lseek(2): SEEK_DATA, copy_file_range(2), FICLONE; OpenZFS issue 15526: copies of new files had zeros",
    ),
    Behaviour(
        id="TRUNCATE",
        title="Concurrent truncation does not hang",
        severity="required",
        source="seen on NFS: a truncating open that hung for 35 h; our limit: 30 s",
    ),
    Behaviour(
        id="MKDIR",
        title="A folder is made once and seen by all",
        severity="required",
        source="POSIX mkdir(); relied on by every framework",
    ),
    Behaviour(
        id="LARGE",
        title="Large files keep their offsets",
        severity="required",
        source="POSIX lseek() and pwrite(); relied on by saves into one file",
    ),
    Behaviour(
        id="NAMES",
        title="Every name is listed, once",
        severity="required",
        source="POSIX readdir(); storage acceptance list of NVIDIA, N-013a; our limit: 10,000 files within 10 s",
    ),
    Behaviour(
        id="UNLINK",
        title="Deleting does not disturb a reader",
        severity="required",
        source="POSIX unlink(); relied on by retention of old checkpoints",
    ),
    Behaviour(
        id="DURABLE",
        title="Acknowledged saves survive",
        severity="required",
        source="POSIX fsync(): none lost; IO500 rule 6",
    ),
    Behaviour(
        id="ERRORS",
        title="Success never claims missing bytes",
        severity="required",
        source="POSIX write(), fsync(), close()",
    ),
    Behaviour(
        id="FULL",
        title="A full volume costs no checkpoint",
        severity="required",
        source="our acceptance case: the previous checkpoint stays, the next save works",
    ),
    Behaviour(
        id="COMMIT-FULL",
        title="A commit without space loses nothing",
        severity="required",
        source="our acceptance case: the checkpoint before and a pointer stay, the next save works",
    ),
    Behaviour(
        id="LIVE",
        title="No call blocks for long",
        severity="required",
        source="our acceptance case: at most 300 s",
    ),
    Behaviour(
        id="CAPABILITIES",
        title="What else the file system offers",
        severity="advisory",
        source="what frameworks and operators use besides; storage acceptance list of NVIDIA, HSS14 (locks)",
    ),
)


def judge_observation(observation: Observation, limit: float | None) -> Decision:
    """A healthy target shows no anomaly, and its figure stays within the limit where there is one."""
    if observation.blocked:
        because = describe_blocked(observation.blocked)
        stack = tuple(observation.blocked.stack.splitlines())
        detail = (*stack, *_reproduce(observation))
        return Decision(outcome="failed", reason="hung", because=because, detail=detail)
    if observation.not_run:
        because, _, more = observation.not_run.partition("\n")
        detail = (*more.splitlines(), *_reproduce(observation))
        return not_decided("run ended" if observation.errno else "check broke", _sentence(because), detail)
    measured, unit = observation.measured, observation.unit
    detail = (*(_line(a) for a in observation.anomalies), *_facts(observation), *_reproduce(observation))
    if observation.anomaly_count:
        first = observation.anomalies[0]
        count = f" ({format_count(observation.anomaly_count)} such findings)" if observation.anomaly_count > 1 else ""
        because = _sentence(f"{first.kind}: {first.where}: seen {first.seen}, expected {first.expected}{count}.")
        return Decision(
            outcome="failed", reason="anomaly", because=because, measured=measured, unit=unit, detail=detail
        )
    tried = counted(observation.trials, "trial")
    if measured is None:
        if not observation.trials:
            return not_decided("too few", "The check ended before its first trial.")
        return Decision(outcome="met", reason="met", because=f"No fault in {tried}.", detail=detail)
    if limit is None:
        return Decision(
            outcome="met",
            reason="met",
            because=f"No fault in {tried}.",
            measured=measured,
            unit=unit,
            detail=detail,
        )
    took, allowed = compared(measured, limit, format_seconds if unit == "s" else format_general)
    if measured > limit:
        because = f"Took {took}; limit {allowed}, in {tried}."
        return measured_as("over limit", measured, limit, unit, because, detail)
    because = f"Worst: {took}; limit {allowed}, in {tried}."
    return measured_as("met", measured, limit, unit, because, detail)


def missing_need(check: Check) -> str:
    """Return the sentence that says what a check would have needed."""
    return _NEEDS[check.needs]


def _line(anomaly: Anomaly) -> str:
    return f"{anomaly.kind}: {anomaly.where}: seen {anomaly.seen}; expected {anomaly.expected}"


def _facts(observation: Observation) -> list[str]:
    return [f"{name}: {value}" for name, value in observation.facts.items()]


def _reproduce(observation: Observation) -> list[str]:
    return [f"to reproduce: {observation.reproduce}"] if observation.reproduce else []


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
