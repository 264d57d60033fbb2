"""If the target's file system is known to cause a failure, the verdict also states the cure.

The outcome stays the same.
"""

from __future__ import annotations

import pytest

from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.facts.checks import BY_NAME
from pytest_ckpt.facts.observation import Anomaly, Observation
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.remedies import KNOWN, explain, remedy_of
from pytest_ckpt.judging.verdicts import decide_observed
from pytest_ckpt.run.doctor import known_failures

GATES = built_in("posix-shared")
STALE = Anomaly(kind="stale size", where="/mnt/a", seen="10", expected="20")


def judged(kind, *anomalies, requirement="STALE", subject="attributes"):
    observation = Observation(
        requirement=requirement,
        subject=subject,
        trials=10,
        measured=0.5,
        unit="s",
        anomalies=anomalies,
        anomaly_count=len(anomalies),
    )
    return decide_observed(REQUIREMENTS[requirement], observation, GATES, kind)


def test_a_failure_names_the_options_that_cure_it_on_this_file_system():
    verdict = judged("fuse.glusterfs", STALE)
    assert verdict.outcome == "failed"
    first, second, *_ = verdict.detail.splitlines()
    assert first.startswith("known of GlusterFS: ")
    assert second.startswith("cure: Set the volume options performance.stat-prefetch off")


def test_another_file_system_gets_no_word_and_the_same_verdict():
    known, unknown = judged("fuse.glusterfs", STALE), judged("fuse.unheard-of", STALE)
    assert "cure:" not in unknown.detail
    assert (known.outcome, known.because, known.reason) == (unknown.outcome, unknown.because, unknown.reason)


def test_met_requirements_are_not_explained():
    assert "known of" not in judged("fuse.glusterfs").detail


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: f"{row.name}-{row.checks[0]}")
def test_a_row_names_checks_that_there_are(row):
    assert row.checks
    assert set(row.checks) <= set(BY_NAME)
    for kind in row.kinds:
        for check in row.checks:
            assert f"cure: {remedy_of(row)}" in explain(kind, check)


def test_the_explanation_reports_that_no_option_is_known_to_help():
    assert "No option is known to help" in " ".join(explain("fuse.bindfs", "COMMIT.file"))


def test_doctor_reports_known_failures_before_the_run():
    found = list(known_failures("fuse.sshfs"))
    assert [finding.name for finding in found] == ["file system"] * 4
    assert not any(finding.can or finding.needed for finding in found)
    assert any("dir_cache=no" in finding.remedy for finding in found)
    assert list(known_failures("ext4")) == []
