"""The grade and the exit code of a run, for given verdicts."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.grading.grading import ALL_MET, CRASHED, NOTHING_REQUIRED, judge_run, of_crashed_run
from pytest_ckpt.grading.obstacles import obstacles, possible_grade
from pytest_ckpt.sizing.plan import plan_run
from tests.support.synthetic_target import mounted

# All requirements of a run that requests no more.
ALL = [r.id for r in REQUIREMENTS.values() if r.suite == "performance" and r.is_requested(resolve({}, {}))]
REQUIRED = [name for name in ALL if REQUIREMENTS[name].severity == "required"]
SUBJECT = "llama3-8b-full"

# Only requirements of speed, but certificates are possible. Other tests cover the target's behaviour.
SPEED = dataclasses.replace(built_in("speed-only"), certifies=True)


def run_of(*, kind="ext4", **options):
    settings = resolve({"ckpt_engine": "torch", "ckpt_cluster": "16000", "ckpt_model": "llama3-8b", **options}, {})
    return plan_run(settings, mounted(kind)), settings, SPEED


REASON = {"met": "met", "failed": "over limit", "not run": "not measured", "waived": "over limit"}


def verdict(requirement, outcome, subject=SUBJECT):
    return Verdict(id=requirement, subject=subject, severity=REQUIREMENTS[requirement].severity, outcome=outcome,
                   reason=REASON[outcome], measured=None, limit=None, unit="", margin=None,
                   because=f"It is {outcome}.", detail="")  # fmt: skip


def findings(subject=SUBJECT, *, without=(), **outcomes):
    """Return the verdicts of a complete run. All requirements are met, except those in ``outcomes``.

    A keyword of ``outcomes`` is a requirement's name with ``_`` instead of ``-``. The requirements in ``without`` are
    omitted.
    """
    changed = {name.replace("_", "-"): outcome for name, outcome in outcomes.items()}
    return [verdict(r, changed.get(r, "met"), subject) for r in ALL if r not in without]


def graded(verdicts, **run):
    judgement = judge_run(*run_of(**run), verdicts)
    return judgement.grade, judgement.exit_code


SMOKE = {"ckpt_profile": "smoke"}
TABLE = [
    # verdicts, options of the run, grade, exit code
    ({}, {}, "certified", 0),
    ({"STRAGGLER": "failed"}, {}, "certified", 0),
    ({"STRAGGLER": "failed", "REPEAT": "failed"}, {}, "certified", 0),
    ({"REPEAT": "not run"}, {}, "certified", 0),
    ({"SAVE": "failed"}, {}, "not certified", 1),
    ({"INTEGRITY": "failed"}, {}, "not certified", 1),
    ({"SAVE": "failed", "COLD": "not run"}, {}, "not certified", 1),
    ({"SAVE": "waived"}, {}, "not certified", 0),
    ({"SAVE": "waived", "COLD": "not run"}, {}, "not certified", 8),
    ({"SAVE": "waived", "LOAD": "failed"}, {}, "not certified", 1),
    ({"COLD": "not run"}, {}, "incomplete", 8),
    ({"DURABLE_CALLS": "not run", "REPEAT": "failed"}, {}, "incomplete", 8),
    ({}, SMOKE, "rehearsal", 0),
    ({"SAVE": "failed"}, SMOKE, "rehearsal", 1),
    ({"COLD": "not run"}, SMOKE, "rehearsal", 8),
    ({"SAVE": "failed", "COLD": "not run"}, SMOKE, "rehearsal", 1),
    ({}, {"ckpt_scale": "0.999"}, "rehearsal", 0),
    ({}, {"ckpt_operations": "9"}, "rehearsal", 0),
    ({}, {"ckpt_operations": "11"}, "certified", 0),
    ({}, {"ckpt_profile": "nightly"}, "rehearsal", 0),
    ({}, {"ckpt_profile": "nightly", "ckpt_scale": "1"}, "certified", 0),
    ({}, {"ckpt_profile": "smoke", "ckpt_scale": "1"}, "rehearsal", 0),
]


@pytest.mark.parametrize(("outcomes", "run", "grade", "exit_code"), TABLE)
def test_the_table_of_grades(outcomes, run, grade, exit_code):
    assert graded(findings(**outcomes), **run) == (grade, exit_code)


def test_a_full_run_with_everything_met_gives_the_reason_for_its_certificate():
    judgement = judge_run(*run_of(), findings())
    assert judgement.reasons == (
        "Every requirement that the gate table demands was met, with complete checkpoints, at least 10 saves and 10 "
        "loads.",
    )
    assert [v.id for v in judgement.verdicts] == ALL


@pytest.mark.parametrize("name", ["SAVE", "STRAGGLER"])
def test_a_waiver_of_a_deselected_test_does_not_lead_to_a_certificate_even_of_an_advisory_one(name):
    deselected = [dataclasses.replace(v, outcome="waived", reason="no test") if v.id == name else v for v in findings()]
    judgement = judge_run(*run_of(), deselected)
    assert (judgement.grade, judgement.exit_code) == ("not certified", 0)
    assert judgement.reasons == (f"{name} was waived for {SUBJECT}: It is met.",)


@pytest.mark.parametrize("deselected", ALL)
def test_a_test_that_was_deselected_makes_the_run_incomplete_even_an_advisory_one(deselected):
    judgement = judge_run(*run_of(), findings(without=[deselected]))
    assert (judgement.grade, judgement.exit_code) == ("incomplete", 8)
    (reason,) = judgement.reasons
    assert deselected in reason
    assert SUBJECT in reason
    assert "deselected" in reason


def test_a_run_in_which_no_test_ran_is_incomplete():
    assert graded([]) == ("incomplete", 8)
    assert graded([], **SMOKE) == ("rehearsal", 8)


def test_failures_are_reported_first_and_by_name():
    reasons = judge_run(*run_of(), findings(LOAD="failed", COLD="not run")).reasons
    assert reasons[0] == f"LOAD failed for {SUBJECT}: It is failed."
    assert reasons[1] == f"COLD did not run for {SUBJECT}: It is not run."


def test_a_failed_advisory_requirement_is_in_the_verdicts():
    judgement = judge_run(*run_of(), findings(REPEAT="failed"))
    assert [v.outcome for v in judgement.verdicts if v.id == "REPEAT"] == ["failed"]


def test_a_model_that_cannot_run_as_requested_makes_the_run_incomplete_with_its_reason():
    run = run_of(kind="nfs4", ckpt_model="llama3-8b,llama3-70b")
    judgement = judge_run(*run, findings())
    assert (judgement.grade, judgement.exit_code) == ("incomplete", 8)
    (reason,) = judgement.reasons
    for word in ("llama3-70b-full", "64 ranks", "nfs4", "--ckpt-hosts"):
        assert word in reason
    assert len(judgement.verdicts) == 2 * len(ALL)


def test_a_subset_on_shared_storage_is_a_rehearsal_where_it_was_requested():
    run = run_of(kind="nfs4", ckpt_model="llama3-70b", ckpt_mode="subset")
    judgement = judge_run(*run, findings("llama3-70b-subset"))
    assert (judgement.grade, judgement.exit_code) == ("rehearsal", 0)
    assert "nfs4" in judgement.reasons[-1]


def test_a_subset_on_local_storage_is_certified():
    run = run_of(ckpt_model="llama3-70b")
    assert judge_run(*run, findings("llama3-70b-subset")).grade == "certified"


def test_a_verdict_about_something_else_completes_nothing():
    assert graded(findings("llama3-1t-full")) == ("incomplete", 8)


@pytest.mark.parametrize(
    ("run", "expected_text"),
    [
        ({}, "certified"),
        (SMOKE, "rehearsal: Checkpoints at 0.001 of the full size."),
        ({"ckpt_operations": "3"}, "rehearsal: 3 saves and loads; acceptance needs 10"),
        ({"kind": "nfs4", "ckpt_model": "llama3-70b"}, "incomplete: llama3-70b-full cannot run: llama3-70b in full"),
    ],
)
def test_the_grade_that_a_run_can_reach_is_reported_before_it(run, expected_text):
    found = obstacles(*run_of(**run))
    assert ": ".join([possible_grade(found), *(o.line for o in found)]).startswith(expected_text)


outcomes = st.sampled_from(["met", "failed", "not run", "waived"])


@given(st.fixed_dictionaries(dict.fromkeys(ALL, outcomes)), st.sampled_from([{}, SMOKE]))
def test_no_run_is_certified_unless_all_that_is_required_was_met_at_full_scale(decided, run):
    verdicts = [verdict(name, outcome) for name, outcome in decided.items()]
    grade, exit_code = graded(verdicts, **run)
    assert (grade == "certified") == (not run and all(decided[name] == "met" for name in REQUIRED))
    assert (exit_code == 1) == any(decided[name] == "failed" for name in REQUIRED)
    assert (exit_code == 8) == (exit_code != 1 and any(decided[name] == "not run" for name in REQUIRED))
    assert (grade == "rehearsal") == bool(run)


def test_the_order_in_which_tests_ran_decides_nothing():
    decided = findings(SAVE="failed", COLD="not run", REPEAT="failed")
    run = run_of()
    expected = judge_run(*run, decided)
    for order in itertools.islice(itertools.permutations(decided), 0, None, 501):
        assert judge_run(*run, order) == expected


@pytest.mark.parametrize("profile", [{}, SMOKE], ids=["full", "smoke"])
def test_a_run_without_requirements_is_never_certified(profile):
    """If a gate table switches every requirement off, the run gets no certificate."""
    plan, settings, _ = run_of(**profile)
    nothing = dataclasses.replace(SPEED, kinds=dict.fromkeys(REQUIREMENTS, "off"))
    judgement = judge_run(plan, settings, nothing, [])
    assert judgement.verdicts == ()
    assert (judgement.grade, judgement.exit_code) == ("rehearsal" if profile else "incomplete", 8)
    assert NOTHING_REQUIRED in judgement.reasons
    assert ALL_MET not in judgement.reasons


def test_a_run_in_which_advisory_requirements_alone_were_met_is_never_certified():
    plan, settings, _ = run_of()
    advisory = dataclasses.replace(SPEED, kinds=SPEED.kinds | dict.fromkeys(REQUIRED, "off"))
    met = [verdict(name, "met") for name in ALL if name not in REQUIRED]
    judgement = judge_run(plan, settings, advisory, met)
    assert [v.outcome for v in judgement.verdicts] == ["met"] * len(met)
    assert (judgement.grade, judgement.exit_code) == ("incomplete", 8)
    assert judgement.reasons == (NOTHING_REQUIRED,)


def test_a_run_that_an_error_of_ours_ended_certifies_nothing_and_another_grade_stays():
    crashed = of_crashed_run(judge_run(*run_of(), findings()))
    assert (crashed.grade, crashed.exit_code, crashed.reasons) == ("incomplete", 8, (CRASHED,))
    failed = judge_run(*run_of(), findings(SAVE="failed"))
    assert of_crashed_run(failed) == failed


def test_clients_that_were_too_slow_are_the_reason_and_not_the_storage():
    found = [
        dataclasses.replace(v, outcome="not run", reason="client too slow") if v.id == "SAVE" else v for v in findings()
    ]
    judgement = judge_run(*run_of(), found)
    assert judgement.grade == "incomplete"
    assert judgement.reasons[0].startswith(f"SAVE gave no result for {SUBJECT}: ")
    assert judgement.reasons[1].startswith("The clients were too slow for a requirement above: the run shows neither")
