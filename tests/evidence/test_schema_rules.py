"""Our rules find in a document what the library ``jsonschema`` finds: the same faults, words and places."""

from __future__ import annotations

import copy
import json
from random import Random

import pytest

from pytest_ckpt.evidence import schemas
from pytest_ckpt.evidence.schema_rules import Rules
from pytest_ckpt.support import resources
from tests.support import by_the_library, made_up
from tests.support.fuzz.values import changed

# Those that are read from another hand; the others describe what we write.
READ = ("report", "history")
DOCUMENTS = [
    json.loads(json.dumps(made_up.document("certified"))),
    json.loads(json.dumps(made_up.document("not certified", fail_after=3))),
    json.loads(json.dumps(made_up.bare())),
]


def reported(document, part=""):
    """Return all that our rules find, uncut, in any order: that of a dict's additional names is the library's own."""
    return sorted(f"{where}: {text}" for where, text in schemas.rule_of("report", part).faults(document, "$"))


def agree(document, part=""):
    expected = sorted(by_the_library.faults(document, "report", part))
    assert schemas.rule_of("report", part).holds(document) == (not expected), document
    if expected:
        assert reported(document, part) == expected
    return bool(expected)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2, 3, 4))])
def test_a_document_that_was_changed_has_the_faults_that_the_library_finds(seed):
    rng = Random(f"rules {seed}")
    broken = 0
    for _ in range(25):
        document = copy.deepcopy(rng.choice(DOCUMENTS))
        for _ in range(rng.choice([1, 1, 3])):
            document, _ = changed(rng, document)
        broken += agree(document)
    assert 5 < broken < 25


NAN = float("nan")
ODD = [1, 1.0, 0, -1, -0.5, True, False, None, "", "x", NAN, float("inf"), 10**30, [], {}, [1], {"a": 1}, {"it's": -1},
       [NAN, 1], [NAN, -1], [1, NAN, -1], ["a", "b"], {"a b": 1, "c": -1}]  # fmt: skip
PARTS = sorted(json.loads((resources.folder("templates") / "report.schema.json").read_text())["$defs"])


@pytest.mark.parametrize("part", PARTS)
def test_single_values_are_told_apart_as_the_library_tells_them(part):
    """A truth is no number, a whole number is one, and what is not a number is below no bound."""
    for value in [*ODD, *([v] for v in ODD), *({"a": v} for v in ODD)]:
        agree(value, part)


@pytest.mark.parametrize("name", READ)
def test_every_word_of_a_schema_that_is_read_is_understood(name):
    schemas.rule_of(name)


def test_a_word_that_is_not_understood_passes_nothing():
    with pytest.raises(KeyError, match="maxProperties"):
        Rules({}).of({"type": "object", "maxProperties": 1})


def test_faults_are_counted_and_cut():
    document = copy.deepcopy(DOCUMENTS[0])
    document["measurements"][0]["operations"][0]["rank_seconds"] = [-1.0, *[0.5] * 1000, *["long " * 200] * 200]
    found = schemas.faults(document, "report")
    place = "$.measurements[0].operations[0].rank_seconds"
    assert found[0] == f"{place}[0]: -1.0 is less than the minimum of 0"
    assert found[1].startswith(f"{place}[1001]: 'long long")
    assert found[1].endswith("long ' is not of type 'number'")
    assert len(found) == 100
    assert max(map(len, found)) < 300
