"""A run is refused if space or memory is too small. With the options that the message proposes, the run fits."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.environment import HostFacts
from pytest_ckpt.run.fitting import check_memory, check_space
from pytest_ckpt.sizing.plan import plan_run
from pytest_ckpt.support.errors import UsageError
from tests.support.refusals import is_refusal
from tests.support.synthetic_target import mounted as on


def test_too_little_space_is_refused_with_what_is_needed_and_what_there_is(refused):
    message = refused("--ckpt-model=llama3-1t", "--ckpt-ranks=1024", "--ckpt-operations=4000",
                      expected_text=["Too little space", "4,000 checkpoints of llama3-1t-full",
                                     "GB are free"])  # fmt: skip
    assert "need 66." in message


def test_too_little_space_names_the_options_that_fit(mounted):
    found = mounted("size=2g", "--ckpt-profile=nightly", "--ckpt-model=llama3-8b")
    is_refusal(found.returncode, found.stderr, ["10 checkpoints of llama3-8b-full", "need 11.", "2.15 GB are free",
                                              "--ckpt-scale=1/", "--ckpt-profile=smoke"])  # fmt: skip
    assert found.stdout.endswith("left:\n")


def planned(**options):
    asked = resolve({"ckpt_engine": "torch", "ckpt_target": "/t", "ckpt_cluster": "16000", **options}, {})
    return asked, plan_run(asked, on("ext4"))


def test_the_models_that_fit_the_space_are_offered():
    asked, plan = planned()
    with pytest.raises(UsageError, match="10 checkpoints of llama3-1t-subset") as refusal:
        check_space(plan, asked, 1_200 << 30)
    assert "--ckpt-model=llama3-8b,llama3-70b,llama3-405b," in refusal.value.remedy


@settings(deadline=None)
@given(
    free=st.integers(min_value=1 << 24, max_value=10**16),
    profile=st.sampled_from(["acceptance", "nightly", "smoke"]),
    model=st.sampled_from(["all", "llama3-8b", "llama3-1t"]),
    processes=st.sampled_from(["8", "64", "1024"]),
    retain=st.sampled_from([{}, {"ckpt_keep_last": "2"}]),
)
def test_the_sizes_that_a_refusal_proposes_fit(free, profile, model, processes, retain):
    fields = {"ckpt_profile": profile, "ckpt_model": model, "ckpt_ranks": processes, **retain}
    asked, plan = planned(**fields)
    try:
        check_space(plan, asked, free)
    except UsageError as refusal:
        proposed = [word.rstrip(".,") for word in refusal.remedy.split() if word.startswith("--ckpt-")]
        for option in proposed:
            name, value = option.removeprefix("--").split("=")
            smaller, smaller_plan = planned(**{**fields, name.replace("-", "_"): value})
            check_space(smaller_plan, smaller, free)
        if not proposed:
            _, smallest = planned(**fields, ckpt_scale="1/1000000")
            assert smallest.space_bytes > 0.9 * free


def test_too_little_memory_is_refused_before_anything_is_written(mounted, pytester):
    maximum = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if maximum > 900 << 30:
        pytest.skip("this machine has the memory")
    torch = "--ckpt-engine=torch"
    found = mounted("size=20t", "--ckpt-model=llama3-70b", "--ckpt-mode=open", "--ckpt-ranks=8", torch)
    is_refusal(found.returncode, found.stderr, ["Too little memory on", "8 ranks", "llama3-70b-open-8",
                                              "need 98", "are available", "--ckpt-scale=1/"])  # fmt: skip
    assert found.stdout.endswith("left:\n")
    assert not (pytester.path / "ckpt-report").exists()


def host_with(name, ranks, available):
    return HostFacts(
        host=name,
        ranks=tuple(ranks),
        cpu="",
        cores=64,
        memory_bytes=2 * available,
        memory_available_bytes=available,
        kernel="",
        os="",
        python="",
        target_is_reached=True,
    )


@settings(deadline=None)
@given(gib=st.integers(min_value=8, max_value=103))
def test_the_scale_that_is_proposed_fits_the_memory(gib):
    hosts = (host_with("n1", range(8), gib << 30),)
    with pytest.raises(UsageError, match="Too little memory on n1") as refusal:
        check_memory(planned(ckpt_model="llama3-8b")[1], hosts)
    scale = refusal.value.remedy.split("--ckpt-scale=")[1].split()[0]
    check_memory(planned(ckpt_model="llama3-8b", ckpt_scale=scale)[1], hosts)


def test_no_scale_is_proposed_where_memory_does_not_depend_on_it():
    plan = planned(ckpt_model="llama3-8b", ckpt_engine="stream")[1]
    with pytest.raises(UsageError, match="Too little memory on n1") as refusal:
        check_memory(plan, (host_with("n1", range(8), 100 << 20),))
    assert "--ckpt-scale" not in refusal.value.remedy


def test_memory_is_counted_for_each_host_by_the_ranks_that_are_on_it():
    plan = planned(ckpt_model="llama3-8b")[1]
    first, second, poor = (
        host_with(name, ranks, gib << 30)
        for name, ranks, gib in (("n0", range(4), 60), ("n1", range(4, 8), 60), ("n1", range(4, 8), 40))
    )
    check_memory(plan, (first, second))
    with pytest.raises(UsageError, match="Too little memory on n1:"):
        check_memory(plan, (first, poor))
    with pytest.raises(
        UsageError, match=r"on n0, n1: 8 ranks for .* there, and 41\.9 GB are available; .* and 42\.9 GB"
    ):
        check_memory(plan, (host_with("n0", range(4), 39 << 30), poor))
