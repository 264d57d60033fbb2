"""The schemas of our JSON documents are valid, accept correct documents, and refuse invalid values.

The tests of each command compare the command's real output with its schema.
"""

from __future__ import annotations

import copy
import json

import jsonschema
import pytest

from pytest_ckpt.cli import schema as command
from pytest_ckpt.cli.documents import DOCUMENTS as KINDS
from pytest_ckpt.cli.main import main
from pytest_ckpt.facts.written import fault
from tests.support.jsonschema_validation import violations
from tests.support.synthetic_measurement import LIMITS

FIGURE = {
    "kind": "save", "operations": 10, "planned": 10, "basis": "9 inferred from rank 0, 1 at most",
    "bases": {"inferred from rank 0": 9, "at most": 1}, "published_seconds": 5.0, "published_gib_per_second": 20.9,
    "published_in": "summary.json", "slowest_mean_seconds": 5.3, "overstatement": 0.06, "judged_seconds": 5.3,
    "outcome": "met as far as recorded", "outcome_text": "met as far as recorded: 9 of 10 saves", "known_operations": 9,
}  # fmt: skip
RESULT = {
    "system": "Maker array", "subject": "llama3-8b-full", "model": "llama3-8b", "mode": "full", "processes": 8,
    "basis": "inferred from rank 0", "runs": ["a/b"], "figures": [FIGURE, FIGURE | {"kind": "load"}], "signs": [],
    "network": {"received_bytes": 1, "loaded_bytes": 2, "at_least": False, "crossed": False, "description": "half"},
    "outcomes": {"SAVE": "met", "LOAD": "met"}, "verdict": "both in time", "grade": "rehearsal", "grade_reasons": [],
    "sufficient_up_to_accelerators": {
        "subject": "llama3-8b-full", "save": 1, "load": None, "overall": None, "projected": False,
        "is_load_proven": True,
    },
    "exit_code": 8,
}  # fmt: skip
TIMES = {"count": 3, "fastest_seconds": 1.0, "median_seconds": 2.0, "slowest_seconds": 3.0}
RUN = {"id": "x", "started": "2031-01-01T00:00:00+00:00", "grade": "rehearsal", "exit_code": 0}
POINT = {"id": "x", "started": "y", "grade": "z", "median_seconds": 1.0, "slowest_seconds": 2.0, "limit_seconds": 3.0}
SERIES = {
    "subject": "llama3-8b-full", "kind": "save", "conditions": {}, "points": [POINT], "can_show": False,
    "change": {"since": "y", "runs": 3, "before": 21, "ratio": 1.2, "probability": 0.001}, "omitted": {"why": 1},
}  # fmt: skip
LINE_SUBJECT = {
    "subject": "llama3-8b-full", "conditions": {"engine": "torch"}, "is_complete": True, "save_seconds": [1.0],
    "load_seconds": [], "save_limit_seconds": 27.8, "load_limit_seconds": 111.0,
}  # fmt: skip
DOCUMENTS = {
    "published": {
        "schema": "pytest-ckpt/published/1", "version": "1", "tree": "closed", "results": [RESULT, RESULT],
        "cluster": LIMITS.to_plain(),
        "messages": [{"path": "a", "text": "b"}], "runs": 2, "passed_over": 0, "exit_code": 8,
    },
    "rules": {
        "schema": "pytest-ckpt/rules/1", "version": "1", "edition": "mlperf-v3", "source": "x", "tree": "closed",
        "results": [{"system": "a", "subject": "b", "division": "closed", "runs": ["c"], "rules": [
            {"number": "4.3.1", "name": "n", "text": "t", "outcome": "not told", "because": "why"}]}],
        "messages": [{"path": "a", "text": "b"}], "runs": 1, "passed_over": 0, "exit_code": 8,
    },
    "verify": {
        "schema": "pytest-ckpt/verify/1", "outcome": "changed",
        "checks": [{"name": name, "outcome": "broken", "description": "why", "details": ["changed: x"]}
                   for name in ("digests", "verdicts", "pages", "signature")],
        "signers": [{"key_id": "ab", "key": "", "signed": ["ckpt-report"]}],
    },
    "diff": {
        "schema": "pytest-ckpt/diff/1", "before": RUN, "after": RUN | {"exit_code": None},
        "settings": [{"name": "--ckpt-save-budget", "before": "5%", "after": None}], "cluster": [], "system": [],
        "environment": [], "versions": [], "notices": [],
        "verdicts": [{"id": "SAVE", "subject": "s", "before": None, "after": "failed", "because": "why"}],
        "operations": [{"subject": "s", "kind": "save", "before": TIMES, "after": None, "ratio": None, "low": None,
                        "high": None, "change": "unknown", "note": ""}],
    },
    "trend": {
        "schema": "pytest-ckpt/trend/1", "runs": 24, "notices": [], "regression": 0.1, "regressions": ["s save"],
        "series": [SERIES, SERIES | {"change": None}],
    },
    "history": {
        "schema": "pytest-ckpt/history/1", "id": "x", "version": "1", "started": "2031-01-01T00:00:00+00:00",
        "finished": None, "grade": "rehearsal", "exit_code": 0, "accelerators": 16000, "directory": "runs/x",
        "subjects": [LINE_SUBJECT],
    },
    "doctor": {
        "schema": "pytest-ckpt/doctor/1", "can_run": False,
        "findings": [{"name": "torch", "can": False, "needed": True, "description": "none",
                      "remedy": "pip install it"}],
    },
}  # fmt: skip


@pytest.mark.covers(commands=("schema",))
@pytest.mark.parametrize("name", command.NAMES)
def test_the_command_prints_a_schema_that_names_its_document(name, capsys):
    assert main(["schema", name]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    top = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    assert top["properties"]["schema"] == {"enum": [f"pytest-ckpt/{name}/1"]}
    assert top["description"]


def test_every_document_has_a_schema():
    assert set(command.NAMES) == set(KINDS)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_follows_it_also_with_fields_that_are_added_later(name):
    for document in (DOCUMENTS[name], DOCUMENTS[name] | {"added later": 1}):
        assert violations(document, name) == []
        assert fault(document, KINDS[name]) == ""


def value_at(document, path):
    for step in path:
        document = document[step]
    return document


def fields(document, path=()):
    """Yield the path of every named field of a document."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield (*path, key)
            yield from fields(value, (*path, key))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from fields(value, (*path, number))


FREE = {"bases", "conditions", "omitted", "outcomes", "reasons"}
OPTIONAL: set[str] = set()
REQUIRED = [
    (name, path) for name, document in DOCUMENTS.items() for path in fields(document)
    if not FREE & set(path[:-1]) and path[-1] not in OPTIONAL
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "path"), REQUIRED, ids=lambda value: value if isinstance(value, str) else ".".join(map(str, value))
)
def test_every_field_of_the_contract_is_required(name, path):
    document = copy.deepcopy(DOCUMENTS[name])
    del value_at(document, path[:-1])[path[-1]]
    assert violations(document, name)
    assert f"`{path[-1]}`" in fault(document, KINDS[name])


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("published", ("results", 0, "grade"), "certified"),
        ("published", ("results",), [RESULT]),
        ("published", ("results", 0, "basis"), "guessed"),
        ("published", ("results", 0, "figures", 0, "bases"), {"guessed": 1}),
        ("published", ("results", 0, "figures", 0, "judged_seconds"), 0),
        ("published", ("results", 0, "outcomes", "SAVE"), "passed"),
        ("published", ("results", 0, "processes"), 8.0),
        ("published", ("exit_code",), 0),
        ("verify", ("outcome",), "holds"),
        ("verify", ("checks", 0, "name"), "schema"),
        ("verify", ("checks", 3, "outcome"), "met"),
        ("verify", ("checks",), []),
        ("diff", ("operations", 0, "change"), "worse"),
        ("diff", ("operations", 0, "before", "median_seconds"), 0),
        ("diff", ("verdicts", 0, "after"), "passed"),
        ("trend", ("regression",), 10),
        ("trend", ("series", 0, "change", "probability"), 2),
        ("trend", ("series", 0, "points", 0, "median_seconds"), -1),
        ("history", ("subjects", 0, "save_seconds"), [0]),
        ("history", ("subjects", 0, "save_seconds"), [1e300]),
        ("history", ("subjects", 0, "is_complete"), "yes"),
        ("history", ("started",), "yesterday"),
        ("history", ("exit_code",), 5),
        ("doctor", ("can_run",), 1),
        ("doctor", ("findings", 0, "remedy"), None),
        ("doctor", ("findings",), []),
    ],
    ids=str,
)
def test_wrong_values_are_refused(name, path, value):
    document = copy.deepcopy(DOCUMENTS[name])
    value_at(document, path[:-1])[path[-1]] = value
    assert violations(document, name)
    assert fault(document, KINDS[name])
