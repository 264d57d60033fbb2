"""The report's schema accepts the files of a run, and refuses values with which scripts would fail."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from pytest_ckpt.facts.written import fault
from pytest_ckpt.grading.document import Report
from tests.support import synthetic_run
from tests.support.jsonschema_validation import violations

# Objects whose keys are not field names, and fields that only some reports have.
FREE = {"reasons", "kinds", "limits", "versions", "engine_facts", "phases", "stages", "facts", "client", "not_run"}
OPTIONAL = {
    ("run", "seed"), ("run", "suites"), ("run", "hosts"), ("run", "seconds"), ("engine", "file_share"),
    ("engine", "files"), ("environment", "plugins"), ("environment", "second_client"), ("environment", "recorders"),
    ("starts",),
}  # fmt: skip


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("report") / "run"
    synthetic_run.write_run(directory)
    return json.loads((directory / "report.json").read_text())


def test_a_report_is_one(document: Any) -> None:
    assert fault(document, Report) == ""
    assert violations(document, "report") == []


def objects(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """Yield the path of each object in a document. In each list, only the first entry is searched."""
    if isinstance(value, dict) and not FREE & set(path[-1:]):
        yield path
        for name, below in value.items():
            yield from objects(below, (*path, name))
    elif isinstance(value, list):
        for below in value[:1]:
            yield from objects(below, (*path, 0))


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


def test_fields_that_come_later_are_allowed_everywhere(document: Any) -> None:
    later = copy.deepcopy(document)
    for path in list(objects(document)):
        _at(later, path)["added later"] = 1
    assert fault(later, Report) == ""
    assert violations(later, "report") == []


def test_every_field_is_required_at_any_depth_also_one_that_is_renamed(document: Any) -> None:
    places = list(objects(document))
    assert len(places) > 25
    for path in places:
        held = _at(document, path)
        if path[:2] == ("environment", "hosts"):
            continue
        for name, value in list(held.items()):
            if (*path[-1:], name) in OPTIONAL:
                continue
            del held[name]
            held[f"{name}s"] = value
            assert f"missing required field `{name}`" in fault(document, Report), (path, name)
            del held[f"{name}s"]
            held[name] = value
    assert fault(document, Report) == ""


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
        (("checkpoints", 0, "strategy"), "often"),
        (("requirements", 0, "id"), "save"),
        (("requirements", 0, "outcome"), "passed"),
        (("requirements", 0, "severity"), "optional"),
        (("requirements", 0, "measured"), "12 s"),
        (("gate_table", "kinds"), {"SAVE": "sometimes"}),
        (("measurements", 0, "basis"), "guessed"),
        (("measurements", 0, "mode"), "half"),
        (("measurements", 0, "operations", 0, "kind"), "write"),
        (("measurements", 0, "operations", 0, "seconds"), -1),
        (("measurements", 0, "operations", 0, "rank_seconds"), [1, None]),
        (("measurements", 0, "cache", "resident_fraction"), 40),
        (("measurements", 0, "failure"), {"kind": "tired", "message": ""}),
        (("sufficient_up_to_accelerators", 0, "save"), 1.5),
        (("stages", "saves"), "long"),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else str(value),
)
def test_wrong_values_are_refused_and_their_place_is_named(document: Any, path: tuple[Any, ...], value: object) -> None:
    wrong = copy.deepcopy(document)
    _at(wrong, path[:-1])[path[-1]] = value
    assert violations(wrong, "report")
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    assert fault(wrong, Report).startswith(f"${place}".replace(".stages.saves", ".stages[...]"))
