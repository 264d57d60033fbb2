"""Makes the checks of object stores one by one, against any endpoint, and judges what they saw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.judging.catalogue import REQUIREMENTS
from pytest_ckpt.judging.verdicts import decide_observed
from tests.support import CHECKOUT
from tests.support.machine import patience
from tests.support.targets.object_server import TARGET

GATES = built_in("object")


def made(endpoint: str, name: str, silent_seconds: float, environment: Mapping[str, str] | None) -> Verdict:
    """Make a check and judge what it saw."""
    words = [name, f"--target={TARGET}", f"--endpoint={endpoint}", "--share=0.05", "--json",
             f"--patience={patience(silent_seconds)}"]  # fmt: skip
    words += ["--embedded"] if environment is None else []
    done = subprocess.run(
        [sys.executable, "-m", "pytest_ckpt.conformance.objects", *words],
        cwd=CHECKOUT,
        env=os.environ | dict(environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    seen = from_plain(Observation, json.loads(done.stdout))
    assert not seen.not_run, seen.not_run
    return decide_observed(REQUIREMENTS[seen.requirement], seen, GATES)


def failed(
    endpoint: str,
    names: Sequence[str],
    silent_seconds: float = 10.0,
    environment: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Make checks, two at a time; return why some failed.

    ``environment`` has the credentials that the store asks for, None where it asks for none.
    """
    with ThreadPoolExecutor(2) as threads:
        seen = threads.map(lambda name: made(endpoint, name, silent_seconds, environment), names)
        verdicts = dict(zip(names, seen, strict=True))
    assert all(verdict.severity == "required" for verdict in verdicts.values())
    return {n: f"{v.because}\n{v.detail}".lower() for n, v in verdicts.items() if v.outcome == "failed"}
