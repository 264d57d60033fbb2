"""Runs the checks of object stores against an endpoint, and evaluates their observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_ckpt.config.gate_files import built_in
from tests.support.machine import patience
from tests.support.target_checks import judged, run_checks
from tests.support.targets.object_server import TARGET

GATES = built_in("object")
# The time after which a check counts as blocked; the longest takes about ten seconds.
MAXIMUM_SECONDS = 150.0


def failed(
    endpoint: str,
    names: Sequence[str],
    silent_seconds: float = 10.0,
    environment: Mapping[str, str] | None = None,
    target: str = TARGET,
    maximum_seconds: float = MAXIMUM_SECONDS,
) -> dict[str, str]:
    """Run checks of an object store, two at a time; return {failed check: reason}.

    ``environment`` contains the credentials of the store. None means the embedded server, which needs no credentials.
    After ``maximum_seconds``, a check counts as blocked.
    """
    words = [f"--target={target}", f"--endpoint={endpoint}", "--share=0.05", "--json",
             f"--patience={patience(silent_seconds)}"]  # fmt: skip
    words += ["--embedded"] if environment is None else []
    seen, _ = run_checks({"": words}, names, maximum_seconds, room="objects", at_once=2, environment=environment)
    not_run = {name: one["not_run"] for name, one in seen.items() if one.get("not_run")}
    assert not not_run, not_run
    verdicts = judged(seen, GATES)
    return {n: f"{v.because}\n{v.detail}".lower() for n, v in verdicts.items() if v.outcome == "failed"}
