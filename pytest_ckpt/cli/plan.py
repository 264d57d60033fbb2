"""``pytest-ckpt plan``: print the writes, reads, limits and needs of a run, and the problems that would stop it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from pytest_ckpt.cli.console import print_lines
from pytest_ckpt.config.engines import find_engines
from pytest_ckpt.config.options import OFTEN_USED, add_options, options_of_command_line, resolve

if TYPE_CHECKING:
    import argparse

HELP = "show the volume, space and limits of a run, and the problems that would stop its start; writes no files"
DESCRIPTION = (
    "Show the volume and space that a run would need, and the limits that it would judge by. With --ckpt-target, list "
    "the obstacles to a certificate; the exit code is 4 if the run would not start here."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_options(parser, listed=OFTEN_USED)
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.add_argument("--ranks", action="store_true", help="also list every file of every rank")


def run(args: argparse.Namespace) -> int:
    """Print the plan and return 0. Raises UsageError after printing if the planned run would not start here."""
    from pytest_ckpt.config.gate_files import load_gates, settle  # noqa: PLC0415
    from pytest_ckpt.facts.codec import to_plain  # noqa: PLC0415
    from pytest_ckpt.grading.catalogue import REQUIREMENTS, offered  # noqa: PLC0415
    from pytest_ckpt.grading.obstacles import (  # noqa: PLC0415
        cache_visibility_before_writes,
        not_given,
        obstacles,
        refusals,
        requires_cold,
        unmeasured,
    )
    from pytest_ckpt.report.plan import COLD_UNTRIED, describe, describe_obstacles, describe_ranks  # noqa: PLC0415
    from pytest_ckpt.run.fitting import foreseen  # noqa: PLC0415
    from pytest_ckpt.sizing.plan import plan_run  # noqa: PLC0415
    from pytest_ckpt.support.errors import Problems  # noqa: PLC0415

    settings = resolve(options_of_command_line(args), {}, engines=find_engines(), environment=os.environ)
    spec, target, gates, catalogue = None, None, None, REQUIREMENTS
    if settings.target:
        from pytest_ckpt.targets.schemes import create_target, known_targets, spec_of  # noqa: PLC0415

        spec = spec_of(settings.target, known_targets())
        target = create_target(spec, settings.target).describe()
        catalogue = offered(REQUIREMENTS, target.capabilities)
        settings, gates = settle(settings, target.gate_kind, catalogue)
    table = gates or (load_gates(settings.gate_table, "") if settings.gate_table != "auto" else None)
    plan = plan_run(settings, target, table.table if table else "")
    problems = foreseen(settings, plan, spec) if spec else Problems()
    found, visibility = None, cache_visibility_before_writes(target) if target else "not_tested"
    if gates:
        found = refusals(problems.found) + obstacles(plan, settings, gates, catalogue, cache_visibility=visibility)
    listed = [*not_given(settings, gates, catalogue), *unmeasured(plan, settings, gates, catalogue)] if gates else []
    notes = [f"note: {sentence}" for sentence in listed]
    # These problems are found only by a write to the target.
    not_tried = (
        [COLD_UNTRIED] if gates and visibility == "not_tested" and requires_cold(settings, gates, catalogue) else []
    )
    if args.json:
        fields = {} if found is None else {"obstacles": to_plain(found), "not_tried": not_tried}
        print(json.dumps(plan.to_plain(ranks=args.ranks) | fields, indent=None if args.ranks else 1))
    else:
        lines = describe(plan, settings, target) + (describe_ranks(plan) if args.ranks else [])
        print_lines(lines + ([] if found is None else describe_obstacles(found, not_tried) + notes))
    problems.refuse()
    return 0
