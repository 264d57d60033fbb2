"""``pytest-ckpt trend``: print the times of many runs, and whether the newest runs differ from previous runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.cli.console import print_lines
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import counted, parse_fraction

if TYPE_CHECKING:
    import argparse

HELP = "show save and load times over the runs of a history, and report changes"
DESCRIPTION = (
    "Show save and load times of every subject over the runs that were kept with --ckpt-history. Exit code 1 only "
    "with --fail-on-regression."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("directory", metavar="DIRECTORY", help="the directory that runs were given with --ckpt-history")
    parser.add_argument("--json", action="store_true", help="print the trend as JSON")
    parser.add_argument("--html", metavar="FILE", help="write the trend as one page with charts")
    parser.add_argument(
        "--fail-on-regression",
        metavar="PERCENT",
        help="exit code 1 when a change shows and the newest runs are slower by this or more, such as 10%%",
    )


def run(args: argparse.Namespace) -> int:
    """Print the trend of many runs, and return the exit code.

    The exit code is 1 if a series became slower by the share of --fail-on-regression or more, otherwise 0.
    """
    from pytest_ckpt.analysis.trend import create_trend  # noqa: PLC0415
    from pytest_ckpt.evidence.history import compare_with_reports, read_history  # noqa: PLC0415
    from pytest_ckpt.report.trend import trend_lines, trend_sections  # noqa: PLC0415

    regression = _share(args.fail_on_regression) if args.fail_on_regression is not None else None
    history = Path(args.directory)
    entries, notices = read_history(history)
    entries, differences = compare_with_reports(history, entries)
    document = create_trend(entries, [*notices, *differences], regression)
    if args.html:
        from pytest_ckpt.report.html import write_page  # noqa: PLC0415 - jinja2 only when it is needed

        lead = [f"{counted(document['runs'], 'run')} below {args.directory}", *document["notices"]]
        write_page(Path(args.html), "Checkpoint storage, run after run", lead, trend_sections(document))
    if args.json:
        print(json.dumps(document, indent=1))
    else:
        unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        print_lines(trend_lines(document, unicode=unicode))
    return int(bool(document["regressions"]))


def _share(text: str) -> float:
    remedy = "Write the slowdown that is too large, such as --fail-on-regression=10%."
    try:
        share = parse_fraction(text)
    except ValueError as error:
        raise UsageError(f"--fail-on-regression {text}: {error}.", remedy) from None
    if share <= 0:
        raise UsageError(f"--fail-on-regression {text}: more than 0 % is expected.", remedy)
    return share
