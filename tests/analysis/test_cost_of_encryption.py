"""``pytest-ckpt diff OFF ON --encryption``: the cost of encryption, from two runs that are otherwise identical."""

from __future__ import annotations

import dataclasses
import json

import pytest

from pytest_ckpt.cli.main import main
from tests.support import synthetic_run
from tests.support.jsonschema_validation import violations

TEN = {"ckpt_operations": "10"}
OFF = {"encryption": {"at_rest": "none"}}
ON = {"encryption": {"at_rest": "AES-256 by the drives", "in_flight": "None"}}
CHANGED = {"encryption": {"at_rest": "AES-128 by the drives", "in_flight": "TLS 1.3"}}
OTHER = ON | {"topology": {"nodes": 8}}


@pytest.fixture
def decide(tmp_path, capsys):
    def run(name, told, *, seed, options=None, **made):
        synthetic_run.write_run(tmp_path / name, seed=seed, system=told, options=TEN | (options or {}), **made)

    def decided(off, on, **made):
        run("off", off, seed=1, noise=0.01)
        run("on", on, seed=2, **{"noise": 0.01} | made)
        code = main(["diff", str(tmp_path / "off"), str(tmp_path / "on"), "--encryption", "--json"])
        document = json.loads(capsys.readouterr().out)
        assert not violations(document, "diff")
        found = document["encryption"]
        return code, found["outcome"], " ".join(found["because"])

    return decided


def test_cheap_encryption_is_met_and_the_verdict_quotes_the_declared_encryption(decide):
    code, outcome, because = decide(OFF, ON, save=0.103, load=0.051)
    assert (code, outcome) == (0, "met"), because
    assert "Saves of llama3-8b-open-2 take 1.0" in because
    assert "Told, not measured: at rest AES-256 by the drives." in because


@pytest.mark.parametrize("slower", [{"save": 0.12}, {"load": 0.06}], ids=str)
def test_saves_or_loads_that_take_over_a_tenth_longer_fail(decide, slower):
    code, outcome, because = decide(OFF, ON, **slower)
    assert (code, outcome) == (1, "failed"), because
    assert next(iter(slower)).capitalize() in because


@pytest.mark.parametrize(
    ("off", "on", "made", "expected_text"),
    [
        (OFF, ON, {"save": 0.110, "noise": 0.2}, "is inside the interval"),
        (None, ON, {}, "The first run does not declare"),
        (OFF, None, {}, "The second run does not declare"),
        (OFF, OFF, {}, "no encryption that the first run lacks"),
        (ON, OFF, {}, "no encryption that the first run lacks"),
        (ON, CHANGED, {}, "was not left as it was"),
        (OFF, OTHER, {}, "different topologies"),
        (OFF, ON, {"options": {"ckpt_engine": "stream"}}, "differ in --ckpt-engine"),
        (OFF, ON, {"options": {"ckpt_operations": "3"}}, "too few operations"),
        (OFF, ON, {"options": {"ckpt_suite": "conformance"}}, "was not met in the second run"),
    ],
)  # fmt: skip
def test_two_runs_that_cannot_tell_are_not_called_met(decide, off, on, made, expected_text):
    code, outcome, because = decide(off, on, **made)
    assert (code, outcome) == (8, "not run"), because
    assert expected_text in because


def test_loads_that_were_not_shown_to_be_uncached_decide_nothing(decide):
    def cached(measurement):
        operations = tuple(dataclasses.replace(o, resident_bytes=o.mapped_bytes) for o in measurement.operations)
        return dataclasses.replace(measurement, operations=operations)

    code, outcome, because = decide(OFF, ON, change=cached)
    assert (code, outcome) == (8, "not run"), because
    assert "COLD was not met in the second run" in because
