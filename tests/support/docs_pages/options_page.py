"""Generates the tables in docs/options.md from the table of options. Run it with ``python -m``."""

from __future__ import annotations

from pytest_ckpt.cli.options import in_files, on_command_line, roles_of
from pytest_ckpt.facts.engines import BUILT_IN
from pytest_ckpt.facts.options import (
    ACTIONS,
    GROUPS,
    LISTS,
    NOT_SET,
    OPTIONS,
    ROLES,
    Group,
    Option,
    Role,
    parameters_of,
)
from pytest_ckpt.facts.strategies import STRATEGIES
from tests.support import CHECKOUT
from tests.support.docs_pages import replace_section

PAGE = CHECKOUT / "docs" / "options.md"


# The introduction of each group of options.
TEXTS: dict[Group, str] = {
    "target": "The target is the one option that every run needs. [several_hosts.md](several_hosts.md) shows ranks on "
    "several hosts.",
    "cluster and limits": "Speed is judged for a cluster of `--cluster` accelerators. The other options are the "
    "buyer's terms. [limits.md](limits.md) derives the limits, [requirements.md](requirements.md) lists the "
    "requirements, [conformance.md](conformance.md) lists the gate tables, and [contract.md](contract.md#waivers) "
    "shows a waiver.",
    "workload": "A run with the profile `acceptance` and the defaults below can be certified. "
    "[workload.md](workload.md) explains models and modes.",
    "checks": "Some checks need a second client, a power cut or a small volume. On shared storage a certificate needs "
    "a second client and a small volume. A power cut is required only if the run was given a command for it.",
    "evidence": "[evidence.md](evidence.md) explains these options, [dashboards.md](dashboards.md) live metrics.",
}

# The values of an option that the page shows as a list.
VALUES = {
    "engine": [(engine.name, engine.help) for engine in BUILT_IN],
    "strategy": [(strategy.name, strategy.help) for strategy in STRATEGIES],
}

LETTERS: dict[Role, str] = {"limit": "L", "plan": "P", "condition": "T", "disclosed": "D"}
"""The letters by which the page marks the roles of an option."""


def with_options(page: str) -> str:
    """Return the page with the generated text between its marks."""
    return replace_section(page, "the table of options", "\n" + from_the_table())


def from_the_table() -> str:
    """Return the generated text: a table of all options, a section for each option, and a settings file."""
    lines = [
        "## Marks",
        "",
        "The marks of an option show how `pytest-ckpt judge`, trends and disclosures use its value:",
        "",
    ]
    lines += [*(f"- **{LETTERS[role]}**: {text}" for role, text in ROLES.items()), ""]
    lines += ["## All options", "", "| option | default | what it is |", "|---|---|---|"]
    lines += [_row(option) for option in _in_order()]
    for group in GROUPS:
        lines += ["", f"## {group.capitalize()}", ""] + ([TEXTS[group], ""] if TEXTS[group] else [])
        for option in _in_order():
            if option.group == group:
                lines += _described(option)
    lines += ["## All of them in one file", ""]
    lines += [
        "Each value is an example, not advice. A file needs only the values that differ from the defaults.",
        "",
    ]
    lines += ["```toml", *_settings_file(), "```", "", "The file of `--ckpt-actions`:", "", "```toml"]
    return "\n".join([*lines, *_actions_file(), "```", ""])


def _in_order() -> list[Option]:
    """Return the options in the order of the page. The parameters of an option follow the option."""
    found = []
    for option in OPTIONS:
        if not option.parent:
            found += [option, *parameters_of(option.key)]
    return found


def _row(option: Option) -> str:
    name = f"[`{_written(option)}`](#{_anchor(option)})"
    return f"| {name} | {f'`{option.default}`' if option.default else ''} | {option.help} |"


def _written(option: Option) -> str:
    if option.variables:
        return " / ".join(option.variables)
    if option.parent == ACTIONS:
        return f"[{option.owners[0]}] {option.name}"
    if option.parent:
        return option.flag.removeprefix("--ckpt-")
    return option.flags[0]


def _anchor(option: Option) -> str:
    return "".join(sign for sign in option.flag.lower().replace(" ", "-") if sign.isalnum() or sign in "-_")


def _described(option: Option) -> list[str]:
    values = VALUES.get(option.key, [])
    more = option.more.partition(":")[0] + ":" if values else option.more
    text = f"{option.help[0].upper()}{option.help[1:]}. {more}".rstrip()
    lines = [f"### `{option.flag}`", "", text, ""]
    if values:
        lines += ["| value | meaning |", "|---|---|", *(f"| `{name}` | {meaning} |" for name, meaning in values), ""]
    if option.aliases:
        lines.append(f"- Also written: `{option.aliases[0]}`")
    if len(option.owners) > 1:
        lines.append(f"- Parameter of: {', '.join(f'`{owner}`' for owner in option.owners)}")
    lines.append(f"- Default: {f'`{option.default}`' if option.default else NOT_SET}")
    if word := on_command_line(option):
        lines.append(f"- Example: `{word}`")
    if line := in_files(option):
        lines.append(f"- In a file: `{line}`")
    letters = ", ".join(LETTERS[role] for role in roles_of(option))
    return [*lines, *([f"- [Marks](#marks): {letters}"] if letters else []), ""]


def _settings_file() -> list[str]:
    lines = [in_files(option) for option in OPTIONS if option.is_option and option.key != "config"]
    for parent in LISTS:
        for owner in dict.fromkeys(option.owners[0] for option in parameters_of(parent)):
            rows = [option for option in parameters_of(parent) if option.owners[0] == owner]
            lines += ["", f"[{parent}.{owner}]", *(in_files(option).partition("] ")[2] for option in rows)]
    return lines


def _actions_file() -> list[str]:
    lines: list[str] = []
    for table in dict.fromkeys(option.owners[0] for option in parameters_of(ACTIONS)):
        rows = [option for option in parameters_of(ACTIONS) if option.owners[0] == table]
        lines += [*([""] if lines else []), f"[{table}]", *(in_files(option).partition("] ")[2] for option in rows)]
    return lines


if __name__ == "__main__":
    PAGE.write_text(with_options(PAGE.read_text()))
