"""``pytest-ckpt judge`` on one published result: the slowest rank decides, and there is no certificate."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.support import resources
from tests.support.published_documents import messages_by_path, outcomes, reason_for, values_by_kind
from tests.support.synthetic_results import SyntheticRun, published

NOT_SHOWN = {"INTEGRITY", "COLD", "DURABLE-CALLS"}


def test_all_ranks_are_judged_by_the_slowest_and_yet_nothing_is_certified(judge, tmp_path):
    run = SyntheticRun()
    code, document, _ = judge(run.write(tmp_path / "run"))
    assert code == document["exit_code"] == 8
    assert document["grade"] == "incomplete"
    found = outcomes(document)
    assert {i for i, outcome in found.items() if outcome == "not run" and i in NOT_SHOWN} == NOT_SHOWN
    assert (found["SAVE"], found["LOAD"], found["STRAGGLER"], found["REPEAT"]) == ("met", "met", "met", "met")
    assert "stored under a name that its save never reads" in reason_for(document, "DURABLE-CALLS")
    (measurement,) = document["measurements"]
    assert measurement["basis"] == "all ranks"
    assert [o["seconds"] for o in measurement["operations"]] == run.slowest("save") + run.slowest("load")
    assert len(measurement["operations"][0]["rank_seconds"]) == 8


def test_rank_0_alone_is_inferred_and_never_more_than_a_rehearsal(judge, lines, tmp_path):
    run = SyntheticRun()
    directory = run.write(tmp_path / "run", ranks=[0])
    code, document, _ = judge(directory)
    assert (code, document["grade"]) == (8, "rehearsal")
    assert any("was inferred from rank 0's times" in r for r in document["grade_reasons"])
    assert any("is not known, only rank 0's own time" in r for r in document["grade_reasons"])
    assert document["measurements"][0]["basis"] == "inferred from rank 0"
    assert outcomes(document)["SAVE"] == "met"
    assert "Only 1 of 8 ranks" in reason_for(document, "STRAGGLER")
    save = values_by_kind(document)["save"]
    assert save["published_seconds"] == pytest.approx(5.0)
    assert save["judged_seconds"] == pytest.approx(5.3, abs=0.002)
    assert save["overstatement"] == pytest.approx(0.06, abs=0.001)
    assert save["basis"] == "9 inferred from rank 0, 1 at most"
    output = lines(directory)
    assert "save 5 s 5.3 s +6 % 5.3 s 9 inferred from rank 0, 1 at most" in output
    assert "load 4 s 4.3 s +7.5 % 4.3 s 9 inferred from rank 0, 1 rank 0 only" in output
    assert "1 of 8 ranks" in output


def test_the_verdict_flips_where_rank_0_is_fast_and_another_is_not(judge, tmp_path):
    run = SyntheticRun(seconds=lambda kind, _n, rank: 40.0 if (kind, rank) == ("save", 7) else 20.0)
    for name, ranks, grade in (("all", None, "not certified"), ("alone", [0], "rehearsal")):
        code, document, _ = judge(run.write(tmp_path / name, ranks=ranks))
        assert (code, document["grade"]) == (1, grade)
        assert outcomes(document)["SAVE"] == "failed"
        assert values_by_kind(document)["save"]["published_seconds"] == pytest.approx(20.0)
        assert values_by_kind(document)["save"]["overstatement"] == pytest.approx(1.0, abs=0.001)


def test_no_table_of_gates_makes_a_certificate_of_it(judge, tmp_path):
    gates = tmp_path / "nothing.toml"
    off = "\n".join(f'{name} = {{ gate = "off" }}' for name in ("INTEGRITY", "COLD", "DURABLE-CALLS"))
    gates.write_text(f'name = "nothing"\nextends = "speed-only"\n[requirements]\n{off}\n')
    speed_only = Path(resources.directory("templates") / "gates" / "speed-only.toml")
    assert "certifies = false" in speed_only.read_text()
    directory = SyntheticRun().write(tmp_path / "run")
    assert judge(directory, f"--ckpt-gate-table={gates}")[1]["grade"] == "rehearsal"
    asked = {r.id for r in REQUIREMENTS.values() if r.suite in ("conformance", "contention", "endurance")}
    off += "\n" + "\n".join(f'{name} = {{ gate = "off" }}' for name in asked)
    gates.write_text(f'name = "nothing"\nextends = "posix-shared"\n[requirements]\n{off}\n')
    code, document, _ = judge(directory, f"--ckpt-gate-table={gates}")
    assert (code, document["grade"]) == (0, "rehearsal")
    assert "weaker than a certificate needs" in document["grade_reasons"][0]


def test_other_gates_name_what_was_not_tested(judge, tmp_path):
    _, document, _ = judge(SyntheticRun().write(tmp_path / "run"), "--ckpt-gate-table=posix-shared")
    assert reason_for(document, "COMMIT") == "DLIO does not test this."
    assert document["grade"] == "incomplete"


def test_the_same_times_meet_a_smaller_cluster_and_miss_a_larger_one(judge, tmp_path):
    directory = SyntheticRun().write(tmp_path / "run")
    serves = judge(directory)[1]["sufficient_up_to_accelerators"][0]["overall"]
    assert outcomes(judge(directory, cluster=serves)[1])["SAVE"] == "met"
    assert outcomes(judge(directory, cluster=serves + 1)[1])["SAVE"] == "failed"


def test_one_operation_alone_has_only_rank_0s_time(judge, tmp_path):
    _, document, _ = judge(SyntheticRun(saves=1, loads=0).write(tmp_path / "run", ranks=[0]))
    assert document["measurements"][0]["basis"] == "rank 0 only"
    assert document["grade"] == "rehearsal"
    assert values_by_kind(document)["save"]["overstatement"] is None
    assert any("acceptance needs 10" in r for r in document["grade_reasons"])


def test_the_verdict_on_a_read_only_run_mentions_that_it_has_no_save(judge, lines, tmp_path):
    directory = SyntheticRun(saves=0).write(tmp_path / "run")
    code, document, _ = judge(directory)
    assert code == 8
    assert (outcomes(document)["SAVE"], outcomes(document)["LOAD"]) == ("not run", "met")
    assert reason_for(document, "SAVE") == "The result contains no saves: they belong to another run."
    assert document["sufficient_up_to_accelerators"][0]["load"] > 0
    assert document["sufficient_up_to_accelerators"][0]["overall"] is None
    assert "not in this result" in lines(directory)


def test_the_phases_may_be_two_runs(judge, tmp_path):
    start = SyntheticRun().started
    write = published(tmp_path, "Maker", "array", "llama3-8b", "20260301_120000")
    read = published(tmp_path, "Maker", "array", "llama3-8b", "20260301_130000")
    SyntheticRun(loads=0).write(write, ranks=[0])
    SyntheticRun(saves=0, started=start + timedelta(hours=1)).write(read)
    code, document, _ = judge(tmp_path)
    assert (code, document["grade"]) == (8, "rehearsal")
    assert document["published"]["system"] == "Maker array"
    assert len(document["published"]["runs"]) == 2
    assert values_by_kind(document)["save"]["basis"] == "9 inferred from rank 0, 1 rank 0 only"
    assert values_by_kind(document)["load"]["basis"] == "all ranks"
    assert (outcomes(document)["SAVE"], outcomes(document)["LOAD"]) == ("not run", "met")
    assert reason_for(document, "SAVE") == (
        "The recorded times met 27.8 s. Save 10 may have missed it: its slowest process is not known."
    )


def test_phases_beside_each_other_are_put_together_by_their_checkpoint_folder(judge, tmp_path):
    SyntheticRun(loads=0).write(tmp_path / "results_write" / "a")
    SyntheticRun(saves=0, started=SyntheticRun().started + timedelta(hours=1)).write(tmp_path / "results_read" / "b")
    _, document, _ = judge(tmp_path)
    assert document["measurements"][0]["basis"] == "all ranks"
    assert len(document["measurements"][0]["operations"]) == 20


def test_clock_differences_are_reported_and_change_no_verdict(judge, tmp_path):
    straight = judge(SyntheticRun().write(tmp_path / "straight"))[1]
    directory = SyntheticRun(offsets={1: 1.5, 4: -3600.0}).write(tmp_path / "skewed")
    skewed = judge(directory)[1]
    assert [o["seconds"] for o in skewed["measurements"][0]["operations"]] == [
        o["seconds"] for o in straight["measurements"][0]["operations"]
    ]
    assert "clocks differ by" in messages_by_path(skewed["published"])["."]
