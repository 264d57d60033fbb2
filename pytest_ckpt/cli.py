"""The command ``pytest-ckpt``: what can be said without a run."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt import __version__
from pytest_ckpt.errors import UsageError
from pytest_ckpt.options import LIMITS, OPTIONS, add_options, resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_USAGE = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    asked = _parser().parse_args(arguments)
    try:
        return {"plan": _plan, "judge": _judge}[asked.command](asked)
    except UsageError as error:
        print(f"pytest-ckpt: error: {error}", file=sys.stderr)
        return EXIT_USAGE
    except BrokenPipeError:
        # The reader of the pipe has seen enough; nothing more can be said on it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


class _Parser(argparse.ArgumentParser):
    """Ends with the contract's exit code for usage errors."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: error: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="pytest-ckpt", description="Acceptance of storage for AI checkpoints.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"pytest-ckpt {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    plan = commands.add_parser(
        "plan",
        help="show what a run would write, read and need, and its limits; the target is not touched",
        allow_abbrev=False,
        description="Show what a run would write, read and need, and the limits it would judge by.",
    )
    add_options(plan.add_argument)
    plan.add_argument("--json", action="store_true", help="print the plan as JSON")
    plan.add_argument("--ranks", action="store_true", help="with every file of every rank")
    judge = commands.add_parser(
        "judge",
        help="decide again about a run that is over, from its folder alone, for any cluster",
        allow_abbrev=False,
        description="Decide again about a run that is over. What is not given stays as it was in the run.",
    )
    judge.add_argument("folder", metavar="FOLDER", help="the folder of a run, such as ckpt-report")
    add_options(judge.add_argument, LIMITS)
    judge.add_argument("--json", action="store_true", help="print the report as JSON")
    judge.add_argument("--html", metavar="FILE", help="write the certificate of this judgement")
    return parser


def _plan(asked: argparse.Namespace) -> int:
    from pytest_ckpt.report.plan import describe, describe_ranks  # noqa: PLC0415
    from pytest_ckpt.sizing.plan import plan_run  # noqa: PLC0415

    settings = resolve({o.ini_name: getattr(asked, o.ini_name) for o in OPTIONS}, {})
    file_system, is_local = None, None
    if settings.target:
        from pytest_ckpt.measure.mounts import mount_of  # noqa: PLC0415

        mount = mount_of(Path(settings.target).expanduser().absolute())
        file_system, is_local = mount.file_system, mount.is_local
    plan = plan_run(settings, file_system=file_system, is_local=is_local)
    if asked.json:
        print(json.dumps(plan.to_plain(ranks=asked.ranks), indent=None if asked.ranks else 1))
    else:
        print("\n".join(describe(plan) + (describe_ranks(plan) if asked.ranks else [])))
    return 0


def _judge(asked: argparse.Namespace) -> int:
    from pytest_ckpt.rejudge import judge_folder  # noqa: PLC0415
    from pytest_ckpt.report.text import summary_lines  # noqa: PLC0415

    document = judge_folder(Path(asked.folder), {o.ini_name: getattr(asked, o.ini_name) for o in LIMITS})
    if asked.html:
        from pytest_ckpt.report.html import write_certificate  # noqa: PLC0415 - jinja2 only when it is needed

        write_certificate(document, Path(asked.html))
    if asked.json:
        print(json.dumps(document, indent=1))
    else:
        print("\n".join(line for line, _ in summary_lines(document)))
    return int(document["exit_code"])


if __name__ == "__main__":
    sys.exit(main())
