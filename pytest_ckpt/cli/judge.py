"""``pytest-ckpt judge``: re-judge a run from its folder, or judge published results."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.cli.saying import say
from pytest_ckpt.config.options import add_options, said_of
from pytest_ckpt.facts.options import with_role
from pytest_ckpt.support.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

HELP = "re-judge the saved results of a run, or judge results of DLIO, for any cluster"
DESCRIPTION = (
    "Re-judge the saved results of a run: a limit that is not given stays that of the run. Or judge results of DLIO "
    "and mlpstorage: one result gives a report, a tree of several gives a table."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "folder", metavar="FOLDER", help="the folder of a run, such as ckpt-report, or a tree of results of DLIO"
    )
    add_options(parser, with_role("limit"))
    parser.add_argument("--json", action="store_true", help="print the report, or the table of a tree, as JSON")
    parser.add_argument("--html", metavar="FILE", help="write the certificate, or the table of a tree")
    parser.add_argument("--pdf", metavar="FILE", help="write the same as PDF, which needs the extra pytest-ckpt[pdf]")


def run(asked: argparse.Namespace) -> int:
    """Print the judgement; the exit code is that of a run."""
    from pytest_ckpt.evidence.rejudge import judge_sealed_folder  # noqa: PLC0415
    from pytest_ckpt.evidence.unfinished import is_unfinished  # noqa: PLC0415

    if asked.pdf:
        from pytest_ckpt.report.pdf import check_printer  # noqa: PLC0415

        check_printer("--pdf")
    folder, limits = Path(asked.folder), said_of(asked, with_role("limit"))
    if folder.is_file():
        raise UsageError(f"{folder} is a file.", f"Name the folder that it lies in: {shlex.quote(str(folder.parent))}")
    ours = (folder / "report.json").exists() or is_unfinished(folder)
    document = None if ours else _judge_published(folder, limits)
    if document is None:
        document = judge_sealed_folder(folder, limits)
    if asked.html:
        from pytest_ckpt.report import html  # noqa: PLC0415 - jinja2 only when it is needed

        write = html.write_certificate if "grade" in document else html.write_results_table
        write(document, Path(asked.html))
    if asked.pdf:
        from pytest_ckpt.report.pdf import write_pdf  # noqa: PLC0415

        write_pdf(document, Path(asked.pdf))
    if asked.json:
        print(json.dumps(document, indent=1))
    else:
        say(_lines(document))
    return int(document["exit_code"])


def _judge_published(folder: Path, limits: Mapping[str, str | None]) -> dict[str, Any] | None:
    """Return the judgement of results of DLIO; None where the folder holds none."""
    from pytest_ckpt.published.judge import find_results, judge_results, read_results  # noqa: PLC0415
    from pytest_ckpt.report.bar import Bar  # noqa: PLC0415

    places, overlooked = find_results(folder, limits)
    if not places:
        return None
    bar = Bar(sys.stderr)
    try:
        found = read_results(folder, places, bar.show, overlooked)
    finally:
        bar.end()
    return judge_results(folder, found, limits)


def _lines(document: dict[str, Any]) -> list[str]:
    from pytest_ckpt.report.published import result_lines, table_lines  # noqa: PLC0415
    from pytest_ckpt.report.text import summary_lines  # noqa: PLC0415

    if "grade" not in document:
        return table_lines(document)
    published = result_lines(document) if document.get("published") else []
    return [*published, *(line for line, _ in summary_lines(document))]
