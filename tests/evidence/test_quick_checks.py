"""What is decided quickly is what the library decides: the same faults, in the same words, at the same places."""

from __future__ import annotations

import copy
import functools
import json
from random import Random

import jsonschema
import pytest

from pytest_ckpt.evidence import schemas
from pytest_ckpt.evidence.schemas import faults
from pytest_ckpt.support import resources
from tests.support import made_up
from tests.support.fuzz.values import changed

DOCUMENTS = [
    json.loads(json.dumps(made_up.document("certified"))),
    json.loads(json.dumps(made_up.document("not certified", fail_after=3))),
    json.loads(json.dumps(made_up.bare())),
]


@functools.cache
def the_library(part):
    """Return what checks documents with nothing of ours but the schema."""
    schema = json.loads((resources.folder("templates") / "report.schema.json").read_text(encoding="utf-8"))
    if part:
        schema = {"$defs": schema["$defs"], "$ref": f"#/$defs/{part}"}
    plain = jsonschema.Draft202012Validator
    types = plain.TYPE_CHECKER.redefine("integer", lambda _checker, value: type(value) is int)
    return jsonschema.validators.extend(plain, type_checker=types)(schema)


def by_the_library(document, part=""):
    return [(error.json_path, error.message) for error in the_library(part).iter_errors(document)]


def reported(document, part=""):
    return [(e.json_path, e.message) for e in schemas._validator("report", part).iter_errors(document)]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_document_that_was_changed_has_the_faults_that_the_library_finds(seed):
    rng = Random(f"quick {seed}")
    broken = 0
    for _ in range(25):
        document = copy.deepcopy(rng.choice(DOCUMENTS))
        for _ in range(rng.choice([1, 1, 3])):
            document, _ = changed(rng, document)
        expected = by_the_library(document)
        assert reported(document) == expected
        broken += bool(expected)
    assert 5 < broken < 25


ODD = [1, 1.0, 0, -1, -0.5, True, False, None, "", "x", float("nan"), float("inf"), 10**30, [], {}, [1], {"a": 1}]


@pytest.mark.parametrize("part", ["seconds", "positive", "count", "count_or_null", "fraction", "subject", "severity",
                                  "seconds_by_name", "list_of_seconds", "mode"])  # fmt: skip
def test_single_values_are_told_apart_as_the_library_tells_them(part):
    """A truth is no number, a whole number is one, and what is not a number is below no bound."""
    for value in [*ODD, *([v] for v in ODD), *({"a": v} for v in ODD)]:
        assert reported(value, part) == by_the_library(value, part), value


def test_a_document_that_follows_its_schema_is_never_given_to_the_library(monkeypatch):
    """It takes 40 µs for each value: minutes for what a run of days leaves."""
    document = copy.deepcopy(DOCUMENTS[0])
    document["measurements"][0]["operations"][0]["rank_seconds"] = [0.5] * 1000
    kind = type(schemas._validator("report", ""))
    asked = []
    descend = kind.descend
    monkeypatch.setattr(
        kind, "descend", lambda self, *given, **named: asked.append(named) or descend(self, *given, **named)
    )
    assert faults(document, "report") == []
    assert asked == []
    document["measurements"][0]["operations"][0]["rank_seconds"][700] = -1.0
    assert faults(document, "report") == [
        "$.measurements[0].operations[0].rank_seconds[700]: -1.0 is less than the minimum of 0"
    ]
    assert len(asked) < 10
