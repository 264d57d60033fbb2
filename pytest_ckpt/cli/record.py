"""``pytest-ckpt record``: runs a job once, and records its calls on files: no names, no data."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt import __version__
from pytest_ckpt.cli.console import say
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.user_files import resolved_user_path, user_path

if TYPE_CHECKING:
    from pytest_ckpt.facts.pattern import Pattern
    from pytest_ckpt.recording.strace_log import TracedCall

HELP = "run a training job once under strace, and write a pattern of its save, without names and data"
DESCRIPTION = (
    "Run a job once and record its calls on the files below a directory: calls, sizes, order, ranks. The pattern "
    "contains no data and no names. --ckpt-engine=replay certifies storage with it."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("--under", metavar="DIR", required=True, help="the directory into which the job saves once")
    parser.add_argument("--out", metavar="FILE", required=True, help="the pattern to write, such as job.pattern.json")
    parser.add_argument("--label", metavar="TEXT", default="", help="a name for the job, stored in the pattern")
    parser.add_argument(
        "--each",
        metavar="GLOB",
        default="",
        help="the job saves several times: how the directories of its saves are called",
    )
    parser.add_argument("--no-pauses", action="store_true", help="leave out how long threads paused between calls")
    parser.add_argument(
        "--from",
        dest="logs",
        action="append",
        default=[],
        metavar="LOG",
        help="a log of strace -f -y -ttt instead of a command",
    )
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="the command that starts the job, after --")


def run(asked: argparse.Namespace) -> int:
    """Record, and print the findings."""
    from pytest_ckpt.recording.build import pattern_of  # noqa: PLC0415
    from pytest_ckpt.recording.files import newest_of, saves_of  # noqa: PLC0415
    from pytest_ckpt.recording.trace import calls_of, refuse_unseen, states_below, trace  # noqa: PLC0415
    from pytest_ckpt.report.pattern import pattern_lines  # noqa: PLC0415

    if len(asked.logs) > 1:
        raise UsageError(
            f"--from names {len(asked.logs)} logs. Logs of several hosts cannot be joined: their clocks do not show "
            "which call came first.",
            "Record on one host with as many ranks as fit on it, all in one log; a replay repeats them.",
        )
    if bool(asked.words) == bool(asked.logs):
        raise UsageError(
            "record requires either a command after -- or --from a log.",
            "For example: pytest-ckpt record --under /mnt/ckpt --out job.pattern.json -- torchrun train.py",
        )
    out = user_path(asked.out, "--out")
    if not out.parent.is_dir():
        raise UsageError(f"--out {asked.out}: its directory is not there.", "Name a file in a directory that exists.")
    under = str(resolved_user_path(asked.under, "--under"))
    if asked.logs:
        calls = calls_of(user_path(asked.logs[0], "--from"))
    else:
        before = states_below(under)
        calls = trace(asked.words)
        refuse_unseen(calls, under, before, states_below(under))
    created_by = f"pytest-ckpt {__version__}"

    def make(of_save: Sequence[TracedCall]) -> Pattern:
        return pattern_of(of_save, under, asked.label, created_by, with_pauses=not asked.no_pauses)

    pattern = newest_of(*saves_of(calls, under, asked.each), make) if asked.each else make(calls)
    text = pattern.to_text()
    Path(out).write_text(text)
    say([f"{asked.out}: {len(text):,} bytes, no names, no data", *pattern_lines(pattern)])
    return 0
