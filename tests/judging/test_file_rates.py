"""The check NAMES.many compares the rate of new files with the rate that the plan needs on each host."""

from __future__ import annotations

import pytest

from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.observation import Anomaly, Observation
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.reasons import Derived, is_default_limit, reason_of
from pytest_ckpt.judging.verdicts import decide_observed
from pytest_ckpt.sizing.plan import FilesOfHost, plan_run
from tests.support.synthetic_target import mounted

GATES = built_in("posix-shared")
DEMAND = FilesOfHost(model="llama3-405b", files=500, hosts=4, save_limit_seconds=10.0)


def observation_of_rate(files_per_second: float, **more: object) -> Observation:
    return Observation(
        requirement="NAMES",
        subject="many",
        trials=10_000,
        measured=10_000 / files_per_second,
        unit="s",
        **more,  # type: ignore[arg-type]
    )


def judged(observation: Observation, demand: FilesOfHost | None = DEMAND) -> Verdict:
    return decide_observed(REQUIREMENTS["NAMES"], observation, GATES, "nfs4", demand)


@pytest.mark.parametrize(("rate", "outcome"), [(1_000.0, "met"), (50.0, "met"), (49.9, "failed"), (1.0, "failed")])
def test_a_host_must_create_its_files_of_a_checkpoint_within_the_save_limit(rate: float, outcome: str) -> None:
    verdict = judged(observation_of_rate(rate))
    assert (verdict.outcome, verdict.severity) == (outcome, "required")
    assert (verdict.measured, verdict.limit) == (pytest.approx(500 / rate), 10.0)


def test_ten_thousand_files_may_take_longer_than_a_save() -> None:
    verdict = judged(observation_of_rate(1_000.0))
    assert verdict.because == (
        "One client created 10,000 files, 1,000 a second. At that rate a host (4 hosts) creates its 500 files of a "
        "checkpoint of llama3-405b in 500 ms; save limit 10 s."
    )


def test_without_a_plan_the_rate_is_reported_and_decides_nothing() -> None:
    verdict = judged(observation_of_rate(0.5), None)
    assert (verdict.outcome, verdict.limit) == ("met", None)
    assert verdict.because == "No fault in 10,000 trials. One client created 10,000 files, 0 a second."


def test_a_missing_name_fails_whatever_the_rate() -> None:
    missing = Anomaly(kind="name missing in a listing", where="names/7", seen="nothing", expected="the name")
    assert judged(observation_of_rate(1_000.0, anomaly_count=1, anomalies=(missing,))).reason == "anomaly"


def test_a_change_of_names_has_no_rate() -> None:
    observation = Observation(requirement="NAMES", subject="after-change", trials=4)
    assert judged(observation).because == "No fault in 4 trials."


def test_the_limit_is_derived_from_the_operators_inputs() -> None:
    reason = reason_of("NAMES", "many", "posix-shared")
    assert reason is not None
    assert isinstance(reason.because, Derived)
    assert not is_default_limit("NAMES", "many", GATES)


def test_more_hosts_share_the_files_of_a_checkpoint() -> None:
    def demand(hosts: int) -> FilesOfHost:
        names = ",".join(f"n{number}:{64 // hosts}" for number in range(hosts))
        options = {"ckpt_model": "llama3-70b", "ckpt_hosts": names, "ckpt_cluster": "16000"}
        found = plan_run(resolve(options, {}), mounted("nfs4")).files_of_host
        assert found is not None
        return found

    one, four = demand(1), demand(4)
    assert (one.hosts, four.hosts) == (1, 4)
    assert four.files == -(-one.files // 4)
    assert one.save_limit_seconds == four.save_limit_seconds
