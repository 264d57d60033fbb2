"""Waivers: the requirements that they cover, and their last day. A waived requirement is never reported as met."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.verdicts import decide
from pytest_ckpt.judging.waivers import Waiver, expired, read_waivers, waive
from tests.support.synthetic_measurement import GATES, LIMITS, measurement

KNOWN = {"SAVE": ["llama3-8b-full", "llama3-70b-full"], "STALE": ["attributes", "names"]}
GOOD = {"requirement": "STALE", "subject": "attributes", "reason": "We wait two seconds.", "expires": "2027-03-31"}


def text(*entries):
    return "\n".join("[[waive]]\n" + "\n".join(f'{key} = "{value}"' for key, value in e.items()) for e in entries)


def verdict(seconds):
    return decide(REQUIREMENTS["SAVE"], measurement(saves=(seconds,) * 3), LIMITS, GATES)


SLOW, FAST = verdict(9_999.0), verdict(0.001)


def waiver(**changed):
    usual = {"requirement": "SAVE", "subject": SLOW.subject, "reason": "It is a trial.", "expires": "2027-03-31"}
    return Waiver(**usual | changed)


def test_a_complete_waiver_entry_is_read():
    assert read_waivers(text(GOOD), KNOWN) == (Waiver(**GOOD),)


def test_a_date_may_be_written_as_toml_writes_dates():
    assert read_waivers(text(GOOD).replace('"2027-03-31"', "2027-03-31"), KNOWN) == (Waiver(**GOOD),)


@pytest.mark.parametrize(("changed", "words"), [
    ({"requirement": "STAEL"}, ["entry 1", "'STAEL'", "did you mean 'STALE'?"]),
    ({"subject": "atributes"}, ["no subject 'atributes'", "did you mean 'attributes'?", "names"]),
    ({"reason": " "}, ["entry 1 has no reason"]),
    ({"expires": "soon"}, ["expires is 'soon'", "2027-03-31"]),
    ({"expires": ""}, ["has no expires"]),
    ({"until": "2027-03-31"}, ["'until'"]),
])  # fmt: skip
def test_an_error_in_an_entry_is_reported(changed, words):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the text is checked below
        read_waivers(text(GOOD | changed), KNOWN)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("nothing", ["", "waive = []", "waived = 1"])
def test_a_file_without_entries_is_an_error(nothing):
    with pytest.raises(ValueError, match=r"\[\[waive\]\]"):
        read_waivers(nothing, KNOWN)


def test_a_waived_failure_keeps_its_text():
    (waived,) = waive([SLOW], [waiver()], "2026-11-21T10:00:00+00:00")
    assert waived.outcome == "waived"
    assert "Waived until 2027-03-31: It is a trial. It failed: " + SLOW.because == waived.because
    assert (waived.measured, waived.limit, waived.severity) == (SLOW.measured, SLOW.limit, SLOW.severity)


@given(st.sampled_from([SLOW, FAST]), st.dates(), st.sampled_from(["*", SLOW.subject, "another"]))
def test_only_what_is_covered_in_time_and_was_not_met_is_waived(found, day, subject):
    entry = waiver(subject=subject)
    (after,) = waive([found], [entry], day.isoformat())
    covered = subject != "another" and day.isoformat() <= entry.expires
    assert (after.outcome == "waived") == (covered and found.outcome == "failed")
    assert after.outcome == "waived" or after == found
    assert bool(expired([entry], day.isoformat())) == (day.isoformat() > entry.expires)
