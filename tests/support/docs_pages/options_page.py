"""Writes what in docs/options.md follows from the table of options: ``python -m`` this module."""

from __future__ import annotations

import json

from pytest_ckpt.facts.options import GROUPS, OPTIONS, ROLES, Group, Option
from tests.support import CHECKOUT
from tests.support.docs_pages import made_anew

PAGE = CHECKOUT / "docs" / "options.md"


# What a reader is told of a group before its options.
TEXTS: dict[Group, str] = {
    "target": "The target is the one option that every run needs. [several_hosts.md](several_hosts.md) shows ranks on "
    "several hosts.",
    "cluster and limits": "Speed is judged for the cluster of `--cluster`; the others are the buyer's terms. "
    "[limits.md](limits.md) derives the limits, [requirements.md](requirements.md) lists the requirements, "
    "[conformance.md](conformance.md) the gate tables, [contract.md](contract.md#waivers) shows a waiver.",
    "workload": "A run with the profile `acceptance` and the defaults below can be certified. "
    "[workload.md](workload.md) explains models and modes.",
    "checks": "Some checks need a second client, a power cut or a small volume; on shared storage they are mandatory.",
    "evidence": "[evidence.md](evidence.md) shows what each is for.",
    "advanced": "",
}


def with_options(page: str) -> str:
    """Return the page with the part between the marks made anew."""
    return made_anew(page, "the table of options", "\n" + from_the_table())


def from_the_table() -> str:
    """Return every option by group, and one file that sets them all."""
    lines: list[str] = []
    for group in GROUPS:
        lines += [f"## {group.capitalize()}", ""] + ([TEXTS[group], ""] if TEXTS[group] else [])
        for option in OPTIONS:
            if option.group == group:
                lines += _described(option)
    lines += ["## All of them in one file", ""]
    lines += ["Each value is an example, not advice: such a file holds what differs from the defaults.", "", "```toml"]
    lines += [_toml(option) for option in OPTIONS if option.key != "config"]
    return "\n".join([*lines, "```", ""])


def _described(option: Option) -> list[str]:
    name = f"`{' '.join(filter(None, [option.flags[0], option.metavar]))}`"
    lines = [f"### `{option.flag}`", "", f"{name} – {option.help}.", ""]
    if option.aliases:
        lines.append(f"- Also written: `{option.flag}`")
    lines.append(f"- Default: {f'`{option.default}`' if option.default else 'none'}")
    toml = f", `{_toml(option)}` (TOML)" if option.key != "config" else ""
    lines.append(f"- In a file: `{option.ini_name} = {option.example}` (ini){toml}")
    # What may be given anew is not kept.
    roles = [role for role in ROLES if role in option.roles and not (role == "plan" and "limit" in option.roles)]
    return [*lines, *(f"- {ROLES[role]}" for role in roles), ""]


def _toml(option: Option) -> str:
    if option.is_flag:
        return f"{option.ini_name} = true"
    return f"{option.ini_name} = {option.example if option.example.isdigit() else json.dumps(option.example)}"


if __name__ == "__main__":
    PAGE.write_text(with_options(PAGE.read_text()))
