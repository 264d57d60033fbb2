"""The exact scope of a verdict, the models that a certificate requires, and the reasons that prevent a certificate."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.settings import Settings
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.grading.catalogue import REQUIREMENTS, chosen_suites
from pytest_ckpt.grading.grading import Judgement, judge_run
from pytest_ckpt.grading.obstacles import (
    cache_visibility_before_writes,
    not_given,
    obstacles,
    possible_grade,
    shortfalls,
    unmeasured,
)
from pytest_ckpt.grading.scope import missing_model, scope_of
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.sizing.plan import Plan, plan_run
from tests.support.synthetic_measurement import measurement
from tests.support.synthetic_target import mounted

SPEED = dataclasses.replace(built_in("speed-only"), certifies=True)
UP_TO_405B = dataclasses.replace(SPEED, up_to="llama3-405b")


def run_of(models: str, *, kind: str = "ext4", gates: Gates = SPEED, **asked: str) -> tuple[Plan, Settings, Gates]:
    settings = resolve({"ckpt_engine": "torch", "ckpt_cluster": "16000", "ckpt_model": models, **asked}, {})
    settings = dataclasses.replace(settings, suites=chosen_suites(settings, gates))
    return plan_run(settings, mounted(kind)), settings, gates


def all_met(plan: Plan, settings: Settings, gates: Gates) -> Judgement:
    verdicts = [
        Verdict(id=r.id, subject=str(c.subject), severity=r.severity, outcome="met", reason="met", measured=None,
                limit=None, unit="", margin=None, because="It is met.", detail="")
        for c in plan.runnable
        for r in REQUIREMENTS.values()
        if r.suite == "performance"
    ]  # fmt: skip
    return judge_run(plan, settings, gates, verdicts)


@pytest.mark.parametrize(
    ("models", "asked", "text"),
    [
        ("llama3-8b", {}, "checkpoints of llama3-8b only (112 GB), engine torch, strategy sync"),
        (
            "llama3-8b", {"ckpt_engine": "stream"},
            "checkpoints of llama3-8b only (112 GB), engine stream, strategy sync",
        ),
        (
            "llama3-8b,llama3-70b", {"ckpt_ranks": "64"},
            "checkpoints up to llama3-70b (978 GB), engine torch, strategy sync",
        ),
        (
            "llama3-8b,llama3-70b", {},
            "checkpoints up to llama3-70b (122 GB, the share of 8 of its 64 ranks), engine torch, strategy sync",
        ),
        (
            "llama3-8b", {"ckpt_mode": "open", "ckpt_ranks": "2"},
            "checkpoints of llama3-8b only (112 GB, spread over 2 ranks), engine torch, strategy sync",
        ),
    ],
)  # fmt: skip
def test_the_headline_names_model_size_engine_and_strategy(models: str, asked: dict[str, str], text: str) -> None:
    scope = scope_of(*run_of(models, **asked))
    assert scope.text == text
    assert scope.accelerators == 16_000
    assert [c.bytes for c in scope.checkpoints] == sorted(c.bytes for c in scope.checkpoints)


@pytest.mark.parametrize(
    ("way", "ends"),
    [
        ("O_DIRECT, around the client's page cache", "strategy sync"),
        ("O_DIRECT for 99.5 % of the bytes; the others through the client's page cache", "strategy sync"),
        ("not direct: the target refuses O_DIRECT: Invalid argument", "I/O of engine stream not direct"),
        ("O_DIRECT, around the client's page cache | not direct: on a host", "I/O of engine stream not direct"),
    ],
)
def test_the_headline_states_that_io_was_not_direct(way: str, ends: str) -> None:
    plan, settings, gates = run_of("llama3-8b")
    found = measurement(subject=plan.runnable[0].subject, engine="stream", engine_facts={"direct": way})
    assert scope_of(plan, settings, gates, [found]).text.endswith(f", {ends}")


def test_a_scope_is_of_the_full_size_whatever_the_scale() -> None:
    whole, reduced = (scope_of(*run_of("llama3-8b", ckpt_scale=scale)) for scale in ("1", "1/1000"))
    assert whole.checkpoints == reduced.checkpoints


def test_a_run_of_smaller_models_than_the_gates_ask_is_incomplete() -> None:
    run = run_of("llama3-8b", gates=UP_TO_405B)
    judgement = all_met(*run)
    assert (judgement.grade, judgement.exit_code) == ("incomplete", 8)
    (reason,) = judgement.reasons
    assert "--ckpt-model=llama3-405b" in reason


def obstacle(model, **asked):
    plan, _, gates = run_of(model, **asked)
    return missing_model(plan, gates)


def test_the_share_of_one_node_is_no_checkpoint_of_shared_storage() -> None:
    shared = {"kind": "nfs4", "gates": UP_TO_405B, "ckpt_mode": "subset"}
    assert obstacle("llama3-405b", **shared)
    assert not obstacle("llama3-405b", gates=UP_TO_405B)


def test_a_rehearsal_may_use_the_models_that_it_likes() -> None:
    judgement = all_met(*run_of("llama3-8b", gates=UP_TO_405B, ckpt_scale="1/10"))
    assert (judgement.grade, judgement.exit_code) == ("rehearsal", 0)


@pytest.mark.parametrize(
    ("asked", "kind"),
    [({"ckpt_gate_table": "posix-shared"}, "ext4"), ({"ckpt_hosts": "a:4,b:4"}, "ext4"), ({}, "nfs4")],
    ids=["gates", "hosts", "mount"],
)
@pytest.mark.parametrize(("model", "gigabytes_per_second"), [("llama3-405b", 204), ("llama3-1t", 595)])
def test_shared_storage_must_meet_the_demand_of_the_cluster(
    asked: dict[str, str], kind: str, model: str, gigabytes_per_second: int
) -> None:
    """The full rate of the cluster is required if the mount, the gate table or the hosts indicate shared storage.

    For local storage, only the rate of a subset of eight ranks is required.
    """
    plan, _, _ = run_of(model, kind=kind, **asked)
    (planned,) = plan.checkpoints
    assert planned.layout.mode == "full"
    assert round(planned.demand.save_bytes_per_second / 1e9) == gigabytes_per_second
    assert "8 were requested" in planned.not_run


def test_all_obstacles_are_reported_at_once_each_with_what_removes_it() -> None:
    run = run_of("llama3-8b", gates=built_in("posix-shared"), ckpt_profile="smoke", ckpt_suite="performance")
    found = obstacles(*run)
    text = "\n".join(o.line for o in found)
    assert possible_grade(found) == "rehearsal"
    for word in ("0.001 of the full size", "3 saves and loads", "Conformance suite not selected",
                 "Contention suite not selected", "--ckpt-profile=acceptance", "--ckpt-suite=auto"):  # fmt: skip
        assert word in text


@pytest.mark.parametrize(
    ("scale", "by_latency", "larger"),
    [
        ("0.001", "27.8 ms", "--ckpt-scale=0.036 gives it 1 s."),
        ("0.035", "974 ms", "--ckpt-scale=0.036 gives it 1 s."),
        ("0.037", "", ""),
    ],
)
def test_limits_under_a_second_get_a_note_on_latency_and_a_sufficient_scale(
    scale: str, by_latency: str, larger: str
) -> None:
    plan, settings, gates = run_of("llama3-8b", ckpt_scale=scale)
    (short,) = [s for s in shortfalls(plan, settings, gates) if "of the full size" in s.now]
    text = f" A save within {by_latency} is judged by latency." if by_latency else ""
    assert short.now == f"Checkpoints at {scale} of the full size.{text}{larger and ' ' + larger}"
    assert " limits were judged by bandwidth. Small checkpoints need more requests: up to " in short.reason
    assert short.reason.endswith(
        f" times as many per GB as at full size (one per file, one per 4 MiB of a tensor).{text}"
    )


@pytest.mark.parametrize(("scale", "times"), [("1/2", "1"), ("1/10", "1.01"), ("1/1000", "1.74")])
def test_a_reduced_scale_reports_how_many_more_requests_it_makes_for_each_byte(scale: str, times: str) -> None:
    (short,) = [s for s in shortfalls(*run_of("llama3-8b", ckpt_scale=scale)) if "of the full size" in s.now]
    assert f" Small checkpoints need more requests: up to {times} times as many per GB as at" in short.reason
    assert not [s for s in shortfalls(*run_of("llama3-8b")) if "Requests" in s.reason]


def test_if_no_scale_is_sufficient_the_full_size_is_named() -> None:
    plan, settings, gates = run_of("llama3-8b", ckpt_scale="0.001", ckpt_cluster="100000000")
    assert any("Only checkpoints of full size" in s.now for s in shortfalls(plan, settings, gates))


def test_missing_inputs_of_a_run_are_reported_with_their_option() -> None:
    found = obstacles(*run_of("llama3-405b", gates=built_in("posix-shared"), ckpt_ranks="512"))
    assert possible_grade(found) == "incomplete"
    assert {o.remedy.partition(",")[0].partition(":")[0] for o in found} == {
        "--ckpt-second-mount", "--ckpt-small-volume"
    }  # fmt: skip


def test_a_cache_that_nobody_can_see_is_an_obstacle_where_cold_is_required() -> None:
    run = run_of("llama3-8b")
    (blind,) = obstacles(*run, cache_visibility="blind")
    assert (blind.grade, "COLD" in blind.text, "page cache" in blind.remedy) == ("incomplete", True, True)
    assert obstacles(*run, cache_visibility="seen") == obstacles(*run, cache_visibility="not_tested") == []
    behaviour = run_of("llama3-8b", ckpt_suite="conformance")
    assert "COLD" not in "".join(o.text for o in obstacles(*behaviour, cache_visibility="blind"))


@pytest.mark.parametrize("kind", ["tmpfs", "ramfs"])
def test_a_target_in_memory_is_an_obstacle_where_cold_is_required(kind: str) -> None:
    assert cache_visibility_before_writes(mounted(kind)) == "memory"
    run = run_of("llama3-8b", kind=kind)
    (found,) = obstacles(*run, cache_visibility="memory")
    assert found.line.startswith("COLD will fail: the target is memory of this host")
    assert "--ckpt-target" in found.remedy
    assert possible_grade([found]) == "not certified"
    behaviour = run_of("llama3-8b", kind=kind, ckpt_suite="conformance")
    assert "COLD will fail" not in "".join(o.text for o in obstacles(*behaviour, cache_visibility="memory"))
    unbound = dataclasses.replace(SPEED, kinds={**SPEED.kinds, "COLD": "off"})
    assert not obstacles(*run_of("llama3-8b", kind=kind, gates=unbound), cache_visibility="memory")
    assert cache_visibility_before_writes(mounted("ext4")) == "not_tested"


def test_a_target_s_word_on_caches_is_an_obstacle_where_the_gates_want_more() -> None:
    word = "the target's declaration"
    run = run_of("llama3-8b", gates=built_in("object"))
    (seen,) = (o for o in obstacles(*run, cache_visibility="declared") if word in o.text)
    assert (seen.grade, "--ckpt-hosts" in seen.remedy, "--ckpt-client-cache" in seen.remedy) == (
        "incomplete",
        True,
        True,
    )
    for gates, more in (
        ("object", {"ckpt_hosts": "a:4,b:4"}),
        ("object", {"ckpt_client_cache": "1GiB"}),
        ("object-local", {}),
    ):
        found = obstacles(*run_of("llama3-8b", gates=built_in(gates), **more), cache_visibility="declared")
        assert not [o for o in found if word in o.text]


def test_a_run_without_obstacles_can_be_certified() -> None:
    assert possible_grade(obstacles(*run_of("llama3-8b"))) == "certified"


# Requirements that need a command: its suite, its options, and the message if the command is missing.
GIVEN = {
    "FAILOVER": (
        "failover",
        {"ckpt_fault_command": "fail-drive 7", "ckpt_repair_command": "replace-drive 7"},
        "No command was given that breaks a component (--ckpt-actions [failover]",
    ),
    "UPGRADE": (
        "maintenance",
        {"ckpt_upgrade_command": "rolling-restart"},
        "No command was given that restarts or upgrades the storage (--ckpt-actions [upgrade] command",
    ),
    "SNAPSHOT": (
        "maintenance",
        {"ckpt_snapshot": "take", "ckpt_remove_snapshot": "remove"},
        "No commands were given that take and remove a snapshot (--ckpt-actions [snapshot]",
    ),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_requirement_that_lacks_its_input_is_reported_before_the_run_and_gates_nothing(name: str) -> None:
    suite, _, missing = GIVEN[name]
    shared = built_in("posix-shared")
    plan, settings, gates = run_of("llama3-8b", gates=shared)
    (sentence,) = (s for s in not_given(settings, gates) if s.startswith(name))
    assert sentence.startswith(f"{name} will not run: {missing}")
    assert suite not in settings.suites
    assert not [o for o in obstacles(plan, settings, gates) if name in o.text]
    judgement = all_met(plan, settings, gates)
    (verdict,) = (v for v in judgement.verdicts if v.id == name)
    assert (verdict.severity, verdict.outcome, verdict.reason) == ("advisory", "not run", "not given")
    assert not [reason for reason in judgement.reasons if name in reason]


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("kind", ["posix-shared", "posix-local"])
def test_a_command_makes_it_required(kind: str, name: str) -> None:
    suite, options, _ = GIVEN[name]
    plan, settings, gates = run_of("llama3-8b", gates=built_in(kind), **options)
    assert not [s for s in not_given(settings, gates) if s.startswith(name)]
    assert suite in settings.suites
    judgement = all_met(plan, settings, gates)
    (verdict,) = (v for v in judgement.verdicts if v.id == name)
    assert (verdict.severity, verdict.outcome) == ("required", "not run")
    assert [reason for reason in judgement.reasons if f"{name} did not run" in reason]


def test_a_table_that_requires_no_optional_inputs_reports_none() -> None:
    _, settings, gates = run_of("llama3-8b", gates=built_in("posix-local"))
    assert not not_given(settings, gates)


OWN = "vocabulary = 128256\nheads = 128\nhidden = 16384\nfeed_forward = 53248\n"
PARALLEL = "[parallel]\ntensor = 8\npipeline = 2\ndata = 2\nzero = 1\n"


def test_a_user_s_model_is_named_by_file_size_and_digest(tmp_path) -> None:
    (tmp_path / "mine.toml").write_text(OWN + "layers = 2\n" + PARALLEL)
    plan, settings, gates = run_of(str(tmp_path / "mine.toml"), ckpt_ranks="32")
    (model,) = settings.models
    text = f"checkpoints of own model mine.toml ({model.parameters:,} parameters, digest {model.digest[:12]}) only ("
    assert scope_of(plan, settings, gates).text.startswith(text)


@pytest.mark.parametrize(
    ("layers", "precision", "is_held"),
    [
        (127, "", True),
        (40, "", False),
        # As many parameters, but half of the bytes.
        (127, '[precision]\nweights = "float8"\noptimizer = ["bfloat16", "bfloat16", "bfloat16"]\n', False),
    ],
)
def test_a_user_s_model_holds_the_place_of_a_smaller_one_in_bytes_too(tmp_path, layers, precision, is_held) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(OWN + f"layers = {layers}\nkey_value_heads = 8\n" + precision + PARALLEL)
    assert (obstacle(str(file), ckpt_ranks="32", gates=UP_TO_405B) is None) is is_held


def test_a_user_s_model_of_few_ranks_has_no_subset(tmp_path) -> None:
    (tmp_path / "mine.toml").write_text(OWN + "layers = 2\n[parallel]\ndata = 4\nzero = 3\n")
    plan, _, _ = run_of(f"{tmp_path}/mine.toml,llama3-8b", ckpt_mode="subset")
    assert [bool(c.not_run) for c in plan.checkpoints] == [False, True]
    assert "has no subset" in plan.checkpoints[1].not_run
    plan, _, _ = run_of(f"{tmp_path}/mine.toml")
    assert plan.checkpoints[0].layout.mode == "full"


def test_a_strategy_that_no_chosen_suite_measures_is_reported() -> None:
    """If the chosen suites do not measure a strategy, a sentence names a suite that does."""
    asked = {"ckpt_strategy": "sync,async", "ckpt_engine": "stream"}
    plan, settings, gates = run_of("llama3-8b", ckpt_suite="strategies", **asked)
    # Plain saves are measured for comparison with the background saves.
    assert not unmeasured(plan, settings, gates)
    alone = run_of("llama3-8b", ckpt_suite="strategies", ckpt_strategy="sync", ckpt_engine="stream")
    (sentence,) = unmeasured(*alone)
    assert "/stream will not be measured" in sentence
    assert sentence.endswith("Use --ckpt-suite=performance,strategies.")
    # Nothing is unmeasured with a preemption notice, with both suites, or if no suite is named.
    assert not unmeasured(*run_of("llama3-8b", ckpt_suite="strategies", ckpt_preemption_notice="120s", **asked))
    assert not unmeasured(*run_of("llama3-8b", ckpt_suite="performance,strategies", **asked))
    assert not unmeasured(*run_of("llama3-8b", **asked))
    assert not unmeasured(*run_of("llama3-8b", ckpt_suite="conformance", **asked))
