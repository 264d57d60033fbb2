"""Runs the checks of a target with two clients, and evaluates them with the gate table for shared storage."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.facts.checks import CheckPackage
from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.judging.verdicts import decide_observed
from tests.support import CHECKOUT
from tests.support.machine import patience
from tests.support.targets.misbehaving import Target

SHARED = built_in("posix-shared")
SHARE, AT_ONCE = 0.02, 3
# A check that has not ended by then hangs.
MAXIMUM_SECONDS = 150.0
# All checks of a row take a minute or two; beyond that the target no longer answers.
MAXIMUM_SECONDS_IN_ALL = 600.0
# A healthy target of these tests answers a call, and reports free space, far sooner than real storage must.
CALL_SECONDS, SPACE_SECONDS = 5.0, 6.0
EFFORT = (f"--share={SHARE}", "--json")


def limits() -> list[str]:
    """Return the command-line options with the timeouts of a check. A busy machine has longer timeouts."""
    return [f"--patience={patience(CALL_SECONDS)}", f"--space-seconds={patience(SPACE_SECONDS)}"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A target with two mounts, and a small target that checks may fill completely."""

    target: Target
    small: Target

    def fault(self, name: str, **parameters: Any) -> None:
        self.target.fault(name, **parameters)
        with contextlib.suppress(ValueError):
            self.small.fault(name, **parameters)

    def observe(self, names: list[str], seconds: float = MAXIMUM_SECONDS) -> dict[str, Verdict]:
        """Run checks and return {check: verdict}.

        If a check does not end, both targets print the stacks of their threads.
        """
        found, blocked = run_checks(self.words(), names, seconds)
        if blocked:
            self.target.print_stacks()
            self.small.print_stacks()
        return judged(found)

    def words(self) -> dict[str, list[str]]:
        """Return {need of a check: command-line arguments that fulfil the need}.

        A need is a precondition. For example, the need "second client" has an argument with the directory of the second
        client. The arguments of the key "" apply to all checks.
        """
        return {
            "": [f"--directory={self.target.path}", *EFFORT, *limits()],
            "second client": [f"--second-directory={self.target.second}"],
            "power cut": [f"--power-cut={shlex.join(self.target.power_cut_command)}"],
            "small directory": [f"--small-directory={self.small.path}"],
        }


def observe(words: dict[str, list[str]], names: list[str], seconds: float = MAXIMUM_SECONDS) -> dict[str, Verdict]:
    """Run checks, and return {check: verdict} according to the gate table for shared storage.

    ``words`` is {need of a check: command-line arguments that fulfil the need}; see `Pair.words`.
    """
    return judged(run_checks(words, names, seconds)[0])


def run_checks(
    words: dict[str, list[str]],
    names: Sequence[str],
    seconds: float,
    *,
    room: CheckPackage = "posix",
    at_once: int = AT_ONCE,
    environment: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Run ``at_once`` checks at a time; return ({check: observation}, names of checks that did not end).

    ``words`` is {need of a check: command-line arguments that fulfil the need}; see `Pair.words`. After ``seconds`` a
    check counts as blocked. ``room`` is the package of the checks.
    """
    asked = {
        "room": room,
        "checks": list(names),
        "words": words,
        "at_once": at_once,
        "seconds": patience(seconds),
        # A target that does not answer must not stop the tests for an hour, even on a busy machine.
        "seconds_in_all": min(patience(MAXIMUM_SECONDS_IN_ALL), 2 * MAXIMUM_SECONDS_IN_ALL),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.many_checks"],
        cwd=CHECKOUT,
        env=os.environ | dict(environment or {}),
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found, [name for name, seen in found.items() if seen.get("blocked")]


def judged(seen_of: dict[str, Any], gates: Gates = SHARED) -> dict[str, Verdict]:
    """Return {check: verdict} for {check: observation}, according to the gate table ``gates``."""
    found = {}
    for name, seen in seen_of.items():
        assert "fault" not in seen, f"{name} itself broke: {seen['fault']}"
        requirement, _, subject = name.partition(".")
        observation = from_plain(Observation, {"requirement": requirement, "subject": subject} | seen)
        found[name] = decide_observed(REQUIREMENTS[requirement], observation, gates)
    return found
