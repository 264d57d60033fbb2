"""If a client's fsync or clock cannot be trusted, the run gets no certificate.

No requirement on the storage fails for this reason.
"""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.proofs import ClientProofs, ClockSpan, FsyncEffect, Interposed, RankSpan
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.grading.reservations import not_tested
from pytest_ckpt.judging.clients import (
    client_reasons,
    describe_effect,
    disclosures,
    has_proven_fsync,
    missing_effect,
    replaced_fsync,
    unsafe_effect,
    unsafe_mounts,
)
from tests.support.synthetic_measurement import judged, measurement

SEEN = FsyncEffect(rank=0, host="n1", moment="before the saves", dirty_bytes=131072)
AFTER = dataclasses.replace(SEEN, moment="after the saves")
LEFT = dataclasses.replace(AFTER, rank=3, left_bytes=65536)
UNSEEN = dataclasses.replace(SEEN, dirty_bytes=0, unobservable="the kernel counted no dirty page")
VOLATILE = dataclasses.replace(SEEN, unsafe_option="fsync=volatile")
NO_FSYNC = Interposed(host="n1", by="/x/no_fsync.so", calls=("fdatasync", "fsync"))
NO_READ = Interposed(host="n2", by="/x/fast.so", calls=("open", "read", "pread", "write", "close", "mmap"))
GOOD = ClockSpan(rank=0, host="n1", of="save 1", clock_seconds=10.0, uptime_seconds=10.01)
SLOW = dataclasses.replace(GOOD, rank=5, clock_seconds=1.0)
ASLEEP = dataclasses.replace(SLOW, asleep_seconds=9.0)


def proofs(*fsyncs, clocks=(GOOD,), interposed=(), disclosed=()):
    return ClientProofs(fsyncs=fsyncs, clocks=clocks, interposed=interposed, disclosed=disclosed)


def measured(*fsyncs, **facts):
    return measurement(client_proofs=proofs(*fsyncs, **facts))


def test_clients_that_prove_themselves_are_no_reason():
    assert client_reasons([measured(SEEN, AFTER), measurement()]) == []
    assert has_proven_fsync([measured(SEEN, AFTER)])
    assert unsafe_mounts({"n1": {"file_system": "nfs4", "vers": "4.2", "barrier": "1"}}) == []


@pytest.mark.parametrize(("facts", "reason"), [
    ({"interposed": (NO_FSYNC,)}, "On n1, /x/no_fsync.so answers fdatasync, fsync in place of the C library: "),
    ({"interposed": (NO_READ,)}, "/x/fast.so answers open, read, pread, write and 2 other calls in place of"),
    ({"clocks": (GOOD, SLOW)}, "The clock of rank 5 on n1 cannot be believed: 1 s in save 1 were 10 s by the kernel's"),
    ({"clocks": (ASLEEP,)}, "cause is that the host slept: CLOCK_BOOTTIME ran 9 s ahead of CLOCK_MONOTONIC."),
])  # fmt: skip
def test_each_unreliable_client_fact_is_reported_once_as_a_reason(facts, reason):
    (found,) = client_reasons([measured(SEEN, **facts)])
    assert reason in found
    # A run with several measurements reports a reason once.
    assert client_reasons([measured(SEEN, **facts)] * 2) == [found]


def test_sleep_is_named_only_if_it_explains_the_difference():
    for asleep in (0.0, 0.5, 20.0):
        span = dataclasses.replace(SLOW, asleep_seconds=asleep)
        (reason,) = client_reasons([measured(SEEN, clocks=(span,))])
        assert "slept" not in reason


def test_an_fsync_without_its_effect_is_a_reason():
    (reason,) = client_reasons([measured(SEEN, LEFT)])
    assert reason == (
        "The proof of fsync failed: fsync returned on n1 (rank 3), and 65.5 kB of 131 kB were still not written back "
        "(counted by cachestat)."
    )


@pytest.mark.parametrize(("found", "proven"), [
    ((), False),
    ((measurement(),), False),
    ((measured(),), False),
    ((measured(SEEN, UNSEEN),), False),
    ((measured(SEEN, LEFT),), False),
    ((measured(VOLATILE),), False),
    ((measured(SEEN), measured(UNSEEN)), False),
    ((measured(SEEN), measurement()), False),
    ((measured(SEEN, AFTER), measured(SEEN)), True),
])  # fmt: skip
def test_fsync_is_proven_only_if_every_measurement_shows_it(found, proven):
    assert has_proven_fsync(found) is proven


@given(st.lists(st.sampled_from([SEEN, AFTER, LEFT, UNSEEN, VOLATILE]), max_size=5))
def test_an_effect_that_is_missing_is_never_proven(fsyncs):
    of = proofs(*fsyncs)
    assert (missing_effect(of) is not None) == (LEFT in fsyncs)
    assert has_proven_fsync([measured(*fsyncs)]) == (bool(fsyncs) and set(fsyncs) <= {SEEN, AFTER})


def test_only_what_answers_fsync_replaces_it():
    assert replaced_fsync(proofs(interposed=(NO_READ,))) == ""
    assert "answers fdatasync, fsync" in replaced_fsync(proofs(interposed=(NO_READ, NO_FSYNC)))
    of_python = Interposed(host="n1", by="/x/sitecustomize.py", calls=("os.fsync",))
    assert "answers os.fsync" in replaced_fsync(proofs(interposed=(of_python,)))


@pytest.mark.parametrize(("fsyncs", "text"), [
    ((), ""),
    ((SEEN, LEFT), "fsync returned on n1 (rank 3), and 65.5 kB of 131 kB were still not written back"),
    ((SEEN, UNSEEN), "The effect of fsync was not observable: the kernel counted no dirty page."),
    ((SEEN, AFTER), "no byte that was left to write back after fsync (cachestat, 1 host, before and after the saves)."),
    ((dataclasses.replace(SEEN, counter="device counters"),), "(the counters of the device, 1 host, "),
])  # fmt: skip
def test_the_kind_of_count_is_described(fsyncs, text):
    assert text in describe_effect(proofs(*fsyncs))
    assert bool(describe_effect(proofs(*fsyncs))) is bool(text)


@pytest.mark.parametrize(("option", "value", "shown"), [
    ("volatile", "yes", "volatile"),
    ("fsync", "volatile", "fsync=volatile"),
    ("nobarrier", "yes", "nobarrier"),
    ("barrier", "0", "barrier=0"),
    ("barrier", "none", "barrier=none"),
    ("fsync_mode", "nobarrier", "fsync_mode=nobarrier"),
])  # fmt: skip
def test_a_mount_that_takes_fsync_its_effect_is_a_reason(option, value, shown):
    clients = {f"n{number}": {option: value} for number in range(1, 7)}
    assert unsafe_mounts(clients) == [
        f"The target is mounted with '{shown}' on n1, n2, n3, n4: fsync does not wait for the storage."
    ]
    assert unsafe_mounts({"n1": {option: "other"}}) == []


def test_durable_calls_of_a_client_whose_fsync_has_its_effect_are_met():
    verdict = judged("DURABLE-CALLS", measured(SEEN, AFTER))
    assert verdict.outcome == "met"
    assert "The kernel counted no byte" in verdict.because


def test_an_effect_that_is_missing_fails_durable_calls():
    verdict = judged("DURABLE-CALLS", measured(SEEN, LEFT))
    assert (verdict.outcome, verdict.reason, verdict.measured) == ("failed", "not durable", 65536.0)


def test_a_library_that_answers_fsync_is_no_failure_of_the_storage():
    verdict = judged("DURABLE-CALLS", measured(SEEN, LEFT, interposed=(NO_FSYNC,)))
    assert (verdict.outcome, verdict.reason) == ("not run", "unproven")
    assert verdict.because.endswith("so the storage is not judged.")


def test_a_mount_that_takes_fsync_its_effect_leaves_durability_unproven():
    unseen = dataclasses.replace(UNSEEN, unsafe_option="volatile")
    for fsync in (VOLATILE, unseen):
        verdict = judged("DURABLE-CALLS", measured(fsync))
        assert (verdict.outcome, verdict.reason) == ("not run", "unproven")
        assert verdict.because == unsafe_effect(proofs(fsync))
        assert f"mounted with '{fsync.unsafe_option}' on n1" in verdict.because
    # If fsync was measured to have no effect on one host, the requirement fails.
    seen_missing = dataclasses.replace(LEFT, unsafe_option="volatile")
    assert judged("DURABLE-CALLS", measured(unseen, seen_missing)).reason == "not durable"


def test_durability_that_nothing_proved_is_a_reservation():
    settings = resolve({"ckpt_cluster": "16000"}, {})

    def first(*fsyncs):
        found = not_tested(settings, built_in("posix-shared"), REQUIREMENTS, [measured(*fsyncs)], has_files=True)
        return found[0]

    assert first(UNSEEN).startswith("Durability was acknowledged, not proven. The effect of fsync was not observable")
    assert "acknowledged, not proven" not in first(SEEN, AFTER)


def test_libraries_preloaded_into_ranks_are_disclosed_once():
    one, two = measured(SEEN, disclosed=("LD_PRELOAD=a.so",)), measured(SEEN, disclosed=("LD_PRELOAD=a.so", "b"))
    assert disclosures([one, two, measurement()]) == ["LD_PRELOAD=a.so", "b"]


@pytest.mark.parametrize(
    ("controller", "is_reason"), [(60.0, True), (6.0, False), (10.9, False), (11.2, True), (0.0, False)]
)
def test_a_controller_whose_clock_gives_another_length_is_a_reason(controller, is_reason):
    spans = (RankSpan(rank=3, host="n2", seconds=6.0),)
    found = ClientProofs(spans=spans, controller_seconds=controller)
    reasons = client_reasons([measurement(client_proofs=found)])
    assert bool(reasons) is is_reason
    if controller == 60.0:
        assert reasons == [
            "The clocks of rank 3 on n2 and of the controller differ: the measurement took 6 s by the one and 60 s by "
            "the other. Either a clock is wrong, or the controller's process was stopped during this time."
        ]
