"""``pytest-ckpt doctor``: check whether a run can start on this machine, and what it cannot measure here."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.cli.console import print_lines
from pytest_ckpt.config.engines import find_engines
from pytest_ckpt.config.options import OFTEN_USED, add_options, options_of_command_line, resolve
from pytest_ckpt.support.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.run.doctor import Finding

HELP = "show what this machine can and cannot measure, and how to fix it"
DESCRIPTION = (
    "Check libraries, MPI, memory, space, privileges, caches and clock; write a file of 4 MiB to the target and "
    "remove it. Exit code 0 if a run is possible, 4 if not."
)
SCHEMA = "pytest-ckpt/doctor/1"
_EXIT_CANNOT = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_options(parser, listed=OFTEN_USED)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--write-system",
        metavar="FILE",
        help="only write a template of the system description that --ckpt-system reads",
    )


def run(args: argparse.Namespace) -> int:
    """Check this machine, and print each finding immediately. Return 0 if a run is possible, otherwise 4.

    With --write-system, only write a template of the system description.
    """
    if args.write_system:
        return _write_template(Path(args.write_system))
    from pytest_ckpt.facts.codec import to_plain  # noqa: PLC0415
    from pytest_ckpt.run.doctor import examine  # noqa: PLC0415

    settings = resolve(options_of_command_line(args), {}, engines=find_engines(), environment=os.environ)
    findings = []
    for finding in itertools.chain(examine(settings), _printer(settings)):
        findings.append(finding)
        if not args.json:
            word = "ok" if finding.can else "cannot" if finding.needed else "limited"
            print_lines([f"{finding.name:<13} {word:<8} {finding.description}"])
            print_lines([f"{'':<22} {finding.remedy}"] if finding.remedy else [])
    can_run = all(f.can for f in findings if f.needed)
    if args.json:
        print(json.dumps({"schema": SCHEMA, "can_run": can_run, "findings": to_plain(findings)}, indent=1))
    else:
        print_lines(["a run is possible" if can_run else "NO RUN IS POSSIBLE: fix the lines marked 'cannot'"])
    return 0 if can_run else _EXIT_CANNOT


def _printer(settings: Settings) -> Iterator[Finding]:
    """Yield a finding that states whether a PDF can be written here, if the settings request a PDF."""
    if not settings.pdf:
        return
    from pytest_ckpt.report.pdf import check_printer  # noqa: PLC0415
    from pytest_ckpt.run.doctor import Finding  # noqa: PLC0415

    try:
        check_printer("--ckpt-pdf")
    except UsageError as error:
        yield Finding(name="PDF", can=False, needed=True, description=error.what, remedy=error.remedy)
    else:
        yield Finding(name="PDF", can=True, needed=True, description="a line was printed")


def _write_template(file: Path) -> int:
    from pytest_ckpt.config.system_description import OPTION, template  # noqa: PLC0415

    try:
        with file.open("x", encoding="utf-8") as made:
            made.write(template())
    except OSError as error:
        raise UsageError(
            f"--write-system {file}: {error.strerror}.", "Name a file that does not exist, in a directory that does."
        ) from None
    print_lines([f"fill in {file} and give it to a run: {OPTION}={file}"])
    return 0
