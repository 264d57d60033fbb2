"""``pytest-ckpt judge``: decide again about a run that is over, from its folder alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.options import LIMITS, add_options

if TYPE_CHECKING:
    import argparse

HELP = "decide again about a run that is over, from its folder alone, for any cluster"
DESCRIPTION = "Decide again about a run that is over. What is not given stays as it was in the run."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("folder", metavar="FOLDER", help="the folder of a run, such as ckpt-report")
    add_options(parser.add_argument, LIMITS)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--html", metavar="FILE", help="write the certificate of this judgement")


def run(asked: argparse.Namespace) -> int:
    """Print the judgement; the exit code is that of a run."""
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
