"""``pytest-ckpt options``: list every option and parameter, or describe one of them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from pytest_ckpt.cli.console import print_lines
from pytest_ckpt.facts.options import ACTIONS, GROUPS, LISTS, NOT_SET, OPTIONS, ROLES, Option, parameters_of
from pytest_ckpt.support.errors import UsageError, nearest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pytest_ckpt.facts.options import Role

HELP = "list all options of a run, or explain one"
DESCRIPTION = (
    "List the options of a run with the parameters of engines, strategies, suites and actions. With a name, explain "
    "that option: values, default, how it is written in a file, and its effects."
)
_COLUMN, _WIDTH = 32, 110


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="such as engine, stream, io-size or power_cut")


def run(args: argparse.Namespace) -> int:
    """Print the list of options, or describe each option with the given name. Return 0."""
    if args.name is None:
        print_lines(list(_listed()))
        return 0
    found = _named(args.name)
    if not found:
        known = sorted({word for option in OPTIONS for word in _names_of(option)})
        raise UsageError(
            f"Unknown option '{args.name:.60}'{nearest(_plain(args.name.partition('=')[0]), known)}.",
            "pytest-ckpt options lists all options.",
        )
    for number, option in enumerate(found):
        print_lines([*([""] if number else []), *_explained(option)])
    return 0


def in_files(option: Option) -> str:
    """Return a line of TOML that sets the option to its example value; empty if files cannot contain the option."""
    if option.key == "config" or option.variables:
        return ""
    value = "true" if option.is_flag else option.example if option.example.isdigit() else f'"{option.example}"'
    if option.parent:
        table = option.owners[0] if option.parent == ACTIONS else f"{option.parent}.{option.owners[0]}"
        return f"[{table}] {option.name} = {value}"
    return f"{option.ini_name} = {value}"


def on_command_line(option: Option) -> str:
    """Return the option with its example value as command-line text.

    The text is empty for an option that is set only in the file of ``--ckpt-actions``.
    """
    if option.parent == ACTIONS:
        return ""
    if option.is_flag and not option.parent:
        return option.usual_flag
    return f"{option.usual_flag}={option.example}"


def roles_of(option: Option) -> list[Role]:
    """Return the roles (keys of `ROLES`) that the description of an option explains.

    The role "plan" means that a run fixes the value. If the option also has the role "limit", the role "plan" is left
    out, because the value can be changed when the run is judged again.
    """
    return [role for role in ROLES if role in option.roles and not (role == "plan" and "limit" in option.roles)]


def _listed() -> Iterator[str]:
    for group in GROUPS:
        yield f"{group}:"
        for option in OPTIONS:
            if option.group == group and not option.parent:
                yield from _line(" / ".join(option.flags or option.variables), option)
                for row in parameters_of(option.key):
                    owners = "|".join(row.owners)
                    name = f"[{owners}] {row.name}" if option.key == ACTIONS else f"{owners}:{row.name}"
                    yield from _line(name, row, "    ")
        yield ""
    yield "Parameters on a command line: --ckpt-strategy=incremental:changed=10%,full-every=5."
    yield 'Parameters in the file of --ckpt-config: a table [strategy.incremental] with changed = "10%".'
    yield "pytest-ckpt options NAME explains an option or a parameter."


def _line(name: str, option: Option, indent: str = "") -> Iterator[str]:
    left = f"  {indent}{name}{'' if option.is_flag or not option.metavar else '=' + option.metavar}"
    if len(left) >= _COLUMN:
        yield left
        left = ""
    first, rest = f"{left:<{_COLUMN}}", " " * _COLUMN
    yield from textwrap.wrap(option.help_line, _WIDTH, initial_indent=first, subsequent_indent=rest)


def _explained(option: Option) -> Iterator[str]:
    yield f"{option.flag}: {option.help}"
    yield from textwrap.wrap(option.more, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    if len(option.owners) > 1:
        yield f"  Parameter of: {', '.join(option.owners)}"
    if option.variables:
        yield f"  Environment variables: {', '.join(option.variables)}"
    yield f"  Default: {option.default or NOT_SET}"
    if word := on_command_line(option) if not option.variables else "":
        yield f"  Command line: {word}"
    if line := in_files(option):
        yield f"  File: {line}"
    for role in roles_of(option):
        yield f"  {ROLES[role].replace('`', '')}"
    if option.key in LISTS or option.key == ACTIONS:
        yield f"  Parameters: {', '.join(dict.fromkeys(row.name for row in parameters_of(option.key)))}"


def _plain(word: str) -> str:
    return word.strip().removeprefix("--").removeprefix("ckpt-").removeprefix("ckpt_").lower()


def _names_of(option: Option) -> set[str]:
    """Return the names that ``pytest-ckpt options NAME`` accepts for an option."""
    words = {option.key, option.name, option.parent, *option.owners, *option.variables, *option.aliases}
    words |= {f"{owner}:{option.name}" for owner in option.owners}
    return {_plain(word).replace("_", "-") for word in words if word}


def _named(word: str) -> list[Option]:
    name = _plain(word).replace("_", "-").rpartition("=")[2]
    return [option for option in OPTIONS if name in _names_of(option)]
