"""The schema accepts every document that can be written, and refuses what a script could stumble over."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest

from pytest_ckpt.support import resources
from tests.support import made_up

SCHEMA = json.loads((resources.folder("templates") / "report.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

DOCUMENTS = {
    "certified": made_up.document("certified"),
    "not certified": made_up.document("not certified"),
    "incomplete": made_up.document("incomplete"),
    "rehearsal": made_up.document("rehearsal"),
    "ended early": made_up.document("not certified", fail_after=3),
    "nothing ran": made_up.empty(),
    "contract only": made_up.bare(),
    "hostile": made_up.document("not certified", text=made_up.HOSTILE, fail_after=0),
}


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_are_valid(name: str) -> None:
    VALIDATOR.validate(json.loads(json.dumps(DOCUMENTS[name], allow_nan=False)))


def test_unknown_fields_are_allowed() -> None:
    document = copy.deepcopy(DOCUMENTS["certified"])
    for place in (document, document["run"], document["cluster"], document["requirements"][0],
                  document["measurements"][0], document["measurements"][0]["operations"][0]):  # fmt: skip
        place["added later"] = 1
    VALIDATOR.validate(document)


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


REQUIRED = [
    (), ("run",), ("cluster",), ("requirements", 0), ("measurements", 0), ("measurements", 0, "operations", 0),
    ("measurements", 0, "cache"), ("measurements", 0, "integrity"), ("measurements", 0, "durability"),
    ("certified_cluster", 0),
]  # fmt: skip


def _contract_fields() -> list[tuple[Any, ...]]:
    """Return the path of every field that the contract names, as the smallest document has them."""
    bare = made_up.bare()
    return [(*place, field) for place in REQUIRED for field in _at(bare, place)
            if (*place, field) != ("certified_cluster", 0, "projected")
            and field not in {"seed", "launch", "mapped_bytes", "resident_bytes", "checkpoints_per_day"}]  # fmt: skip


@pytest.mark.parametrize("path", _contract_fields(), ids=lambda path: ".".join(map(str, path)))
def test_every_field_of_the_contract_is_required(path: tuple[Any, ...]) -> None:
    document = made_up.bare()
    del _at(document, path[:-1])[path[-1]]
    assert not VALIDATOR.is_valid(document)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), "pytest-ckpt/report/2"),
        (("grade",), "passed"),
        (("exit_code",), 5),
        (("run", "started"), "yesterday"),
        (("run", "command"), "pytest"),
        (("cluster", "accelerators"), 0),
        (("cluster", "accelerators"), "16000"),
        (("cluster", "save_budget"), 5),
        (("cluster", "save_limit_seconds"), 0),
        (("requirements", 0, "id"), "save"),
        (("requirements", 0, "outcome"), "passed"),
        (("requirements", 0, "severity"), "optional"),
        (("requirements", 0, "measured"), "12 s"),
        (("measurements", 0, "basis"), "guessed"),
        (("measurements", 0, "mode"), "half"),
        (("measurements", 0, "operations", 0, "kind"), "write"),
        (("measurements", 0, "operations", 0, "seconds"), -1),
        (("measurements", 0, "operations", 0, "rank_seconds"), [1, None]),
        (("measurements", 0, "cache", "resident_fraction"), 40),
        (("measurements", 0, "failure"), {"kind": "tired", "message": ""}),
        (("certified_cluster", 0, "save"), 1.5),
        (("stages", "saves"), "long"),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else str(value),
)
def test_wrong_values_are_refused(path: tuple[Any, ...], value: object) -> None:
    document = copy.deepcopy(DOCUMENTS["certified"])
    _at(document, path[:-1])[path[-1]] = value
    assert not VALIDATOR.is_valid(document)
