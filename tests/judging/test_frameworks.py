"""The time that an engine's library adds to the time of the built-in engine stream. Medians are compared."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.grading.engines import framework_overheads
from tests.support.synthetic_measurement import SUBJECT, measurement


def measured(engine, saves, loads, **changes):
    subject = dataclasses.replace(SUBJECT, engine=engine, **changes)
    return measurement(saves=saves, loads=loads, subject=subject)


BARE = measured("stream", (1.0, 2.0, 9.0), (4.0, 4.0, 4.0))


def test_medians_are_compared():
    (row,) = framework_overheads([measured("torch", (3.0, 3.0, 30.0), (3.0, 3.0, 3.0)), BARE])
    assert (row.subject, row.against) == ("llama3-8b-full", "llama3-8b-full/stream")
    assert (row.save_ratio, row.load_ratio) == (pytest.approx(1.5), pytest.approx(0.75))
    assert (row.save_extra_seconds, row.load_extra_seconds) == (pytest.approx(1.0), pytest.approx(-1.0))


@pytest.mark.parametrize(
    "other",
    [
        measured("torch", (1.0, 1.0), (1.0, 1.0, 1.0)),
        measured("torch", (1.0, 1.0, 1.0), ()),
        measured("torch", (1.0,) * 3, (1.0,) * 3, strategy="async"),
        measured("torch", (1.0,) * 3, (1.0,) * 3, model="llama3-70b"),
    ],
    ids=["a save is missing", "loads are missing", "another strategy", "another checkpoint"],
)
def test_measurements_that_differ_in_kind_are_not_compared(other):
    assert framework_overheads([other, BARE]) == []
    assert framework_overheads([other]) == []
