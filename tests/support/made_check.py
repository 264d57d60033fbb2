"""One check, made as its users make it: by the command, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.observation import Observation
from tests.support.machine import patience

_MAIN = "from pytest_ckpt.conformance.__main__ import main; raise SystemExit(main())"


def made(
    check: str,
    directory: Path,
    *more: str,
    share: float = 0.05,
    sabotage: str = "",
    seconds: float = 300.0,
    tidy: bool = True,
) -> Observation:
    """Make a check and return what it saw. ``sabotage`` is code that runs before it in its process.

    ``tidy`` is whether it can have removed what it made: not where a listing hides that.
    One that takes longer than ``seconds`` is killed, and the test fails: the targets of these tests end what they hold.
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


def kinds(seen: Observation) -> set[str]:
    """Return the kinds of what was wrong."""
    return {anomaly.kind for anomaly in seen.anomalies}
