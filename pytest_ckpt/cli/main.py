"""The command ``pytest-ckpt``: reads the command line and calls the module of the subcommand."""

from __future__ import annotations

import argparse
import io
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_ckpt import __version__
from pytest_ckpt.cli import (
    diff,
    doctor,
    export,
    judge,
    options,
    plan,
    project,
    record,
    schema,
    show,
    simulate,
    size,
    trend,
    verify,
)
from pytest_ckpt.facts.options import parameter_hint
from pytest_ckpt.support.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_USAGE = 4
_MANY = 5
COMMANDS = {
    "plan": plan,
    "size": size,
    "judge": judge,
    "verify": verify,
    "diff": diff,
    "trend": trend,
    "export": export,
    "simulate": simulate,
    "project": project,
    "record": record,
    "show": show,
    "schema": schema,
    "doctor": doctor,
    "options": options,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the terminal's encoding lacks must not end a command.
            stream.reconfigure(errors="backslashreplace")
    parser, words = _parsers(sys.argv[1:] if arguments is None else arguments)
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        words[args.command].refuse(unknown)
    try:
        return int(COMMANDS[args.command].run(args))
    except UsageError as error:
        return _refused(str(error))
    except BrokenPipeError:
        # The reader has closed the pipe; further output is impossible.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        named = "" if error.filename is None else f"{os.fsdecode(error.filename)!s:.200}: "
        return _refused(f"{named}{error.strerror or error}.")
    except Exception as error:
        return _crashed(error, sys.argv[1:] if arguments is None else arguments)


def _crashed(error: Exception, words: Sequence[str]) -> int:
    """Report an internal error in one sentence, write its traceback to a file, and return the exit code.

    ``words`` are the command-line arguments. Secrets in them and in the environment are masked in the traceback.
    """
    from pytest_ckpt.grading.grading import EXIT_CRASHED  # noqa: PLC0415
    from pytest_ckpt.report.svg import printable  # noqa: PLC0415
    from pytest_ckpt.run.crash import store_traceback  # noqa: PLC0415
    from pytest_ckpt.support.redaction import Redactor  # noqa: PLC0415

    print(printable(f"pytest-ckpt: {store_traceback(error, None, Redactor.of(os.environ, words))}"), file=sys.stderr)
    return EXIT_CRASHED


def _refused(text: str) -> int:
    from pytest_ckpt.report.svg import printable  # noqa: PLC0415 - only when there is something to say

    print(printable(f"pytest-ckpt: error: {text}"), file=sys.stderr)
    return EXIT_USAGE


class _Help(argparse.HelpFormatter):
    """Formats the help of a command, with a wide column for option names.

    If a command has many options, its usage line contains the word "options" instead of their names.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)

    def add_usage(self, usage: str | None, actions: Any, groups: Any, prefix: str | None = None) -> None:
        """Add the usage line. If there are many options, leave out their names."""
        named = [action for action in actions if action.option_strings and action.help != argparse.SUPPRESS]
        if len(named) > _MANY:
            options = argparse.Action([], dest="options", nargs="?", metavar="options")
            actions = [options, *(action for action in actions if not action.option_strings)]
            groups = ()
        super().add_usage(usage, actions, groups, prefix)


class _Parser(argparse.ArgumentParser):
    """An argument parser that ends the process with exit code 4 for usage errors."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **{"formatter_class": _Help, **named})

    def error(self, message: str) -> NoReturn:
        from pytest_ckpt.report.svg import printable  # noqa: PLC0415

        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, printable(f"{self.prog}: error: {message}\n"))

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Report unknown arguments with the most similar option, and end the process with exit code 4."""
        known = [flag for flag in self._option_string_actions if flag.startswith("--")]
        typo = next((word.partition("=")[0] for word in unknown if word.startswith("--")), "")
        hint = (parameter_hint(typo) if typo.startswith("--ckpt-") else "") or nearest(typo, known)
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


def _parsers(arguments: Sequence[str]) -> tuple[_Parser, dict[str, _Parser]]:
    """Return the parser of the command, and {subcommand: its parser}.

    Options are added only to the subcommand that ``arguments`` name.
    """
    parser = _Parser(prog="pytest-ckpt", description="Acceptance of storage for AI checkpoints.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"pytest-ckpt {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    words = {}
    for name, command in COMMANDS.items():
        words[name] = commands.add_parser(name, help=command.HELP, allow_abbrev=False, description=command.DESCRIPTION)
        if name in arguments:
            command.add_arguments(words[name])
    return parser, words


if __name__ == "__main__":
    sys.exit(main())
