"""What the process of a check says: the call that it is about to make, what it saw, and how it ends."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_ckpt.facts.event_line import line_of_call
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from pytest_ckpt.facts.checks import Check
    from pytest_ckpt.facts.observation import Observation

_SAME_CALL_SECONDS = 1.0
EXIT_ANOMALY, EXIT_BROKE, EXIT_NOT_RUN = 1, 3, 8


class Teller:
    """Says which call comes next; the same one again, as in a race, at most once a second: it shows that they go on."""

    def __init__(self) -> None:
        self._told: tuple[str, str] | None = None
        self._at = 0.0

    def __call__(self, call: str, path: str) -> None:
        """Say that a call is about to be made on a path."""
        now = time.monotonic()
        if (call, path) != self._told or now - self._at > _SAME_CALL_SECONDS:
            self._told, self._at = (call, path), now
            print(line_of_call(call, path), end="", file=sys.stderr, flush=True)


def run(main: Callable[[], int]) -> int:
    """Make a check; one that breaks tells where and exits with a code of its own, never taken for the target's."""
    try:
        return main()
    except Exception:
        traceback.print_exc()
        return EXIT_BROKE


def exit_code(seen: Observation) -> int:
    """Return how a check's process ends: 0 when nothing was wrong."""
    return EXIT_NOT_RUN if seen.not_run else EXIT_ANOMALY if seen.anomaly_count else 0


def lines(check: Check, seen: Observation) -> list[str]:
    """Return what a check saw for a reader."""
    verdict = f"not run: {seen.not_run}" if seen.not_run else counted(seen.anomaly_count, "anomaly", "anomalies")
    listed = [f"{check.name}: {verdict} in {counted(seen.trials, 'trial')}, {seen.seconds:.1f} s", f"  {check.how}"]
    if seen.measured is not None:
        listed.append(f"  measured {seen.measured:.4g} {seen.unit}")
    listed += [f"  {name}: {value}" for name, value in seen.facts.items()]
    for anomaly in seen.anomalies:
        listed.append(f"  {anomaly.kind}: {anomaly.where}: seen {anomaly.seen}; expected {anomaly.expected}")
    return listed
