"""``pytest-ckpt simulate``: simulate a month of training with measured times, and print the lost training time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.cli.console import print_lines
from pytest_ckpt.config.options import add_options, options_of_command_line, resolve
from pytest_ckpt.facts.options import OPTIONS
from pytest_ckpt.support.errors import UsageError, nearest
from pytest_ckpt.support.units import parse_duration, parse_fraction

if TYPE_CHECKING:
    import argparse
    from typing import Any

    from pytest_ckpt.analysis.training_runs import FailureArrivals

HELP = "simulate months of training over measured saves and loads: goodput, lost hours, the best interval"
DESCRIPTION = (
    "Simulate training runs over the saves and loads that runs measured, for clusters of several sizes: goodput with "
    "its band, hours lost to saving, to lost work and to restores. A simulation is not certified."
)
_RULES = ("save_budget", "load_budget", "checkpoints_per_failure", "failures")
_OPTIONS = tuple(option for option in OPTIONS if option.key in _RULES)
_DAY = 86_400.0
_MAXIMUM_CLUSTERS, _MAXIMUM_RUNS, _MAXIMUM_DAYS, _MAXIMUM_FAILURES = 20, 10_000, 366, 20_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("directories", metavar="DIRECTORY", nargs="+", help="directories of runs, such as ckpt-report")
    parser.add_argument(
        "--cluster",
        metavar="LIST",
        default="1000,4000,16000,64000,100000",
        help="accelerators (default: 1000,4000,16000,…,100000)",
    )
    add_options(parser, _OPTIONS)
    group = parser.add_argument_group("the simulation")
    group.add_argument("--days", metavar="N", default="30", help="days of training (default: 30)")
    group.add_argument(
        "--runs", metavar="N", default="1000", help="training runs for each cluster size (default: 1000)"
    )
    group.add_argument("--seed", metavar="N", default="1", help="seed of the random numbers (default: 1)")
    group.add_argument(
        "--restart-time", metavar="DURATION", default="0s", help="time to restart the job, without the load"
    )
    group.add_argument(
        "--interval",
        metavar="HOW",
        default="rule",
        help="between saves: rule, best (Daly) or a duration (default: rule)",
    )
    group.add_argument(
        "--arrivals",
        metavar="KIND",
        default="exponential",
        help="failures: exponential, weibull:0.7 or bursts:20%%",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--html", metavar="FILE", help="write one page with a picture")


def run(args: argparse.Namespace) -> int:
    """Simulate training with measured times, and print the lost training time. Return 0."""
    from pytest_ckpt.grading.simulation import SimulationRules, simulated_rows  # noqa: PLC0415 - numpy only here
    from pytest_ckpt.report.simulation import document_of, simulation_lines, simulation_sections  # noqa: PLC0415
    from pytest_ckpt.sizing.limits import limits_of  # noqa: PLC0415

    words = list(dict.fromkeys(word.strip() for word in args.cluster.split(",")))
    if len(words) > _MAXIMUM_CLUSTERS:
        raise UsageError(f"--cluster names {len(words)} clusters.", f"Name {_MAXIMUM_CLUSTERS} at most.")
    rules = SimulationRules(
        runs=_whole_number(args, "runs", 1, _MAXIMUM_RUNS),
        seconds=_whole_number(args, "days", 1, _MAXIMUM_DAYS) * _DAY,
        restart_seconds=_seconds(args.restart_time, "--restart-time"),
        arrivals=_arrivals(args.arrivals),
        seed=_whole_number(args, "seed", 0, 2**63 - 1),
        interval_seconds=None if args.interval in {"rule", "best"} else _seconds(args.interval, "--interval"),
        takes_best=args.interval == "best",
    )
    if rules.interval_seconds == 0:
        raise UsageError("--interval=0s: more than 0 s is expected.", "Say rule, best, or a duration such as 10min.")
    rows, notices = [], []
    for directory in dict.fromkeys(map(Path, args.directories)):
        measurements, of_run, changed = _measured(directory)
        given = options_of_command_line(args, _OPTIONS)
        clusters = [limits_of(resolve(given | {"ckpt_cluster": word}, of_run, ini_source="the run")) for word in words]
        if any(rules.seconds / limits.mttf_seconds > _MAXIMUM_FAILURES for limits in clusters):
            raise UsageError(
                f"In {args.days} days such a cluster fails more than {_MAXIMUM_FAILURES:,} times.",
                "Simulate fewer --days or a smaller --cluster.",
            )
        found = simulated_rows(measurements, clusters, rules)
        notices += changed
        if not found:
            notices.append(f"{directory}: no measurement was completed, so no run can be simulated.")
        several = f"{directory.name}: " if len(args.directories) > 1 else ""
        rows += [(f"{several}{row.subject}", row) for row in found]
    if not rows:
        raise UsageError(" ".join(notices), "Name the directory of a run that saved and loaded checkpoints.")
    document = document_of(rows, rules, notices)
    if args.html:
        from pytest_ckpt.report.html import write_page  # noqa: PLC0415 - jinja2 only when it is needed

        lead = ["Simulated over measured times. A simulation is not certified.", *notices]
        write_page(Path(args.html), "What training would lose on this storage", lead, simulation_sections(document))
    if args.json:
        print(json.dumps(document, indent=1))
    else:
        print_lines(simulation_lines(document))
    return 0


def _measured(directory: Path) -> tuple[list[Any], dict[str, str | None], list[str]]:
    """Return (measurements, options on failures and budgets, warnings) of a run.

    The options are {ini name: text}. A warning is a sentence that states which files were changed after the run.
    """
    from pytest_ckpt.evidence.judged_run import changes_of_facts, judge_directory  # noqa: PLC0415
    from pytest_ckpt.evidence.unfinished import is_unfinished  # noqa: PLC0415
    from pytest_ckpt.facts.codec import from_plain  # noqa: PLC0415
    from pytest_ckpt.facts.measurement import Measurement  # noqa: PLC0415

    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory.", "Name the directory of a run, such as ckpt-report.")
    document = judge_directory(directory, {}, foresees=False)
    cluster = document["cluster"]
    of_run: dict[str, str | None] = {
        "ckpt_failures": cluster["failure_model"],
        "ckpt_save_budget": repr(cluster["save_budget"]),
        "ckpt_load_budget": repr(cluster["load_budget"]),
        "ckpt_checkpoints_per_failure": str(cluster["checkpoints_per_failure"]),
    }
    changed = [] if is_unfinished(directory) else changes_of_facts(directory)
    listed = [f"{directory} is not as its run left it: {', '.join(changed)}."] if changed else []
    return [from_plain(Measurement, m) for m in document["measurements"]], of_run, listed


def _whole_number(args: argparse.Namespace, name: str, minimum: int, maximum: int) -> int:
    text = getattr(args, name)
    if not (text.isascii() and text.isdigit()) or len(text) > 20 or not minimum <= int(text) <= maximum:
        raise UsageError(
            f"--{name}={text}: a whole number from {minimum:,} to {maximum:,} is expected.",
            f"See pytest-ckpt simulate --help for --{name}.",
        )
    return int(text)


def _seconds(text: str, flag: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{flag}={text}: {error}.", f"See pytest-ckpt simulate --help for {flag}.") from None


def _arrivals(text: str) -> FailureArrivals:
    from pytest_ckpt.analysis.training_runs import FailureArrivals  # noqa: PLC0415 - numpy only here

    kind, _, value = text.partition(":")
    try:
        if kind == "exponential" and not value:
            return FailureArrivals()
        if kind == "weibull" and 0.2 <= float(value) <= 5:
            return FailureArrivals(kind="weibull", shape=float(value))
        if kind == "bursts" and 0 < parse_fraction(value) <= 0.9:
            return FailureArrivals(kind="bursts", shape=parse_fraction(value))
    except ValueError:
        pass
    raise UsageError(
        f"--arrivals={text}: unknown distribution{nearest(kind, ('exponential', 'weibull', 'bursts'))}.",
        "Valid values: exponential, weibull:0.7 (a shape from 0.2 to 5), bursts:20% (a share up to 90 %).",
    )
