"""``pytest-ckpt record``: run a job once and record its file calls, without names and data."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt import __version__
from pytest_ckpt.cli.console import print_lines
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.user_files import resolved_user_path, user_path

if TYPE_CHECKING:
    from pytest_ckpt.facts.pattern import Pattern
    from pytest_ckpt.recording.strace_log import TracedCall

HELP = "run a training job once under strace, and write a pattern of its save, without names and data"
DESCRIPTION = (
    "Run a job once and record its calls on the files below a directory: calls, sizes, order, ranks. The pattern "
    "contains no data and no names. --ckpt-engine=replay certifies storage with it. --checkpoint reads the files and "
    "sizes of an existing checkpoint instead."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("--under", metavar="DIR", help="the directory into which the job saves once")
    parser.add_argument(
        "--checkpoint",
        metavar="DIR|s3://…",
        help="an existing checkpoint instead of a command: its files, sizes and ranks",
    )
    parser.add_argument("--endpoint", metavar="URL", default="", help="endpoint of the object store of --checkpoint")
    parser.add_argument("--out", metavar="FILE", required=True, help="the pattern to write, such as job.pattern.json")
    parser.add_argument("--label", metavar="TEXT", default="", help="a name for the job, stored in the pattern")
    parser.add_argument(
        "--each",
        metavar="GLOB",
        default="",
        help="if the job saves several times: name pattern of the directories of its saves",
    )
    parser.add_argument("--no-pauses", action="store_true", help="do not record the pauses of threads between calls")
    parser.add_argument(
        "--from",
        dest="logs",
        action="append",
        default=[],
        metavar="LOG",
        help="a log of strace -f -y -ttt instead of a command",
    )
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="the command that starts the job, after --")


def run(args: argparse.Namespace) -> int:
    """Write the pattern (recorded file calls) of a save, and print a description of the pattern. Return 0.

    The source is a job that is run under strace, an existing log of strace, or an existing checkpoint.
    """
    from pytest_ckpt.recording.build import pattern_of  # noqa: PLC0415
    from pytest_ckpt.recording.files import newest_of, saves_of  # noqa: PLC0415
    from pytest_ckpt.recording.trace import calls_of, refuse_unseen, states_below, trace  # noqa: PLC0415
    from pytest_ckpt.report.pattern import pattern_lines  # noqa: PLC0415

    if args.checkpoint is not None:
        return _of_checkpoint(args)
    if len(args.logs) > 1:
        raise UsageError(
            f"--from names {len(args.logs)} logs. Logs of several hosts cannot be joined: their clocks do not show "
            "which call came first.",
            "Record on one host with as many ranks as fit on it, all in one log; a replay repeats them.",
        )
    if bool(args.words) == bool(args.logs):
        raise UsageError(
            "record requires either a command after -- or --from a log.",
            "For example: pytest-ckpt record --under /mnt/ckpt --out job.pattern.json -- torchrun train.py",
        )
    out = _out(args)
    if args.under is None:
        raise UsageError("record needs --under.", "Name the directory into which the job saves, such as /mnt/ckpt.")
    under = str(resolved_user_path(args.under, "--under"))
    if args.logs:
        calls = calls_of(user_path(args.logs[0], "--from"))
    else:
        before = states_below(under)
        calls = trace(args.words)
        refuse_unseen(calls, under, before, states_below(under))
    created_by = f"pytest-ckpt {__version__}"

    def create_pattern(of_save: Sequence[TracedCall]) -> Pattern:
        return pattern_of(of_save, under, args.label, created_by, with_pauses=not args.no_pauses)

    pattern = newest_of(*saves_of(calls, under, args.each), create_pattern) if args.each else create_pattern(calls)
    return _write(args.out, out, pattern, pattern_lines(pattern))


def _of_checkpoint(args: argparse.Namespace) -> int:
    """Write a pattern (file calls) derived from an existing checkpoint, and print a description. Return 0."""
    from pytest_ckpt.recording.checkpoints import pattern_of_checkpoint, ranks_are_named  # noqa: PLC0415
    from pytest_ckpt.recording.listing import list_checkpoint  # noqa: PLC0415
    from pytest_ckpt.report.pattern import pattern_lines  # noqa: PLC0415

    if args.words or args.logs or args.under or args.each:
        raise UsageError(
            "--checkpoint reads a checkpoint that exists, and --under, --each, --from and a command record a save.",
            "For example: pytest-ckpt record --checkpoint /mnt/ckpt/step-100 --out job.pattern.json",
        )
    out = _out(args)
    files = list_checkpoint(args.checkpoint, args.endpoint)
    pattern = pattern_of_checkpoint(files, args.label, f"pytest-ckpt {__version__}")
    lines = pattern_lines(pattern)
    lines.append("calls are assumed: a checkpoint shows files and sizes, not how they were written")
    if not ranks_are_named(files):
        lines.append("ranks are assumed: no file name contains a rank, so rank 0 writes all files")
    return _write(args.out, out, pattern, lines)


def _out(args: argparse.Namespace) -> Path:
    out = user_path(args.out, "--out")
    if not out.parent.is_dir():
        raise UsageError(f"--out {args.out}: its directory does not exist.", "Name a file in a directory that exists.")
    return out


def _write(name: str, out: Path, pattern: Pattern, lines: Sequence[str]) -> int:
    text = pattern.to_text()
    out.write_text(text)
    print_lines([f"{name}: {len(text):,} bytes, no names, no data", *lines])
    return 0
