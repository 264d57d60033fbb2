"""``pytest-ckpt project``: project the throughput of many clients from one or several runs with fewer clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt import __version__
from pytest_ckpt.cli.console import print_lines
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import counted, format_percent, format_rate, parse_size

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_ckpt.analysis.client_counts import CountedRates, Projection
    from pytest_ckpt.facts.measurement import OperationKind

HELP = "project save and load rates to more clients, from one run with several client counts or several runs"
DESCRIPTION = (
    "Fit saturation models to the rates of different counts of clients (one run with --ckpt-suite=scaling, or several "
    "runs), and project the rates of more clients: a median and an interval, or bounds if the runs do not determine "
    "it. A projection is not certified."
)
_MAXIMUM_CLIENTS = 1_000_000
SCHEMA = "pytest-ckpt/projection/1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "directories", metavar="DIRECTORY", nargs="+", help="directories of runs, each with its counts of clients"
    )
    parser.add_argument("--clients", metavar="N", required=True, help="hosts, or ranks if all runs had one host")
    parser.add_argument("--client-rate", metavar="SIZE", help="bytes a second that the network gives one client")
    parser.add_argument("--ceiling", metavar="SIZE", help="maximum bytes a second that the vendor declares")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the projected throughput. Return 0."""
    from pytest_ckpt.analysis.client_counts import KINDS, MINIMUM_COUNTS, counted_rates  # noqa: PLC0415
    from pytest_ckpt.analysis.saturation import project  # noqa: PLC0415 - numpy only here
    from pytest_ckpt.evidence.judged_run import (  # noqa: PLC0415
        changes_of_facts,
        judge_directory,
        recorded_settings,
    )
    from pytest_ckpt.evidence.unfinished import is_unfinished  # noqa: PLC0415
    from pytest_ckpt.facts.codec import from_plain  # noqa: PLC0415
    from pytest_ckpt.facts.measurement import Measurement  # noqa: PLC0415

    clients = _clients(args.clients)
    bounds = [bound for bound in (_rate(args, "ceiling"), _rate(args, "client_rate")) if bound]
    if args.client_rate:
        bounds[-1] *= clients
    measurements, notices = [], []
    declared: dict[OperationKind, float] = {"save": 0.0, "load": 0.0}
    for directory in dict.fromkeys(map(Path, args.directories)):
        if not directory.is_dir():
            raise UsageError(f"{directory} is not a directory.", "Name the directory of a run, such as ckpt-report.")
        document = judge_directory(directory, {}, foresees=False)
        measurements += [from_plain(Measurement, m) for m in document["measurements"]]
        for kind, ceiling in zip(KINDS, recorded_settings(document, {}).vendor_max_rates, strict=True):
            declared[kind] = max(declared[kind], ceiling)
        if not is_unfinished(directory) and (changed := changes_of_facts(directory)):
            notices.append(f"{directory} is not as its run left it: {', '.join(changed)}.")
    found = counted_rates(measurements, declared)
    rows = [
        (s, project(s.rates, clients, min([*bounds, *filter(None, [s.ceiling])], default=None)))
        for s in found
        if len(s.rates) >= MINIMUM_COUNTS
    ]
    if not rows:
        counts = "; ".join(f"{s.name} {s.kind}s: {', '.join(map(str, s.rates))} {s.unit}" for s in found) or "none"
        raise UsageError(
            f"Too few counts of clients: {counts}.",
            f"Name a run with --ckpt-suite=scaling, or runs of one model: {MINIMUM_COUNTS} counts are needed, or more, "
            "such as 1, 2, 4 and 8 hosts.",
        )
    if args.json:
        print(json.dumps(_document(rows, notices), indent=1))
    else:
        print_lines(_lines(rows, notices))
    return 0


def _document(rows: Sequence[tuple[CountedRates, Projection]], notices: Sequence[str]) -> dict[str, object]:
    """Return the measured and projected rates in plain JSON types, in bytes a second."""
    from pytest_ckpt.facts.codec import to_plain  # noqa: PLC0415

    return {
        "schema": SCHEMA,
        "tool": f"pytest-ckpt {__version__}",
        "notices": list(notices),
        "rows": [{**to_plain(rates), "projection": to_plain(projection)} for rates, projection in rows],
    }


def _lines(rows: Sequence[tuple[CountedRates, Projection]], notices: Sequence[str]) -> list[str]:
    """Return the measured and projected rates as lines of text."""
    lines = [*notices, "Projected from measured rates. A projection is not certified."]
    for measured, projection in rows:
        lines += ["", f"{measured.name}, {measured.kind}s, by {measured.unit}:"]
        for count, rates in measured.rates.items():
            mean = format_rate(sum(rates) / len(rates))
            lines.append(f"  {count:>9,}  {mean}, the mean of {counted(len(rates), measured.kind)}")
        lines.append(_line(projection))
    return lines


def _line(projection: Projection) -> str:
    between = f"{format_rate(projection.low)} to {format_rate(projection.high)}"
    if projection.median is None:
        return f"  {projection.clients:>9,}  no projection, only bounds: {between}; {projection.unavailable_reason}"
    error = format_percent(projection.leave_one_out_error, digits=2)
    return (
        f"  {projection.clients:>9,}  {format_rate(projection.median)} projected, 90 % interval {between} (model "
        f"{projection.model}; left out, a count is missed by {error})"
    )


def _clients(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or not 1 <= int(text) <= _MAXIMUM_CLIENTS:
        raise UsageError(
            f"--clients={text}: a whole number from 1 to {_MAXIMUM_CLIENTS:,} is expected.",
            "Write --clients=128, for example.",
        )
    return int(text)


def _rate(args: argparse.Namespace, name: str) -> float | None:
    text, flag = getattr(args, name), f"--{name.replace('_', '-')}"
    if text is None:
        return None
    try:
        rate = parse_size(text.removesuffix("/s"))
    except ValueError as error:
        raise UsageError(f"{flag}={text}: {error}.", f"Write {flag}=25GB, for bytes a second.") from None
    if rate <= 0:
        raise UsageError(f"{flag}={text}: more than 0 is expected.", f"Write {flag}=25GB, for bytes a second.")
    return float(rate)
