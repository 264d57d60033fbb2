"""Every required row of a built-in gate table has a reason: derived, published, or relied on by a library."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pytest

from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.gate_tables import GATE_TABLES
from pytest_ckpt.facts.observation import Anomaly, Observation
from pytest_ckpt.facts.targets import MOUNTED
from pytest_ckpt.grading.catalogue import REQUIREMENTS, known_names
from pytest_ckpt.judging.gates import GateDefault, Gates
from pytest_ckpt.judging.reasons import REASONS, Derived, Published, Reason, ReliedOn, is_default_limit, reason_of
from pytest_ckpt.judging.verdicts import decide_observed
from pytest_ckpt.sizing.plan import plan_run

OF_STORES = frozenset(("objects", "parts of S3"))


def without_reason(gates: Gates, known: Mapping[str, GateDefault], reasons: Sequence[Reason] = REASONS) -> list[str]:
    """Return the required rows of a gate table that have no reason.

    Rows with the gate kinds "required" and "where given" count as required. ``known`` maps each requirement and check
    to its default row (`grading.catalogue.known_names`). If a requirement has checks, only its checks need reasons.
    """
    parents = {name.partition(".")[0] for name in known if "." in name}
    found = []
    for name, row in known.items():
        requirement, _, subject = name.partition(".")
        is_mandatory = gates.kind(requirement, subject, row.gate) in ("required", "where given")
        if name not in parents and is_mandatory and reason_of(requirement, subject, gates.table, reasons) is None:
            found.append(name)
    return found


def _offered(table: str) -> dict[str, GateDefault]:
    """Return the requirements and checks that apply to the kind of target for which a gate table is made."""
    offered = OF_STORES if table.startswith("object") else MOUNTED
    return {n: row for n, row in known_names().items() if REQUIREMENTS[n.partition(".")[0]].needs <= offered}


@pytest.mark.parametrize("table", GATE_TABLES)
def test_every_mandatory_row_has_a_reason(table: str) -> None:
    assert without_reason(built_in(table), _offered(table)) == []


def test_a_mandatory_row_without_a_reason_is_found() -> None:
    of = built_in("posix-shared")
    strict = dataclasses.replace(of, kinds=of.kinds | {"STALE": "required"})
    assert {name.partition(".")[0] for name in without_reason(strict, _offered(of.name))} == {"STALE"}
    fewer = [reason for reason in REASONS if reason.name != "SAVE"]
    assert without_reason(of, _offered(of.name), fewer) == ["SAVE"]


def test_every_reason_names_a_requirement_or_a_check_once() -> None:
    names = [reason.name for reason in REASONS]
    assert len(names) == len(set(names))
    assert set(names) <= set(known_names())


def test_every_reason_names_its_origin() -> None:
    for reason in REASONS:
        match reason.because:
            case Derived(inputs=inputs):
                assert "--cluster" in inputs, reason.name
            case Published(title=title, publisher=publisher, year=year, rule=rule):
                assert all((title, publisher, rule)), reason.name
                assert 2000 < year < 2100, reason.name
            case ReliedOn(library=library, version=version, call=call, loss=loss):
                assert all((library, call, loss)), reason.name
                assert version[0].isdigit(), reason.name
        assert reason.text.endswith("."), reason.name


@pytest.mark.parametrize(("table", "kind"), [("posix-shared", "advisory"), ("serving", "required")])
def test_publish_is_required_if_a_model_is_served_and_advisory_otherwise(table: str, kind: str) -> None:
    assert built_in(table).kind("PUBLISH", "marker", REQUIREMENTS["PUBLISH"].severity) == kind
    assert (reason_of("PUBLISH", "marker", table) is None) is (kind == "advisory")


@pytest.mark.parametrize("table", ["posix-shared", "serving", "posix-local", "gateway"])
def test_a_power_cut_counts_where_it_was_given(table: str) -> None:
    assert built_in(table).kind("DURABLE", "power-cut", "required") == "where given"


def test_a_limit_of_this_program_is_reported_and_decides_only_if_the_operator_set_it() -> None:
    of = built_in("serving")
    mine = dataclasses.replace(of, name="ours", extends="serving", limits=of.limits | {"PUBLISH.marker": 3.0})
    assert is_default_limit("PUBLISH", "marker", of)
    assert not is_default_limit("PUBLISH", "marker", mine)
    late = Observation(requirement="PUBLISH", subject="marker", trials=1, measured=60.0, unit="s")
    assert [decide_observed(REQUIREMENTS["PUBLISH"], late, g).severity for g in (of, mine)] == ["advisory", "required"]
    missing = Anomaly(kind="missing", where="names/7", seen="nothing", expected="the name")
    wrong = Observation(requirement="PUBLISH", subject="marker", trials=1, anomaly_count=1, anomalies=(missing,))
    verdict = decide_observed(REQUIREMENTS["PUBLISH"], wrong, of)
    assert (verdict.outcome, verdict.severity) == ("failed", "required")


def test_a_shipped_table_that_extends_another_adds_its_rows_and_is_itself_no_relaxation() -> None:
    shared, serving = built_in("posix-shared"), built_in("serving")
    assert serving.kinds == shared.kinds | {"PUBLISH": "required"}
    assert (serving.limits, serving.cold_bases, serving.certifies) == (shared.limits, shared.cold_bases, True)
    remote, near = built_in("object"), built_in("object-local")
    assert near.kinds == remote.kinds | dict.fromkeys(_of_suite("contention"), "advisory")
    assert (near.certifies, near.relaxed, near.extends, near.table) == (False, (), "", "object-local")


def _of_suite(suite: str) -> list[str]:
    return [name for name, known in known_names().items() if known.suite == suite]


def test_a_plan_by_the_table_for_serving_is_one_of_shared_storage() -> None:
    asked = {"ckpt_engine": "torch", "ckpt_cluster": "16000", "ckpt_model": "llama3-70b", "ckpt_ranks": "8"}
    modes = {}
    for table in ("posix-shared", "serving", "posix-local"):
        (planned,) = plan_run(resolve(asked | {"ckpt_gate_table": table}, {}), None).checkpoints
        modes[table] = (planned.layout.mode, bool(planned.rehearsal))
    assert modes["serving"] == modes["posix-shared"] != modes["posix-local"]
