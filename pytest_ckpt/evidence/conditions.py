"""What runs must have in common to stand on one certificate, and what may differ where the certificate names it."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pytest_ckpt.evidence.judged_run import JudgedRun
from pytest_ckpt.facts.options import OPTIONS, Option
from pytest_ckpt.sizing.plan import PlannedCheckpoint
from pytest_ckpt.support.errors import UsageError

# Compared as what they lead to: what the target is, the rows of the gates.
_BY_FACTS = frozenset(("target", "gates"))
_OF_TARGET = ("location", "kind", "gate_kind", "is_local", "source", "mount_point", "plugin")
# Of a mount, what differs with the client or the day, and says nothing of the storage.
_OF_CLIENT = ("addr", "clientaddr", "mountaddr", "mountport", "port")
_OF_SYSTEM = ("vendor", "product", "serial", "firmware")
_MAXIMUM_LETTERS = 200
_REMEDY = "Runs on one certificate have target, gates, limits and version in common: leave one out, or run it again."


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Something in which runs differ that may: ``values`` has, for each label of a run, what it had."""

    name: str
    values: Mapping[str, str]


def check_alike(runs: Mapping[str, JudgedRun], command_line: Mapping[str, str | None]) -> None:
    """Refuse runs that cannot stand on one certificate. Raises UsageError, which names the first difference.

    ``runs`` go by label. What ``command_line`` gives holds for all of them, whatever they had.
    """
    for (label, one), (other_label, other) in itertools.combinations(runs.items(), 2):
        for name, value, other_value in _forbidden(one, other, command_line):
            raise UsageError(
                f"{label} and {other_label} differ in {name}: {_short(value)}, and {_short(other_value)}.", _REMEDY
            )
    seen: dict[str, str] = {}
    for label, run in runs.items():
        if (id_ := str(run.report["run"]["id"])) in seen:
            raise UsageError(f"{seen[id_]} and {label} are the same run, {id_:.100}.", "Name each run once.")
        seen[id_] = label


def _forbidden(one: JudgedRun, other: JudgedRun, command_line: Mapping[str, str | None]) -> Iterator[tuple[Any, ...]]:
    """Yield (name, one value, other value) for every difference that no certificate may have."""
    yield from _unequal("version of pytest-ckpt", one, other, lambda run: run.report["run"]["version"])
    for name in _OF_TARGET:
        yield from _unequal(f"target, {name.replace('_', ' ')}", one, other, operator.attrgetter(f"target.{name}"))
    yield from _unequal("target, capabilities", one, other, lambda run: ", ".join(sorted(run.target.capabilities)))
    yield from _unequal("mount options", one, other, _mount_options)
    yield from _unequal("gates", one, other, lambda run: run.gates.name)
    yield from _unequal("rows of the gates", one, other, lambda run: run.gates)
    for option in OPTIONS:
        if command_line.get(option.ini_name) is None and _must_match(option):
            is_optional = not option.default and "limit" not in option.roles
            values = _value(one, option), _value(other, option)
            if values[0] != values[1] and not (is_optional and option.unset in values):
                yield option.flag, _said(one, option), _said(other, option)
    described = [(run.report.get("system") or {}).get("system") or {} for run in (one, other)]
    for name in _OF_SYSTEM:
        if all(described) and described[0].get(name) != described[1].get(name):
            yield f"system, {name}", described[0].get(name), described[1].get(name)
    for planned in one.plan.checkpoints:
        for again in other.plan.checkpoints:
            if planned.subject == again.subject:
                yield from _of_checkpoint(str(planned.subject), planned, again)


def _of_checkpoint(
    subject: str, planned: PlannedCheckpoint, again: PlannedCheckpoint
) -> Iterator[tuple[str, str, str]]:
    if planned.layout.model != again.layout.model:
        yield f"the model of {subject}", planned.layout.model.label, again.layout.model.label
    if planned.engine != again.engine:
        yield f"the engine of {subject}", planned.engine.owner or "of pytest-ckpt", again.engine.owner or "another one"


def _unequal(
    name: str, one: JudgedRun, other: JudgedRun, value: Callable[[JudgedRun], Any]
) -> Iterator[tuple[str, Any, Any]]:
    if value(one) != value(other):
        yield name, value(one), value(other)


def _must_match(option: Option) -> bool:
    return bool(option.roles) and "apart" not in option.roles and option.key not in _BY_FACTS


def _value(run: JudgedRun, option: Option) -> Any:
    if option.field == "-":
        return _said(run, option)
    return getattr(run.settings, option.field or option.key)


def _said(run: JudgedRun, option: Option) -> str:
    return next((o.value for o in run.settings.origins if o.option == option.flag), "")


def _mount_options(run: JudgedRun) -> str:
    words = run.target.options.split(",")
    return ",".join(sorted(word for word in words if word.partition("=")[0] not in _OF_CLIENT))


def differences_of(runs: Mapping[str, JudgedRun]) -> tuple[Difference, ...]:
    """Return everything else in which runs differ: options, hosts, software, system, volume, time."""
    found = [
        _difference(option.flag, runs, functools.partial(_said, option=option)) for option in OPTIONS if option.roles
    ]
    found.append(_difference("hosts", runs, _hosts))
    found.append(_difference("launcher", runs, lambda run: str(run.report["environment"].get("launcher") or "")))
    versions = [run.report["environment"].get("versions") or {} for run in runs.values()]
    for name in dict.fromkeys(itertools.chain.from_iterable(versions)):
        found.append(_difference(name, runs, functools.partial(_version, name=name)))
    found.append(_difference("size of the volume", runs, _capacity))
    found.append(_difference("waivers", runs, _waived))
    found.append(_difference("system description", runs, _described))
    return tuple(difference for difference in found if difference)


def _difference(name: str, runs: Mapping[str, JudgedRun], value: Callable[[JudgedRun], str]) -> Difference | None:
    values = {label: value(run) for label, run in runs.items()}
    return Difference(name=name, values=values) if len(set(values.values())) > 1 else None


def _waived(run: JudgedRun) -> str:
    return "; ".join(f"{w.requirement} {w.subject}" for w in run.waivers)


def _hosts(run: JudgedRun) -> str:
    hosts = run.report["environment"].get("hosts") or []
    return ", ".join(f"{h['host']} ({h.get('cpu', '')}, kernel {h.get('kernel', '')})" for h in hosts)


def _version(run: JudgedRun, name: str) -> str:
    return str((run.report["environment"].get("versions") or {}).get(name, ""))


def _capacity(run: JudgedRun) -> str:
    return f"{run.target.capacity.total_bytes:,} bytes" if run.target.capacity else ""


def _described(run: JudgedRun) -> str:
    """Return what was told of the system; runs that say the same of it are alike, whatever the order."""
    described = run.report.get("system") or {}
    names = sorted(f"{table}.{name}={value}" for table, facts in described.items() if isinstance(facts, Mapping)
                   for name, value in facts.items())  # fmt: skip
    rows = sorted(
        f"{table}: {row}" for table, facts in described.items() if not isinstance(facts, Mapping) for row in facts
    )
    return "; ".join([*names, *rows])


def overlaps(runs: Mapping[str, JudgedRun]) -> list[str]:
    """Return a sentence for each run that began before the run before it had ended. ``runs``: oldest first."""
    found = []
    for (label, one), (later_label, later) in itertools.pairwise(runs.items()):
        if moment(later.report["run"]["started"]) < moment(one.report["run"]["finished"]):
            found.append(f"{later_label} began before {label} had ended: each was load for the other.")
    return found


def moment(text: Any) -> datetime:
    """Return a moment of a report. Raises ValueError for what is none."""
    found = datetime.fromisoformat(str(text))
    if found.tzinfo is None:
        raise ValueError(f"{text:.60} has no offset from UTC")
    return found


def _short(value: Any) -> str:
    text = str(value) or "nothing"
    return text if len(text) <= _MAXIMUM_LETTERS else f"{text[:_MAXIMUM_LETTERS]}…"


def labels(runs: Sequence[JudgedRun]) -> dict[str, JudgedRun]:
    """Return runs by the names that a certificate gives them, oldest first."""
    return {f"run {number}": run for number, run in enumerate(sorted(runs, key=_age), start=1)}


def _age(run: JudgedRun) -> tuple[datetime, datetime, str]:
    facts = run.report["run"]
    return moment(facts["started"]), moment(facts["finished"]), str(facts["id"])
