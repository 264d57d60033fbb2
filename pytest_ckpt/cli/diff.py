"""``pytest-ckpt diff``: print the differences between two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.cli.console import print_lines

if TYPE_CHECKING:
    import argparse

HELP = "compare two runs: settings, environment, versions, verdicts and operation times"
DESCRIPTION = (
    "Compare two runs from their directories. The exit code is 0, also if they differ. With --encryption it is 0 "
    "if encryption costs at most 10 %, 1 if it costs more, 8 if the two runs do not decide this."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("before", metavar="BEFORE", help="the directory of a run")
    parser.add_argument("after", metavar="AFTER", help="the directory of another run")
    parser.add_argument(
        "--encryption",
        action="store_true",
        help="decide the cost of encryption: BEFORE ran without it, AFTER with it, as declared in their --ckpt-system",
    )
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")
    parser.add_argument("--html", metavar="FILE", help="write the comparison as one page")


def run(args: argparse.Namespace) -> int:
    """Print the comparison of two runs, and return the exit code.

    Without the option for encryption, the exit code is 0. With it, the exit code states the decision on the cost of
    encryption: 0 met, 1 failed, 8 not decided.
    """
    from pytest_ckpt.analysis.comparison import compare_reports, cost_of_encryption  # noqa: PLC0415
    from pytest_ckpt.evidence.manifest import is_as_listed  # noqa: PLC0415
    from pytest_ckpt.evidence.run_files import read_report  # noqa: PLC0415
    from pytest_ckpt.facts.codec import to_plain  # noqa: PLC0415
    from pytest_ckpt.grading.grading import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_MET  # noqa: PLC0415
    from pytest_ckpt.report.diff import diff_lead, diff_lines, diff_sections  # noqa: PLC0415

    directories = (Path(args.before), Path(args.after))
    reports = [read_report(directory) for directory in directories]
    notices = [
        f"{directory}: report.json is not as its run left it: run pytest-ckpt verify for details"
        for directory in directories
        if not is_as_listed(directory, "report.json")
    ]
    document = compare_reports(reports[0], reports[1], notices)
    code = EXIT_MET
    if args.encryption:
        cost = cost_of_encryption(reports[0], reports[1], document["operations"])
        document["encryption"] = to_plain(cost)
        code = {"met": EXIT_MET, "failed": EXIT_FAILED}.get(cost.outcome, EXIT_INCOMPLETE)
    if args.html:
        from pytest_ckpt.report.html import write_page  # noqa: PLC0415 - jinja2 only when it is needed

        write_page(Path(args.html), "Two runs of pytest-ckpt", diff_lead(document), diff_sections(document))
    if args.json:
        print(json.dumps(document, indent=1))
    else:
        print_lines(diff_lines(document))
    return code
