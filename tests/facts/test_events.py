"""Events of processes are read back from a line of text unchanged. The events of a subject give its facts."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_ckpt.facts.event_line import MARK, Call
from pytest_ckpt.facts.events import (
    KINDS,
    DurabilityCounted,
    IntegrityCompared,
    MeasurementDone,
    MeasurementStarted,
    OperationDone,
    PatternMeasured,
    Ready,
    event_from_plain,
    event_to_plain,
    events_by_subject,
    from_line,
    to_line,
)
from pytest_ckpt.facts.measurement import Endurance
from tests.support.synthetic_measurement import SUBJECT, measurement

ENDURED = Endurance(requested_seconds=0.0, seconds=1.0, kept=2, start_seconds=(0.0,), save_seconds=(1.0,))
OF_ITS_NAME = PatternMeasured(subject=SUBJECT, name="endurance", found=ENDURED)


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_event_survives_its_line(kind, data):
    event = OF_ITS_NAME if kind == "pattern" else data.draw(st.from_type(KINDS[kind]))
    line = to_line(event)
    assert line.startswith(f'{MARK}{{"event":"{kind}"')
    assert line.endswith("\n")
    before, read = from_line(f"a launcher's words{line}")
    # The texts are compared, because a time that is not a number does not equal itself.
    assert (before, repr(read)) == ("a launcher's words", repr(event))


def test_a_pattern_that_was_not_measured_survives_its_line():
    event = PatternMeasured(subject=SUBJECT, name="storm", not_run="Two are needed.")
    assert from_line(to_line(event)) == ("", event)


@pytest.mark.parametrize("line", [
    "nothing", MARK, f"{MARK}{{", f'{MARK}{{"event":"ready"', f'{MARK}{{"event":"unheard of"}}', f"{MARK}[1]",
    f'{MARK}{{"event":"call","call":"open"}}', f'{MARK}{{"event":"measuring","subject":"no"}}',
    f'{MARK}{{"event":"pattern","name":"invented","subject":"llama3-8b-full"}}',
])  # fmt: skip
def test_a_line_that_holds_no_event_of_ours_is_the_launchers_own(line):
    assert from_line(line) == (line, None)


def test_text_after_an_event_on_its_line_is_ignored():
    assert from_line(to_line(Call(call="open", path="/mnt/a")).strip() + "more") == (
        "",
        Call(call="open", path="/mnt/a"),
    )


@pytest.mark.parametrize(
    "data", [None, [], {}, {"event": []}, {"event": "hosts"}, {"event": "operation", "subject": 1}]
)
def test_a_document_that_is_no_event_is_an_error(data):
    with pytest.raises(ValueError, match="event"):
        event_from_plain(data)


def test_the_events_of_a_subject_give_its_facts():
    made = measurement()
    events = [
        Ready(),
        MeasurementStarted(subject=SUBJECT),
        *(OperationDone(subject=SUBJECT, operation=o) for o in made.operations),
        DurabilityCounted(subject=SUBJECT, durability=made.durability),
        IntegrityCompared(subject=SUBJECT, integrity=made.integrity),
        OF_ITS_NAME,
        PatternMeasured(subject=SUBJECT, name="storm", not_run="Two are needed."),
        MeasurementDone(subject=SUBJECT, cache=made.cache, ranks=made.ranks),
    ]
    read = [event_from_plain(json.loads(json.dumps(event_to_plain(event)))) for event in events]
    facts = events_by_subject(read)[SUBJECT].facts
    patterns = facts.pop("patterns")
    assert (patterns.endurance, patterns.not_run) == (ENDURED, {"storm": "Two are needed."})
    assert facts == {name: getattr(made, name) for name in facts}


def test_the_last_report_counts_for_a_subject_that_was_started_again():
    first = OperationDone(subject=SUBJECT, operation=measurement().operations[0])
    found = events_by_subject([MeasurementStarted(subject=SUBJECT), first, MeasurementStarted(subject=SUBJECT)])
    assert found[SUBJECT].facts["operations"] == ()
    assert found[SUBJECT].facts["patterns"] is None


def test_no_event_has_a_field_that_its_line_has_already():
    """No event has a field named "seconds" or "event".

    The line of an event has its own fields with these names, which a field of the event would overwrite.
    """
    for kind in KINDS.values():
        assert not {"seconds", "event"} & {field.name for field in dataclasses.fields(kind)}, kind
