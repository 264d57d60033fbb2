"""``pytest-ckpt size``: compute the storage that clusters require, without a measurement."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_ckpt.cli.console import print_lines
from pytest_ckpt.config.options import add_options, options_of_command_line, resolve
from pytest_ckpt.facts.options import OPTIONS
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import parse_duration, parse_fraction, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable

HELP = "show what clusters need from storage for each model: rates, capacity, daily volume, goodput"
DESCRIPTION = "Show what storage must deliver for checkpoints. Nothing is measured."
Number = TypeVar("Number", int, float)
_RULES = (
    "save_budget",
    "load_budget",
    "checkpoints_per_failure",
    "failures",
    "parallel",
    "optimizer",
)
# Parameters of the strategy `tiered`. The command prints its rates next to the rates of the other strategies.
_TIERS = tuple(option for option in OPTIONS if option.key in ("drain_every", "target_share"))
_OPTIONS = tuple(option for option in OPTIONS if option.key in _RULES)
_MAXIMUM_CLUSTERS = 100
# The cluster sizes of the chart's curves.
_CURVE = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 100_000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the subcommand."""
    parser.add_argument("--cluster", metavar="LIST", required=True, help="accelerators, such as 16000,64000")
    parser.add_argument(
        "--model", dest="ckpt_model", metavar="NAMES", default="all", help="models, separated by commas"
    )
    parser.add_argument("--ckpt-model", dest="ckpt_model", default="all", help=argparse.SUPPRESS)
    add_options(parser, _OPTIONS)
    tiers = parser.add_argument_group("strategy tiered")
    for option in _TIERS:
        tiers.add_argument(f"--{option.name}", dest=option.ini_name, metavar=option.metavar,
                           help=f"see {option.flag} (default: {option.default})".replace("%", "%%"))  # fmt: skip
    group = parser.add_argument_group("retention and capacity")
    group.add_argument("--keep-last", metavar="N", default="3", help="newest checkpoints kept (default: 3)")
    group.add_argument("--keep-daily", metavar="N", default="0", help="older checkpoints kept, one a day (default: 0)")
    group.add_argument("--copies", metavar="N", default="1", help="copies of each checkpoint (default: 1)")
    group.add_argument("--usable-capacity", metavar="SIZE", help="for drive writes per day, such as 500TB")
    group.add_argument(
        "--write-amplification", metavar="FACTOR", default="1", help="bytes written by drives per byte (default: 1)"
    )
    group.add_argument(
        "--erasure-overhead",
        metavar="PERCENT",
        default="25%",
        help="added by erasure coding: 25%% for 8+2 (default)",
    )
    group.add_argument("--save-time", metavar="DURATION", help="time of a save, for goodput and interval")
    group.add_argument("--load-time", metavar="DURATION", help="time of a load, for goodput")
    parser.add_argument(
        "--table",
        metavar="NAME",
        help="published table: superpod-h100, or a TOML file",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--html", metavar="FILE", help="write one page with a picture")


def run(args: argparse.Namespace) -> int:
    """Print the storage that each cluster requires. Return 0."""
    from pytest_ckpt.report.size import document_of, size_lines, size_sections, table_of  # noqa: PLC0415
    from pytest_ckpt.sizing.demands import RetentionDemand, size_rows  # noqa: PLC0415
    from pytest_ckpt.sizing.plan import refuse_user_model_options  # noqa: PLC0415

    given = options_of_command_line(args, _OPTIONS) | {"ckpt_model": args.ckpt_model}
    given |= {option.ini_name: getattr(args, option.ini_name) for option in _TIERS}
    clusters = [word.strip() for word in args.cluster.split(",")]
    if len(clusters) > _MAXIMUM_CLUSTERS:
        raise UsageError(f"--cluster names {len(clusters)} clusters.", f"Name {_MAXIMUM_CLUSTERS} at most.")
    settings = [resolve(given | {"ckpt_cluster": cluster}, {}) for cluster in dict.fromkeys(clusters)]
    keeping = RetentionDemand(
        newest=_read(args, "keep_last", _count, 1),
        daily=_read(args, "keep_daily", _count, 0),
        copies=_read(args, "copies", _count, 1),
        usable_bytes=_read(args, "usable_capacity", parse_size, 1) if args.usable_capacity else None,
        write_amplification=_read(args, "write_amplification", float, 1),
        erasure_overhead=_read(args, "erasure_overhead", parse_fraction, 0),
        save_seconds=_read(args, "save_time", parse_duration, 1e-3) if args.save_time else None,
        load_seconds=_read(args, "load_time", parse_duration, 1e-3) if args.load_time else None,
    )
    refuse_user_model_options(settings[0])
    models = settings[0].models
    document = document_of(size_rows(models, settings, keeping), keeping, settings[0])
    if args.table:
        from pytest_ckpt.config.storage_tables import load_table  # noqa: PLC0415
        from pytest_ckpt.sizing.demands import served  # noqa: PLC0415

        table = load_table(args.table)
        document |= table_of(table, served(table, models, settings[0]))
    if args.html:
        from pytest_ckpt.report.html import write_page  # noqa: PLC0415 - jinja2 only when it is needed

        curves = size_rows(models, [resolve(given | {"ckpt_cluster": str(n)}, {}) for n in _CURVE], keeping)
        lead = ["Nothing was measured: every figure follows from the rules below."]
        write_page(Path(args.html), "What clusters need from checkpoint storage", lead, size_sections(document, curves))
    if args.json:
        print(json.dumps(document, indent=1))
    else:
        print_lines(size_lines(document))
    return 0


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise ValueError("a whole number is expected")
    return int(text)


def _read(args: argparse.Namespace, name: str, parse: Callable[[str], Number], minimum: float) -> Number:
    """Return the value of the option ``name``. Raises UsageError for an invalid value.

    ``parse`` converts the text of the option to a number. A number below ``minimum`` is invalid.
    """
    flag, text = f"--{name.replace('_', '-')}", getattr(args, name)
    try:
        value = parse(text)
    except ValueError as error:
        raise UsageError(f"{flag}={text}: {error}.", f"See pytest-ckpt size --help for {flag}.") from None
    if not minimum <= value < float("inf"):
        raise UsageError(
            f"{flag}={text}: at least {minimum:g} is expected.", f"See pytest-ckpt size --help for {flag}."
        )
    return value
