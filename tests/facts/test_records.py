"""A file is a valid record if each field exists, has its type, and is within its bounds. An error names the field."""

from __future__ import annotations

import copy
import dataclasses
import functools
import typing

import jsonschema
import pytest

from pytest_ckpt.facts.bounds import Bounds
from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.measurement import Measurement, Operation
from pytest_ckpt.facts.proofs import CacheFacts
from pytest_ckpt.facts.strategy_results import TierRestore
from pytest_ckpt.facts.subject import OperationRef
from pytest_ckpt.facts.written import fault, schema_of
from pytest_ckpt.grading.document import Report

OPERATION = to_plain(
    Operation(kind="save", index=1, seconds=1, slowest_rank=None, rank0_seconds=1.0, rank_seconds=(1,),
              phases={"write": 1}, bytes=1)
)  # fmt: skip


def test_the_plain_form_of_a_record_is_valid():
    assert fault(OPERATION, Operation) == ""


def test_a_field_that_a_newer_version_added_is_passed_over():
    assert fault(OPERATION | {"invented_later": 1}, Operation) == ""


@pytest.mark.parametrize("field", OPERATION)
def test_a_field_that_is_missing_is_named_whether_or_not_it_has_a_default(field):
    plain = {name: value for name, value in OPERATION.items() if name != field}
    assert fault(plain, Operation) == f"$: Object missing required field `{field}`"


@pytest.mark.parametrize(
    ("change", "expected_text"),
    [
        ({"seconds": "1"}, "$.seconds: Expected `float`, got `str`"),
        ({"seconds": True}, "$.seconds: Expected `float`, got `bool`"),
        ({"seconds": None}, "$.seconds: Expected `float`, got `null`"),
        ({"seconds": -1.0}, "$.seconds: Expected `float` >= 1e-09"),
        ({"seconds": float("nan")}, "$.seconds: Expected `float`"),
        ({"seconds": float("inf")}, "$.seconds: Expected `float` <= 1000000000.0"),
        ({"index": 1.0}, "$.index: Expected `int`, got `float`"),
        ({"index": 0}, "$.index: Expected `int` >= 1"),
        ({"index": 2**80}, "$.index: "),
        ({"bytes": -(2**80)}, "$.bytes: "),
        ({"kind": "store"}, "$.kind: Invalid enum value 'store'"),
        ({"basis": "guessed"}, "$.basis: Invalid enum value 'guessed'"),
        ({"phases": {"write": "1"}}, "$.phases[...]: Expected `float`, got `str`"),
        ({"phases": []}, "$.phases: Expected `object`, got `array`"),
        ({"rank_seconds": [1.0, None]}, "$.rank_seconds[1]: Expected `float`, got `null`"),
        ({"resident_bytes": 1.5}, "$.resident_bytes: Expected `int | null`, got `float`"),
    ],
)
def test_a_value_that_no_run_writes_is_named_by_its_place(change, expected_text):
    assert fault(OPERATION | change, Operation).startswith(expected_text)


def test_a_value_within_a_record_is_named_by_its_place():
    reading = {"rule": "x", "host": 3, "memory_bytes": 1, "bytes_compared": 1, "requires_drop": True}
    cache = to_plain(CacheFacts(required=True, policy="", method="", probe="", resident_fraction=None, readings=()))
    assert fault(cache, CacheFacts) == ""
    assert fault(cache | {"readings": [reading]}, CacheFacts) == "$.readings[0].host: Expected `str`, got `int`"


def test_a_subject_is_written_as_its_text():
    plain = to_plain(from_plain(OperationRef, {"subject": "llama3-8b-full"}))
    assert fault(plain, OperationRef) == ""
    assert fault(plain | {"subject": {"model": "llama3-8b", "mode": "full"}}, OperationRef).startswith("$.subject: ")


@pytest.mark.parametrize("document", [None, [], "text", 1])
def test_a_document_that_is_not_an_object_is_not_a_record(document):
    assert fault(document, Measurement).startswith("$: Expected `object`")


def test_a_text_of_any_length_is_named_in_few_words():
    assert len(fault(OPERATION | {"kind": "x" * 10_000}, Operation)) < 300


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Unwritable:
    """A record that cannot be written to a file, because its field has the type object."""

    field: object


def test_a_type_that_no_file_holds_is_an_error_of_ours():
    with pytest.raises(TypeError, match="no file contains"):
        fault({"field": 1}, Unwritable)


@functools.cache
def records(kind):
    """Return every dataclass and TypedDict in ``kind``, the type of a document."""
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        if hasattr(kind, "from_text"):
            return frozenset()
        below = typing.get_type_hints(kind, include_extras=True).values()
        return frozenset({kind}).union(*map(records, below))
    return frozenset().union(*(records(arg) for arg in typing.get_args(kind) if not isinstance(arg, str | int | Bounds)
                               and arg is not None))  # fmt: skip


@pytest.mark.parametrize(
    "kind", sorted(records(Report), key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__
)
def test_the_schema_of_every_record_requires_what_its_file_must_hold(kind):
    schema = schema_of(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    part = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    assert part["description"]
    hints = typing.get_type_hints(kind, include_extras=True)
    assert set(part["properties"]) == set(hints)
    required = {name for name, hint in hints.items() if typing.get_origin(hint) is not typing.NotRequired}
    assert set(part["required"]) == required


def test_the_tier_that_is_expected_is_one():
    tier = {"expected_tier": "", "expected": 1, "tier": "", "number": 0, "seconds": 0.0, "integrity": None}
    assert "expected_tier" in fault(tier, TierRestore)
    assert fault(copy.deepcopy(tier) | {"expected_tier": "local"}, TierRestore) == ""


def test_half_of_a_surrogate_pair_is_a_fault_and_no_error() -> None:
    assert "half of a surrogate pair" in fault(OPERATION | {"basis": "\ud800"}, Operation)
