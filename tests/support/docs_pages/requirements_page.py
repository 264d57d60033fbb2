"""Generates the tables in docs/requirements.md from the catalogue. Run it with ``python -m``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.checks import CHECKS, Check
from pytest_ckpt.facts.gate_tables import GATE_TABLES
from pytest_ckpt.facts.targets import MOUNTED, Capability
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.reasons import REASONS
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.sizing.limits import cluster_limits
from pytest_ckpt.sizing.reliability import parse_failure_model
from pytest_ckpt.support.units import format_seconds
from tests.support import CHECKOUT
from tests.support.docs_pages import replace_section

PAGE = CHECKOUT / "docs" / "requirements.md"
NOT_ASKED = "—"
_OF_STORES: frozenset[Capability] = frozenset(("objects", "parts of S3"))
# The targets to which a gate table applies; for other tables these are mounted file systems.
_OFFERED = {"object": _OF_STORES, "object-local": _OF_STORES, "speed-only": MOUNTED | _OF_STORES}
_WHERE_GIVEN = {"required": "where given", "advisory": "advisory where given"}
GATES = {name: built_in(name) for name in GATE_TABLES}

_OF_16000 = cluster_limits(16_000, failures=parse_failure_model("llama3"))
_INTERVAL = format_seconds(_OF_16000.interval_seconds)
_SAVE, _LOAD = format_seconds(_OF_16000.save_limit_seconds), format_seconds(_OF_16000.load_limit_seconds)
SUITES = {
    "performance": (
        "Speed and its proofs",
        "These requirements are part of every run. Each requirement is judged on every checkpoint of the plan.",
    ),
    "strategies": (
        "Saves during which the job continues",
        "Part of a run if `--ckpt-strategy` names a strategy other than `sync`. PREEMPT is part of a run if "
        "`--ckpt-suite=strategies:preemption-notice` is given. Each requirement is judged on the checkpoints of the "
        "strategies to which it applies. If a strategy does not block, BLOCKING replaces SAVE. "
        "[strategies.md](strategies.md) explains the measurements.",
    ),
    "contention": (
        "Contention and resharded loads",
        "Part of a run if the gate table requires one of them or `--ckpt-suite` names `contention`. "
        "[patterns.md](patterns.md) explains how each is measured.",
    ),
    "endurance": (
        "Long series of saves, and a full volume",
        "Part of a run if `--ckpt-suite` names `endurance`. [patterns.md](patterns.md#endurance) explains how each is "
        "measured.",
    ),
    "serving": (
        "Weights only",
        "Part of a run if `--ckpt-suite` names `serving`, or `--ckpt-suite=serving:load-limit` is given. "
        "[patterns.md](patterns.md#serving) explains how each is measured.",
    ),
    "scaling": (
        "More clients",
        "Part of a run if `--ckpt-suite` names `scaling`, or `--ckpt-suite=scaling:vendor-max-rate` is given. "
        "[two_clients.md](two_clients.md) explains how SCALING is measured, and its meaning for a cluster.",
    ),
    "metadata": (
        "Many names",
        "Part of a run if `--ckpt-suite` names `metadata`. [many_files.md](many_files.md) explains how it is measured.",
    ),
    "failover": (
        "A component fails",
        "Part of a run that is given a command that injects a fault and a command that repairs it. "
        "[patterns.md](patterns.md#failover) explains how it is measured.",
    ),
    "maintenance": (
        "The storage is maintained",
        "Part of a run that is given a command that restarts or upgrades the storage, or commands that take and "
        "remove a snapshot. [patterns.md](patterns.md#maintenance) explains how each is measured.",
    ),
    "conformance": (
        "Behaviour of the target",
        "Part of a run if the gate table requires one of them. Each is judged by checks; "
        "[conformance.md](conformance.md) describes each check and the software that relies on it. A check without a "
        "limit is met if it found no fault.",
    ),
}


def with_catalogue(page: str) -> str:
    """Return the page with the generated text between its marks."""
    return replace_section(page, "the catalogue", "\n" + from_the_catalogue())


def from_the_catalogue() -> str:
    """Return the generated text: the requirements of each gate table, and every requirement by suite."""
    head = f"| requirement | {' | '.join(GATE_TABLES)} |"
    lines = ["## Requirements by gate table", "", head, "|---" * (len(GATE_TABLES) + 1) + "|"]
    for requirement in REQUIREMENTS.values():
        lines += [f"| {name} | {' | '.join(kinds)} |" for name, kinds in _rows(requirement)]
    for suite, (title, text) in SUITES.items():
        lines += ["", f"## {title}", "", text]
        for requirement in (r for r in REQUIREMENTS.values() if r.suite == suite):
            lines += ["", *_described(requirement)]
    return "\n".join([*lines, ""])


def _rows(requirement: Requirement) -> Iterator[tuple[str, list[str]]]:
    """Yield (name, [gate kind in each gate table]) for each table row of a requirement.

    Checks with equal gate kinds share a row.
    """
    if requirement.suite != "conformance":
        # A measurement that a run performs only on request counts only if it is requested.
        given = {} if requirement.is_requested(resolve({}, {})) else _WHERE_GIVEN
        kinds = [_kind(requirement, "", name) for name in GATES]
        yield _linked(requirement), [given.get(kind, kind) for kind in kinds]
        return
    alike: dict[tuple[str, ...], list[str]] = {}
    for check in _checks(requirement):
        row = tuple(_kind(requirement, check.subject, name) for name in GATES)
        alike.setdefault(row, []).append(check.subject)
    for number, (of, subjects) in enumerate(alike.items()):
        which = f": {', '.join(subjects)}" if len(alike) > 1 else ""
        yield (requirement.id if number else _linked(requirement)) + which, list(of)


def _kind(requirement: Requirement, subject: str, table: str) -> str:
    """Return the gate kind of a requirement in a gate table.

    If the requirement does not apply to the targets of the table, return a dash.
    """
    if not requirement.needs <= _OFFERED.get(table, MOUNTED):
        return NOT_ASKED
    return GATES[table].kind(requirement.id, subject, requirement.severity)


def _described(requirement: Requirement) -> list[str]:
    lines = [f"### {_heading(requirement)}", ""]
    for paragraph in requirement.text.split("\n\n"):
        lines += [" ".join(paragraph.split()), ""]
    if requirement.suite == "conformance":
        lines += ["| check | needs | limit |", "|---|---|---|"]
        for check in _checks(requirement):
            limit = "" if check.limit is None else f"{check.limit:g} {check.unit}"
            lines.append(f"| {check.subject} | {check.needs} | {limit} |")
        return [*lines, "", f"- Source: {requirement.source}.", *_reasons(requirement), *_other_lists(requirement)]
    maximum = "" if requirement.maximum is None else "; a gate table may set another"
    limit = requirement.limit.format(maximum=requirement.maximum, save=_SAVE, load=_LOAD, interval=_INTERVAL)
    lines.append(f"- Measured: {requirement.figure}, in {' or '.join(f'`{unit}`' for unit in requirement.units)}")
    lines.append(f"- Limit: {limit}{maximum}")
    return [*lines, f"- Source: {requirement.source}.", *_reasons(requirement), *_other_lists(requirement)]


def _reasons(requirement: Requirement) -> list[str]:
    """Return list items that state why a requirement and its checks may be required.

    Checks with equal reasons share an item.
    """
    names: dict[str, list[str]] = {}
    for reason in REASONS:
        if reason.name.partition(".")[0] == requirement.id:
            tables = f" (gate table {', '.join(reason.tables)})" if reason.tables else ""
            names.setdefault(f"{tables}: {reason.text}", []).append(reason.name)
    return [f"- Why {' and '.join(of)} may be required{text}" for text, of in names.items()]


def _other_lists(requirement: Requirement) -> list[str]:
    return [f"- Also known as: {', '.join(names)}."] if (names := requirement.also_known_as) else []


def _checks(requirement: Requirement) -> list[Check]:
    return [check for check in CHECKS if check.requirement == requirement.id]


def _heading(requirement: Requirement) -> str:
    return f"{requirement.id}: {requirement.title}"


def _linked(requirement: Requirement) -> str:
    slug = re.sub(r"[^\w\- ]", "", _heading(requirement).lower()).replace(" ", "-")
    return f"[{requirement.id}](#{slug})"


if __name__ == "__main__":
    PAGE.write_text(with_catalogue(PAGE.read_text()))
