"""Texts of a report: why a result may not apply to a real array, and what was not tested."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.observation import EVIDENCE_OF_CUTS, POWER_CUTS, Observation
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.grading.reservations import is_projectable, not_tested, relevance
from pytest_ckpt.grading.scope import scope_of
from pytest_ckpt.sizing.plan import plan_run
from tests.support.synthetic_measurement import measurement
from tests.support.synthetic_target import mounted

EXT4 = "a file system of one host (ext4)"
LARGE = {"size": 8_000_000_000, "hosts": ("n1", "n2", "n3", "n4"), "saves": (20.0,), "loads": (20.0,)}


def relevance_of(*, of_one_host="", changed=None, recorders=(), files=(), **asked):
    settings = resolve({"ckpt_engine": "torch", "ckpt_cluster": "16000", "ckpt_model": "llama3-8b", **asked}, {})
    return relevance(
        plan_run(settings, mounted("nfs4")), [measurement(**LARGE | (changed or {}))], of_one_host, recorders, files
    )


def test_a_large_run_of_the_workload_from_several_hosts_has_no_reservation():
    assert relevance_of() == []


@pytest.mark.parametrize(("how", "sentence"), [
    ({"of_one_host": EXT4}, "The target is a file system of one host (ext4): 16,000 accelerators cannot share it."),
    ({"of_one_host": "an object store of one host"}, "The target is an object store of one host: 16,000 accelerators"),
    ({"changed": {"hosts": ("n1",)}}, "One host was the only client, for a cluster of 16,000 accelerators."),
    ({"changed": {"size": 2_370_000}}, "was 592 kB a host, less than 1 GB."),
    ({"changed": {"saves": (0.04,)}}, "The slowest save of a checkpoint took 40 ms, less than 1 s."),
    ({"ckpt_save_budget": "99%"}, "The save budget of 99 % was set by the operator; usual are 0.5 % to 20 %."),
    ({"ckpt_load_budget": "0.1%"}, "The load budget of 0.1 % was set by the operator; usual are 0.5 % to 20 %."),
    (
        {"ckpt_failures": "mttf:1600000h"},
        "The failure rate 'mttf:1600000h' was stated by the operator: a save may take 15 min.",
    ),
    ({"recorders": ("plugin pytest-timeout 2.4.0", "conftest /a/conftest.py")}, "results (conftest /a/conftest.py)"),
    ({"files": ("/a/image",)}, "The target is stored in a file of this host (/a/image)"),
    ({"ckpt_failures": "observed:1/3650d@16000"}, "nearly any storage meets it."),
    ({"ckpt_cluster": "5000000"}, "saves are judged by latency."),
])  # fmt: skip
def test_each_limit_on_the_significance_of_a_result_is_reported(how, sentence):
    found = relevance_of(**how)
    assert any(sentence in one for one in found), found


def test_one_host_or_a_local_disk_is_no_caveat_for_a_cluster_of_one_host():
    assert relevance_of(of_one_host=EXT4, changed={"hosts": ("n1",)}, ckpt_cluster="8") == [
        "The save limit is 15.5 h: nearly any storage meets it."
    ]


def untried_of(kind="nfs4", *, has_files=True, **asked):
    settings = dataclasses.replace(resolve({"ckpt_cluster": "16000", **asked}, {}), suites=("performance",))
    gates = built_in("posix-shared")
    return not_tested(settings, gates, REQUIREMENTS, [measurement()], has_files=has_files)


def test_untried_checks_are_named_with_their_option_and_risk():
    found = untried_of()
    power_cut = "actions [power_cut] command"
    for option in (power_cut, "second-mount", "small-volume", "suite=conformance", "suite=contention"):
        assert any(f"Option: --ckpt-{option}." in one and ", so " in one for one in found), (option, found)
    given = untried_of(ckpt_power_cut="cut", ckpt_second_mount="/mnt/b", ckpt_small_volume="/mnt/small")
    assert not any(option in one for one in given for option in (power_cut, "second-mount", "small-volume"))


def test_an_object_store_needs_no_power_cut_and_no_full_volume():
    assert not any("power" in one or "volume was filled" in one for one in untried_of(has_files=False))


@pytest.mark.parametrize(("changed", "expected"), [
    ({}, True),
    ({"saves": (20.0, 0.99)}, True),
    ({"saves": (0.99,)}, False),
    ({"loads": (0.99,)}, False),
    ({"size": 3_999_999_999}, False),
    ({"size": 4_000_000_000}, True),
])  # fmt: skip
def test_a_cluster_follows_from_a_second_and_a_gigabyte_a_host(changed, expected):
    assert is_projectable(measurement(**LARGE | changed)) is expected


@pytest.mark.parametrize(("method", "has_files", "is_told"), [
    ("marker", True, True), ("rename", True, False), ("marker", False, False),
])  # fmt: skip
def test_a_target_that_renames_no_directory_is_reported(method, has_files, is_told):
    settings = resolve({"ckpt_cluster": "16000"}, {})
    by = measurement()
    by = dataclasses.replace(by, durability=dataclasses.replace(by.durability, commit_methods=(method,)))
    told = not_tested(settings, built_in("gateway"), REQUIREMENTS, [by], has_files=has_files)
    assert any(text.startswith("The target refuses to rename a directory: a marker file") for text in told) is is_told


def test_the_evidence_of_power_cuts_is_reported():
    settings = resolve(
        {"ckpt_engine": "torch", "ckpt_cluster": "16000", "ckpt_model": "llama3-8b", "ckpt_power_cut": "cut"}, {}
    )
    seen = Observation(requirement="DURABLE", subject="power-cut", facts={EVIDENCE_OF_CUTS: "Of 3 cuts, it was gone"})
    told = not_tested(settings, built_in("posix-local"), REQUIREMENTS, [measurement()], [seen], has_files=True)
    assert told[0] == (
        "That the power was cut rests on the operator's command (--ckpt-actions [power_cut] command). Of 3 "
        "cuts, it was gone."
    )
    assert not any(sentence.startswith("Power cuts: ") for sentence in told)
    bound = dataclasses.replace(seen, facts=seen.facts | {POWER_CUTS: "3, none lost: at most 63.2 % lose anything"})
    told = not_tested(settings, built_in("posix-local"), REQUIREMENTS, [measurement()], [bound], has_files=True)
    assert told[1] == "Power cuts: 3, none lost: at most 63.2 % lose anything."


@pytest.mark.parametrize(("asked", "ends"), [
    ({}, "strategy sync"),
    ({"ckpt_save_budget": "99%"}, ", save budget 99 %"),
    ({"ckpt_load_budget": "0.1%"}, ", load budget 0.1 %"),
    ({"ckpt_failures": "mttf:1600000h"}, ", failure rate 'mttf:1600000h'"),
])  # fmt: skip
def test_the_headline_names_unusual_inputs(asked, ends):
    settings = resolve({"ckpt_engine": "torch", "ckpt_cluster": "16000", "ckpt_model": "llama3-8b", **asked}, {})
    plan = plan_run(settings, mounted("nfs4"))
    assert scope_of(plan, settings, built_in("posix-shared")).text.endswith(ends)
