"""``pytest-ckpt judge``: judge a run again from its directory, or judge published results."""

from __future__ import annotations

import datetime
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.cli.console import print_lines
from pytest_ckpt.config.options import add_options, options_of_command_line
from pytest_ckpt.facts.options import with_role
from pytest_ckpt.support.errors import UsageError, nearest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pytest_ckpt.evidence.run_files import Document
    from pytest_ckpt.published.directory import Message
    from pytest_ckpt.published.judge import ResultTree

HELP = "re-judge the saved results of a run, or judge results of DLIO, for any cluster"
DESCRIPTION = (
    "Re-judge the saved results of a run: if a limit is not given, the limit of the run is used. Or judge results of "
    "DLIO and mlpstorage: one result gives a report, a tree of several gives a table."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the subcommand."""
    parser.add_argument(
        "directory",
        metavar="DIRECTORY",
        help="the directory of a run, such as ckpt-report, or a tree of results of DLIO",
    )
    add_options(parser, with_role("limit"))
    parser.add_argument("--json", action="store_true", help="print the report, or the table of a tree, as JSON")
    parser.add_argument("--html", metavar="FILE", help="write the certificate, or the table of a tree")
    parser.add_argument("--pdf", metavar="FILE", help="write the same as PDF, which needs the extra pytest-ckpt[pdf]")
    parser.add_argument(
        "--rules",
        metavar="EDITION",
        help="compare results of DLIO with the rules of a submission on checkpointing instead: mlperf-v3 or mlperf-v4",
    )


def run(args: argparse.Namespace) -> int:
    """Judge the directory, print the judgement, and write the requested files.

    Return the exit code of the judgement.
    """
    if args.rules is not None:
        return _print_rules(args)
    if args.pdf:
        from pytest_ckpt.report.pdf import check_printer  # noqa: PLC0415

        check_printer("--pdf")
    limits = options_of_command_line(args, with_role("limit"))
    document = _judge_one(Path(args.directory), limits, foresees=bool(args.json or args.html or args.pdf))
    if args.html:
        from pytest_ckpt.report import html  # noqa: PLC0415 - jinja2 only when it is needed

        write = html.write_certificate if "grade" in document else html.write_results_table
        write(document, Path(args.html))
    if args.pdf:
        from pytest_ckpt.report.pdf import write_pdf  # noqa: PLC0415

        write_pdf(document, Path(args.pdf))
    if args.json:
        print(json.dumps(document, indent=1))
    else:
        print_lines(_lines(document))
    return int(document["exit_code"])


def _judge_one(directory: Path, limits: Mapping[str, str | None], *, foresees: bool) -> Document:
    """Return the judgement of a directory that contains either a run, or results of the benchmark DLIO.

    If ``foresees`` is true, the judgement of a run contains a forecast.
    """
    from pytest_ckpt.evidence.judged_run import judge_sealed_directory  # noqa: PLC0415
    from pytest_ckpt.evidence.unfinished import is_unfinished  # noqa: PLC0415

    if directory.is_file():
        raise UsageError(f"{directory} is a file.", f"Name its directory: {shlex.quote(str(directory.parent))}")
    ours = (directory / "report.json").exists() or is_unfinished(directory)
    document = None if ours else _judge_published(directory, limits)
    if document is not None:
        return document
    moment = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return judge_sealed_directory(directory, limits, foresees=foresees, moment=moment)


def _print_rules(args: argparse.Namespace) -> int:
    """Print the outcome of each submission rule for published results, and return the exit code."""
    from pytest_ckpt.published.directory import find_runs  # noqa: PLC0415
    from pytest_ckpt.published.judge import judge_rules  # noqa: PLC0415
    from pytest_ckpt.published.rules import EDITIONS  # noqa: PLC0415
    from pytest_ckpt.report.published import rule_lines  # noqa: PLC0415

    edition = next((name for name in EDITIONS if name == args.rules), None)
    if edition is None:
        raise UsageError(
            f"--rules={args.rules:.60}: unknown rules{nearest(args.rules, list(EDITIONS))}.",
            f"Valid values: {', '.join(EDITIONS)}.",
        )
    if others := [name for name in ("html", "pdf") if getattr(args, name)]:
        raise UsageError(f"--{others[0]} and --rules cannot be combined.", "Leave one of them out, or use --json.")
    given = options_of_command_line(args, with_role("limit"))
    if option := next((o.flag for o in with_role("limit") if given.get(o.ini_name) is not None), ""):
        raise UsageError(
            f"{option} and --rules cannot be combined: the rules do not limit times.", f"Leave out {option}."
        )
    directory = Path(args.directory)
    if (directory / "report.json").exists():
        raise UsageError(
            f"{directory} is a run of pytest-ckpt, not a result of DLIO.",
            f"Export it first: pytest-ckpt export {shlex.quote(str(directory))} --mlperf OUT",
        )
    overlooked: list[Message] = []
    document = judge_rules(directory, _read(directory, find_runs(directory, overlooked.append), overlooked), edition)
    print(json.dumps(document, indent=1) if args.json else "\n".join(rule_lines(document)))
    return int(document["exit_code"])


def _judge_published(directory: Path, limits: Mapping[str, str | None]) -> dict[str, Any] | None:
    """Return the judgement of the results of the benchmark DLIO in a directory; None without such results."""
    from pytest_ckpt.published.judge import find_results, judge_results  # noqa: PLC0415

    places, overlooked = find_results(directory, limits)
    return judge_results(directory, _read(directory, places, overlooked), limits) if places else None


def _read(directory: Path, places: Sequence[Path], overlooked: Sequence[Message]) -> ResultTree:
    """Return the results of the run directories ``places``. A terminal shows a progress bar.

    ``overlooked`` are messages about directories that were not searched.
    """
    from pytest_ckpt.cli.console import ProgressBar  # noqa: PLC0415
    from pytest_ckpt.published.judge import read_results  # noqa: PLC0415

    bar = ProgressBar(sys.stderr)
    try:
        return read_results(directory, places, bar.show, overlooked)
    finally:
        bar.end()


def _lines(document: dict[str, Any]) -> list[str]:
    from pytest_ckpt.report.published import result_lines, table_lines  # noqa: PLC0415
    from pytest_ckpt.report.text import summary_lines  # noqa: PLC0415

    if "grade" not in document:
        return table_lines(document)
    published = result_lines(document) if document.get("published") else []
    return [*published, *(line for line, _ in summary_lines(document))]
