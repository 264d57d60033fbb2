"""Records are read back from a file as they were written, also by other versions. A file contains only JSON types."""

from __future__ import annotations

import enum
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.failure import BlockedCall, Failure
from pytest_ckpt.facts.measurement import Measurement, Operation, RankFacts
from pytest_ckpt.facts.proofs import CacheFacts, Durability, Integrity
from pytest_ckpt.facts.settings import HostSlots
from pytest_ckpt.facts.subject import OperationRef, Subject
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.launching.launcher import Launcher
from pytest_ckpt.ranks.process.job import Job

KINDS = [Measurement, Operation, Verdict, Failure, CacheFacts, Integrity, Durability,
         RankFacts, Job, Launcher, OperationRef, BlockedCall]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_record_comes_back_from_a_file_as_it_was(kind, data):
    record = data.draw(st.from_type(kind))
    # The texts are compared, because a time that is not a number does not equal itself.
    assert repr(from_plain(kind, json.loads(json.dumps(to_plain(record))))) == repr(record)


class Colour(enum.StrEnum):
    RED = "red"


class Name(str):
    __slots__ = ()


def test_only_plain_types_are_left():
    given_types = {
        "path": Path("/mnt"),
        "name": Name("x"),
        "colour": Colour.RED,
        "float": np.float64(1.5),
        "yes": True,
        "none": None,
        "pair": (1, Name("y")),
        3: "key",
        "record": HostSlots(name="n", slots=2),
    }
    plain = to_plain(given_types)
    assert plain["path"] == "/mnt"
    assert plain["record"] == {"name": "n", "slots": 2}
    assert plain["pair"] == [1, "y"]
    assert plain["yes"] is True
    assert plain["none"] is None
    assert set(plain) >= {"3"}
    for name in ("path", "name", "colour"):
        assert type(plain[name]) is str
    assert type(plain["float"]) is float
    json.dumps(plain)


@pytest.mark.parametrize(("subject", "text", "slug"), [
    (Subject(model="llama3-8b", mode="full"), "llama3-8b-full", "llama3-8b-full"),
    (Subject(model="llama3-8b", mode="open", processes=16), "llama3-8b-open-16", "llama3-8b-open-16"),
    (Subject(model="llama3-8b", mode="full", engine="stream"), "llama3-8b-full/stream", "llama3-8b-full+stream"),
    (Subject(model="llama3-8b", mode="full", engine="dcp", strategy="async"), "llama3-8b-full/dcp/async",
     "llama3-8b-full+dcp+async"),
    (Subject(model="llama3-8b", mode="full", strategy="async"), "llama3-8b-full/torch/async",
     "llama3-8b-full+torch+async"),
])  # fmt: skip
def test_a_subject_has_one_text_that_leaves_out_defaults(subject, text, slug):
    assert (str(subject), subject.slug) == (text, slug)
    assert Subject.from_text(text) == subject
    assert to_plain(subject) == text


@pytest.mark.parametrize("text", ["", "full", "-full", "llama3-8b-", "llama3-8b-full/torch", "llama3-8b-full/dcp/sync",
                                  "llama3-8b-full/dcp/async/x", "llama3-8b-full/"])  # fmt: skip
def test_a_text_that_is_no_subject_is_an_error(text):
    with pytest.raises(ValueError, match="is not a subject"):
        Subject.from_text(text)


@pytest.mark.parametrize(("facts", "text"), [
    ({"action": "save", "index": 2}, "save 2"),
    ({"action": "load", "index": 3, "stage": "residency"}, "load 3: residency"),
    ({"stage": "prepare"}, "prepare"),
    ({"scenario": "storm", "action": "load", "index": 1}, "storm 1"),
    ({"scenario": "storm", "stage": "content"}, "storm: content"),
    ({"scenario": "near_full", "action": "save", "index": 3, "level": 0.8}, "near_full 3 at 80%"),
])  # fmt: skip
def test_an_operation_has_a_text_for_a_person(facts, text):
    at = OperationRef(subject=Subject(model="llama3-8b", mode="full"), **facts)
    assert str(at) == f"llama3-8b-full {text}"


def test_fields_of_a_newer_version_are_ignored():
    failure = Failure(kind="hung", message="no progress")
    assert from_plain(Failure, {**to_plain(failure), "invented_later": [1, 2]}) == failure


def test_fields_missing_in_an_older_version_get_their_default():
    assert from_plain(Failure, {"kind": "hung", "message": "no progress"}).rank is None


def test_a_fact_that_is_missing_is_an_error_and_not_a_guess():
    with pytest.raises(TypeError, match="message"):
        from_plain(Failure, {"kind": "hung"})


def test_records_cannot_be_changed():
    with pytest.raises(AttributeError):
        Failure(kind="hung", message="").message = "x"
