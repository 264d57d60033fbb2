"""The process of a check: it runs the check's function and prints the observation (the result)."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.context import NotRun
from pytest_ckpt.facts.checks import checks_for
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.event_line import line_of_call
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from pytest_ckpt.conformance.context import Effort, Findings
    from pytest_ckpt.facts.checks import Check, CheckPackage
    from pytest_ckpt.facts.observation import Observation

_SAME_CALL_SECONDS = 1.0
EXIT_ANOMALY, EXIT_BROKE, EXIT_NOT_RUN = 1, 3, 8


class CallReporter:
    """Prints each call before it is made. A repeated call is printed at most once a second."""

    def __init__(self) -> None:
        self._last_call: tuple[str, str] | None = None
        self._at = 0.0

    def __call__(self, call: str, path: str) -> None:
        """Print a call and its path."""
        now = time.monotonic()
        if (call, path) != self._last_call or now - self._at > _SAME_CALL_SECONDS:
            self._last_call, self._at = (call, path), now
            print(line_of_call(call, path), end="", file=sys.stderr, flush=True)


def parser_of(package: CheckPackage, command: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of all checks. ``package`` is the package that contains the checks."""
    names = sorted(check.name for check in checks_for(package))
    parser = argparse.ArgumentParser(prog=f"python -m {command}", description=description, allow_abbrev=False)
    parser.add_argument("check", choices=names, metavar="CHECK", help=", ".join(names))
    parser.add_argument("--share", type=float, default=1.0, help="part of the full effort")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the observation as JSON")
    return parser


def observe(check: Check, context: Effort, findings: Findings, failed: Callable[[OSError], str]) -> Observation:
    """Run a check's function and return its observation.

    ``failed`` records an error of the target in the findings. ``failed`` returns the name of the error's errno; empty
    without an errno.
    """
    module, function = check.code.split(":")
    code = importlib.import_module(f"{__package__}.{check.package}.{module}")
    not_run = number = ""
    try:
        getattr(code, function)(context, findings)
    except NotRun as reason:
        not_run = str(reason)
    except OSError as error:
        number = failed(error)
    return findings.observation(check.requirement, check.subject, not_run=not_run, errno=number)


def run(main: Callable[[], int]) -> int:
    """Call ``main`` of a check and return its exit code. For an exception, print the traceback and return 3."""
    try:
        return main()
    except Exception:
        traceback.print_exc()
        return EXIT_BROKE


def show(check: Check, seen: Observation, *, as_json: bool) -> None:
    """Print the observation of a check, as JSON or as lines of text."""
    print(json.dumps(to_plain(seen)) if as_json else "\n".join(_lines(check, seen)), flush=True)


def exit_code(seen: Observation) -> int:
    """Return the exit code of a check: 0 without an anomaly, 1 with an anomaly, 8 if the check was not run."""
    return EXIT_NOT_RUN if seen.not_run else EXIT_ANOMALY if seen.anomaly_count else 0


def _lines(check: Check, seen: Observation) -> list[str]:
    verdict = f"not run: {seen.not_run}" if seen.not_run else counted(seen.anomaly_count, "anomaly", "anomalies")
    listed = [f"{check.name}: {verdict} in {counted(seen.trials, 'trial')}, {seen.seconds:.1f} s", f"  {check.how}"]
    if seen.measured is not None:
        listed.append(f"  measured {seen.measured:.4g} {seen.unit}")
    listed += [f"  {name}: {value}" for name, value in seen.facts.items()]
    return listed + [f"  {anomaly.text}" for anomaly in seen.anomalies]
