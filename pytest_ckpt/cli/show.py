"""``pytest-ckpt show``: print a description of a pattern (the recorded file calls of a job)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.cli.console import print_lines
from pytest_ckpt.config.pattern_files import load_pattern

if TYPE_CHECKING:
    import argparse

HELP = "describe a pattern file: files of each rank, sizes, order, fsyncs, commit"
DESCRIPTION = "Describe the calls of a recorded job on its files, and the calls that a replay omits."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("pattern", metavar="FILE", help="a pattern that pytest-ckpt record wrote, or a shipped one")


def run(args: argparse.Namespace) -> int:
    """Print the description of the pattern. Return 0."""
    from pytest_ckpt.report.pattern import pattern_lines  # noqa: PLC0415

    found = load_pattern(args.pattern, "show")
    print_lines([f"{found.file}, digest {found.sha256[:12]}", *pattern_lines(found.pattern)])
    return 0
