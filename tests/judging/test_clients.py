"""A gate table's demands on clients.

If a demand is unmet, or if the fact that it concerns is unknown, no certificate is given.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.cli.main import main
from pytest_ckpt.judging.clients import differences, read_demand, unmet_demands
from tests.support.synthetic_run import write_run


@pytest.mark.parametrize(("demand", "fact", "holds"), [
    ("client.nconnect >= 8", "16", True),
    ("client.nconnect >= 8", "8", True),
    ("client.nconnect>=8", "4", False),
    ("client.vers >= 4.1", "4.2", True),
    ("client.vers >= 4.1", "3", False),
    ("client.vers > 4.9", "4.10", True),
    ("client.vers == 4", "4.0", True),
    ("client.proto == rdma", "rdma", True),
    ("client.proto == rdma", "tcp", False),
    ("client.proto != tcp", "rdma", True),
    ("client.mtu < 9000", "1500", True),
    ("client.nconnect >= 8", "many", None),
    ("client.kernel >= 6.8", "6.8.0-40-generic", True),
    ("client.kernel > 6.8", "6.8.0-40-generic", False),
    ("client.kernel >= 6.8", "generic-6.9", None),
    ("client.client_version >= 2.15.4", "2.15.3_ddn12", False),
    ("client.cores_near_nic == all", "all and none", False),
])  # fmt: skip
def test_numbers_are_compared_as_numbers_and_words_as_words(demand, fact, holds):
    assert read_demand(demand).is_met_by(fact) is holds


@pytest.mark.parametrize("text", [
    "nconnect >= 8", "client.nconnect", "client. >= 8", "client.nconnect >= ", "client.nconnect >= many", 8, None, [],
    "client.a >= 1 <= 2", "client.nconnect => 8",
])  # fmt: skip
def test_an_invalid_demand_is_refused_in_a_sentence(text):
    with pytest.raises(ValueError, match=r"client\.nconnect >= 8|not a number"):
        read_demand(text)


def test_every_host_has_to_have_it_and_what_is_missing_is_not_had():
    clients = {"n1": {"nconnect": "16"}, "n2": {"nconnect": "1"}, "n3": {}, "n4": {"nconnect": "x"}}
    (message,) = unmet_demands(["client.nconnect >= 8"], clients)
    assert message == (
        "The gate table demands client.nconnect >= 8, and it is 1 on n2; it is not known on n3; it is x, no number, "
        "on n4."
    )
    assert unmet_demands(["client.nconnect >= 8"], {"n1": {"nconnect": "8"}}) == []
    assert unmet_demands(["client.nconnect >= 8"], {}) == [
        "The gate table demands client.nconnect >= 8, and it is not known of any client."
    ]


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_fact_and_no_demand_ends_in_an_error(text, fact):
    try:
        demand = read_demand(f"client.{text}")
    except ValueError:
        return
    assert demand.is_met_by(fact) in (True, False, None)


def test_hosts_that_differ_are_named():
    facts = {"n1": {"mtu": "9000", "addr": "1"}, "n2": {"mtu": "1500", "addr": "2"}, "n3": {"mtu": "9000"}}
    assert differences(facts) == ["clients differ in mtu: 9000 on n1, n3; 1500 on n2"]


GATES = 'name = "ours"\nextends = "speed-only"\nclients = {}\n'


@pytest.fixture
def judged(tmp_path, capsys):
    """Return a function that judges a run with a gate table that contains the given demands on clients.

    The function returns (exit code, document or None, standard error). The host of the run has 64 cores. Its other
    facts are unknown.
    """

    def run(*demands):
        gates = tmp_path / "ours.toml"
        gates.write_text(GATES.format(json.dumps(demands)))
        write_run(tmp_path / "run", save=0.001, load=0.001)
        code = main(["judge", str(tmp_path / "run"), f"--ckpt-gate-table={gates}", "--json"])
        printed = capsys.readouterr()
        return code, json.loads(printed.out) if printed.out else None, printed.err

    return run


def test_a_demand_that_is_met_changes_nothing(judged):
    code, document, _ = judged("client.cores >= 64", "client.memory_gib >= 1024")
    assert code == 0
    assert not any("The gate table demands" in reason for reason in document["grade_reasons"])
    assert document["gate_table"]["clients"] == ["client.cores >= 64", "client.memory_gib >= 1024"]


@pytest.mark.parametrize(
    ("demand", "message"),
    [
        ("client.cores >= 65", "it is 64 on n1"),
        ("client.nconnect >= 8", "it is not known on n1"),
        ("client.kernel >= 6.9", "it is 6.8.0 on n1"),
        ("client.cpu >= 8", "it is EPYC, no number, on n1"),
    ],
)
def test_a_demand_that_is_not_met_or_not_known_fails_the_run(judged, demand, message):
    code, document, _ = judged(demand)
    assert code == document["exit_code"] == 1
    assert f"The gate table demands {demand}, and {message}." in document["grade_reasons"]


def test_a_table_with_what_is_no_demand_is_refused(judged):
    code, document, message = judged("client.cores => 8")
    assert (code, document) == (4, None)
    assert "has no name, sign and value" in message


def test_a_table_that_demands_more_is_not_relaxed_and_passes_its_demands_on():
    from pytest_ckpt.config.gate_files import built_in  # noqa: PLC0415
    from pytest_ckpt.grading.catalogue import known_names  # noqa: PLC0415
    from pytest_ckpt.judging.gates import read_gates  # noqa: PLC0415

    text = 'name = "ours"\nextends = "posix-shared"\nclients = ["client.nconnect >= 8"]\n'
    gates = read_gates(text, known_names(), built_in)
    assert gates.clients == ("client.nconnect >= 8",)
    assert gates.certifies
    assert gates.relaxed == ()
