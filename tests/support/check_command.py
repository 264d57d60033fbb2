"""Runs one conformance check as a user does: by its command line, in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.observation import Observation
from tests.support.machine import patience

_MAIN = "from pytest_ckpt.conformance.__main__ import main; raise SystemExit(main())"


def run_check(
    check: str,
    directory: Path,
    *more: str,
    share: float = 0.05,
    sabotage: str = "",
    seconds: float = 300.0,
    tidy: bool = True,
) -> Observation:
    """Run a check by its command line, in a separate process, and return the observation of the check.

    ``sabotage`` is Python code that the process executes first. If ``tidy`` is True, the test fails if the check leaves
    files in ``directory``. Set ``tidy`` to False if a fault hides names in listings. If the check needs more than
    ``seconds``, it is killed and the test fails. On a slow machine, this time is longer.
    """
    command = [
        sys.executable,
        "-c",
        f"{sabotage}\n{_MAIN}",
        check,
        f"--directory={directory}",
        f"--share={share}",
        "--json",
    ]
    done = subprocess.run([*command, *more], capture_output=True, text=True, check=False, timeout=patience(seconds))
    seen = from_plain(Observation, json.loads(done.stdout)) if done.stdout else None
    assert seen is not None, done.stderr
    assert done.returncode == (8 if seen.not_run else 1 if seen.anomaly_count else 0), done.stderr
    assert not (tidy and list(directory.iterdir())), "it leaves nothing behind"
    return seen


def anomaly_kinds(seen: Observation) -> set[str]:
    return {anomaly.kind for anomaly in seen.anomalies}
