"""``pytest-ckpt judge`` on published results, through its front door: folders of every state, trees, outputs."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from pytest_ckpt.cli import main as cli
from pytest_ckpt.evidence.schemas import faults
from pytest_ckpt.judging.catalogue import REQUIREMENTS
from pytest_ckpt.support import resources
from tests.support.made_results import BYTES, GIB, MadeRun, published, steady

HEAVY = ("torch", "mpi4py", "numpy", "psutil", "jinja2")
NOT_SHOWN = {"INTEGRITY", "COLD", "DURABLE-CALLS"}


@pytest.fixture
def judge(capsys):
    """Run the command and return (exit code, document, what it said on standard error)."""

    def run(folder, *words, cluster=16000):
        code = cli.main(["judge", str(folder), f"--cluster={cluster}", "--json", *words])
        output = capsys.readouterr()
        document = json.loads(output.out, parse_constant=pytest.fail) if output.out else None
        if document:
            assert not faults(document, "report" if "grade" in document else "published")
        return code, document, output.err

    return run


@pytest.fixture
def lines(capsys):
    """Run the command and return what it prints for people, unwrapped."""

    def run(folder, *words, cluster=16000):
        cli.main(["judge", str(folder), f"--cluster={cluster}", *words])
        return " ".join(capsys.readouterr().out.split())

    return run


def outcomes(document):
    return {v["id"]: v["outcome"] for v in document["requirements"]}


def because(document, requirement):
    return next(v["because"] for v in document["requirements"] if v["id"] == requirement)


def texts(document):
    messages = document["messages"] if "messages" in document else document["published"]["messages"]
    return {m["path"]: m["text"] for m in messages}


def figures(document):
    return {f["kind"]: f for f in document["published"]["figures"]}


# --- one result ------------------------------------------------------------------------------------------------------


def test_all_ranks_are_judged_by_the_slowest_and_yet_nothing_is_certified(judge, tmp_path):
    run = MadeRun()
    code, document, _ = judge(run.write(tmp_path / "run"))
    assert code == document["exit_code"] == 8
    assert document["grade"] == "incomplete"
    found = outcomes(document)
    assert {i for i, outcome in found.items() if outcome == "not run" and i in NOT_SHOWN} == NOT_SHOWN
    assert (found["SAVE"], found["LOAD"], found["STRAGGLER"], found["REPEAT"]) == ("met", "met", "met", "met")
    assert "stored under a name that its save never reads" in because(document, "DURABLE-CALLS")
    (measurement,) = document["measurements"]
    assert measurement["basis"] == "all ranks"
    assert [o["seconds"] for o in measurement["operations"]] == run.slowest("save") + run.slowest("load")
    assert len(measurement["operations"][0]["rank_seconds"]) == 8


def test_rank_0_alone_is_inferred_and_never_more_than_a_rehearsal(judge, lines, tmp_path):
    run = MadeRun()
    folder = run.write(tmp_path / "run", ranks=[0])
    code, document, _ = judge(folder)
    assert (code, document["grade"]) == (8, "rehearsal")
    assert any("was inferred from rank 0's times" in r for r in document["grade_reasons"])
    assert any("is not known, only rank 0's own time" in r for r in document["grade_reasons"])
    assert document["measurements"][0]["basis"] == "inferred from rank 0"
    assert outcomes(document)["SAVE"] == "met"
    assert "Only 1 of 8 ranks" in because(document, "STRAGGLER")
    save = figures(document)["save"]
    assert save["published_seconds"] == pytest.approx(5.0)
    assert save["judged_seconds"] == pytest.approx(5.3, abs=0.002)
    assert save["overstatement"] == pytest.approx(0.06, abs=0.001)
    assert save["basis"] == "9 inferred from rank 0, 1 at most"
    output = lines(folder)
    assert "save 5 s 5.3 s +6 % 5.3 s 9 inferred from rank 0, 1 at most" in output
    assert "load 4 s 4.3 s +7.5 % 4.3 s 9 inferred from rank 0, 1 rank 0 only" in output
    assert "1 of 8 ranks" in output


def test_the_verdict_flips_where_rank_0_is_fast_and_another_is_not(judge, tmp_path):
    run = MadeRun(seconds=lambda kind, _n, rank: 40.0 if (kind, rank) == ("save", 7) else 20.0)
    for name, ranks, grade in (("all", None, "not certified"), ("alone", [0], "rehearsal")):
        code, document, _ = judge(run.write(tmp_path / name, ranks=ranks))
        assert (code, document["grade"]) == (1, grade)
        assert outcomes(document)["SAVE"] == "failed"
        assert figures(document)["save"]["published_seconds"] == pytest.approx(20.0)
        assert figures(document)["save"]["overstatement"] == pytest.approx(1.0, abs=0.001)


def test_no_table_of_gates_makes_a_certificate_of_it(judge, tmp_path):
    gates = tmp_path / "nothing.toml"
    off = "\n".join(f'{name} = {{ gate = "off" }}' for name in ("INTEGRITY", "COLD", "DURABLE-CALLS"))
    gates.write_text(f'name = "nothing"\nextends = "speed-only"\n[requirements]\n{off}\n')
    speed_only = Path(resources.folder("templates") / "gates" / "speed-only.toml")
    assert "certifies = false" in speed_only.read_text()
    folder = MadeRun().write(tmp_path / "run")
    assert judge(folder, f"--ckpt-gates={gates}")[1]["grade"] == "rehearsal"
    asked = {r.id for r in REQUIREMENTS.values() if r.suite in ("conformance", "contention", "endurance")}
    off += "\n" + "\n".join(f'{name} = {{ gate = "off" }}' for name in asked)
    gates.write_text(f'name = "nothing"\nextends = "posix-shared"\n[requirements]\n{off}\n')
    code, document, _ = judge(folder, f"--ckpt-gates={gates}")
    assert (code, document["grade"]) == (0, "rehearsal")
    assert "weaker than a certificate needs" in document["grade_reasons"][0]


def test_other_gates_name_what_was_not_tested(judge, tmp_path):
    _, document, _ = judge(MadeRun().write(tmp_path / "run"), "--ckpt-gates=posix-shared")
    assert because(document, "COMMIT") == "DLIO does not test this."
    assert document["grade"] == "incomplete"


def test_the_same_times_meet_a_smaller_cluster_and_miss_a_larger_one(judge, tmp_path):
    folder = MadeRun().write(tmp_path / "run")
    serves = judge(folder)[1]["certified_cluster"][0]["overall"]
    assert outcomes(judge(folder, cluster=serves)[1])["SAVE"] == "met"
    assert outcomes(judge(folder, cluster=serves + 1)[1])["SAVE"] == "failed"


def test_one_operation_alone_has_only_rank_0s_time(judge, tmp_path):
    _, document, _ = judge(MadeRun(saves=1, loads=0).write(tmp_path / "run", ranks=[0]))
    assert document["measurements"][0]["basis"] == "rank 0 only"
    assert document["grade"] == "rehearsal"
    assert figures(document)["save"]["overstatement"] is None
    assert any("acceptance needs 10" in r for r in document["grade_reasons"])


def test_a_read_only_run_says_that_it_holds_no_save(judge, lines, tmp_path):
    folder = MadeRun(saves=0).write(tmp_path / "run")
    code, document, _ = judge(folder)
    assert code == 8
    assert (outcomes(document)["SAVE"], outcomes(document)["LOAD"]) == ("not run", "met")
    assert because(document, "SAVE") == "The result holds no save: those are another run's."
    assert document["certified_cluster"][0]["load"] > 0
    assert document["certified_cluster"][0]["overall"] is None
    assert "none in this result" in lines(folder)


def test_the_phases_may_be_two_runs(judge, tmp_path):
    start = MadeRun().started
    write = published(tmp_path, "Maker", "array", "llama3-8b", "20260301_120000")
    read = published(tmp_path, "Maker", "array", "llama3-8b", "20260301_130000")
    MadeRun(loads=0).write(write, ranks=[0])
    MadeRun(saves=0, started=start + timedelta(hours=1)).write(read)
    code, document, _ = judge(tmp_path)
    assert (code, document["grade"]) == (8, "rehearsal")
    assert document["published"]["system"] == "Maker array"
    assert len(document["published"]["runs"]) == 2
    assert figures(document)["save"]["basis"] == "9 inferred from rank 0, 1 rank 0 only"
    assert figures(document)["load"]["basis"] == "all ranks"
    assert (outcomes(document)["SAVE"], outcomes(document)["LOAD"]) == ("not run", "met")
    assert because(document, "SAVE") == (
        "What is recorded met 27.8 s. Save 10 may have missed it: its slowest process is not known."
    )


def test_phases_beside_each_other_are_put_together_by_their_checkpoint_folder(judge, tmp_path):
    MadeRun(loads=0).write(tmp_path / "results_write" / "a")
    MadeRun(saves=0, started=MadeRun().started + timedelta(hours=1)).write(tmp_path / "results_read" / "b")
    _, document, _ = judge(tmp_path)
    assert document["measurements"][0]["basis"] == "all ranks"
    assert len(document["measurements"][0]["operations"]) == 20


def test_clocks_that_are_apart_are_told_and_change_nothing(judge, tmp_path):
    straight = judge(MadeRun().write(tmp_path / "straight"))[1]
    folder = MadeRun(offsets={1: 1.5, 4: -3600.0}).write(tmp_path / "skewed")
    skewed = judge(folder)[1]
    assert [o["seconds"] for o in skewed["measurements"][0]["operations"]] == [
        o["seconds"] for o in straight["measurements"][0]["operations"]
    ]
    assert "clocks differ by" in texts(skewed["published"])["."]


# --- signs of cached reads -------------------------------------------------------------------------------------------


def test_loads_from_a_cache_are_flagged_on_repeat_and_cold_with_their_numbers(judge, lines, tmp_path):
    run = MadeRun(seconds=lambda kind, n, _r: 5.0 if kind == "save" else (9.0 if n < 6 else 3.0))
    folder = run.write(tmp_path / "run")
    document = judge(folder)[1]
    for requirement, outcome in (("REPEAT", "failed"), ("COLD", "not run")):
        assert outcomes(document)[requirement] == outcome
        assert "Loads 6 to 10 took at most 3 s, loads 1 to 5 at least 9 s" in because(document, requirement)
    assert "advisory failed: REPEAT" in lines(folder)


def test_an_operation_of_which_only_rank_0_is_known_is_not_compared_with_the_others(judge, tmp_path):
    run = MadeRun(seconds=lambda _kind, _n, rank: 20.0 if rank == 3 else 5.0)
    document = judge(run.write(tmp_path / "run", ranks=[0]))[1]
    assert document["published"]["signs"] == []
    assert outcomes(document)["REPEAT"] == "not run"
    assert because(document, "REPEAT") == (
        "Coefficient of variation: 0.00226 % for saves and 0.00161 % for loads (limit 10 %). The slowest process of 2 "
        "of 20 operations is not known."
    )


def test_even_loads_are_not_flagged(judge, tmp_path):
    document = judge(MadeRun().write(tmp_path / "run"))[1]
    assert document["published"]["signs"] == []
    assert because(document, "COLD").endswith(
        "Saves and loads are of one run, in which nothing clears them in between."
    )


LARGE, SMALL = 4 * BYTES["llama3-8b", 8] / GIB, 0.2 * BYTES["llama3-8b", 8] / GIB


@pytest.mark.parametrize(
    ("memory", "says"),
    [
        (
            [LARGE],
            "MLPerf Storage's rule asks for clearing them between saves and loads (3 x one checkpoint of the node",
        ),
        ([1.5 * SMALL], "MLPerf Storage's rule asks for no clearing"),
        ([], "cannot be told: the clients' number and memory are not recorded"),
        ([LARGE, LARGE], "cannot be told: the clients' number and memory are not recorded"),
    ],
)
def test_what_the_rule_asks_of_caches_is_said_by_memory_and_checkpoint(judge, tmp_path, memory, says):
    folder = MadeRun().write(tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text()) | {"host_memory_GB": memory}
    (folder / "summary.json").write_text(json.dumps(summary))
    document = judge(folder)[1]
    assert says in because(document, "COLD")
    assert outcomes(document)["COLD"] == "not run"
    detail = next(v["detail"] for v in document["requirements"] if v["id"] == "COLD")
    assert len(detail.splitlines()) == (2 if len(memory) == 1 else 0)


def test_what_the_page_caches_held_as_the_loads_began_is_said(judge, tmp_path):
    write = MadeRun(loads=0).write(published(tmp_path, "M", "a", "llama3-8b", "1"), parts=("metadata",))
    read = MadeRun(saves=0, started=MadeRun().started + timedelta(hours=1))
    folder = read.write(published(tmp_path, "M", "a", "llama3-8b", "2"), parts=("metadata",))
    (file,) = folder.glob("*_metadata.json")
    metadata = json.loads(file.read_text())
    metadata["cluster_snapshots"] = {"start": {"hosts": [{"memory": {"cached": BYTES["llama3-8b", 8] // 50}}]}}
    file.write_text(json.dumps(metadata))
    message = because(judge(tmp_path)[1], "COLD")
    assert "Saves and loads are of different runs; no file says whether they were cleared in between." in message
    assert "held 2.09 GiB as the loads' run began, 2 % of one checkpoint." in message
    for name in write.iterdir():
        name.unlink()
    assert "The saves are another run's, and no file says whether they were cleared" in because(
        judge(tmp_path)[1], "COLD"
    )


def test_a_last_save_that_is_late_at_most_is_no_failure_and_not_met(judge, tmp_path):
    """Between what rank 0 took and what the first load waited for lies the limit."""
    folder = MadeRun(listing=30.0).write(tmp_path / "run", ranks=[0])
    code, document, _ = judge(folder)
    assert (code, outcomes(document)["SAVE"]) == (8, "not run")
    assert because(document, "SAVE") == (
        "All others met 27.8 s. Save 10, the last, took at least 5 s and, by when the first load started, at most "
        "35.3 s."
    )
    assert document["certified_cluster"][0]["save"] < 16000


def test_a_last_save_that_is_late_at_most_beside_others_that_are_is_said(judge, tmp_path):
    run = MadeRun(listing=30.0, seconds=lambda kind, n, r: 40.0 if (kind, n, r) == ("save", 2, 3) else 5.0)
    code, document, _ = judge(run.write(tmp_path / "run", ranks=[0]))
    assert (code, outcomes(document)["SAVE"]) == (1, "failed")
    assert because(document, "SAVE").startswith("2 of 10 saves exceeded the limit of 27.8 s; slowest: save 2, 40 s")
    assert because(document, "SAVE").endswith("at least 5 s and, by when the first load started, at most 35 s.")


# --- files that are missing, broken or of another run ----------------------------------------------------------------


@pytest.mark.parametrize(
    "parts", [(), ("summary",), ("config",), ("metadata",), ("summary", "config", "metadata", "log")]
)
def test_whatever_lies_beside_the_statistics_the_times_are_judged(judge, tmp_path, parts):
    _, document, _ = judge(MadeRun().write(tmp_path / "run", parts=parts))
    assert document["measurements"][0]["subject"] == "llama3-8b-full"
    assert figures(document)["save"]["judged_seconds"] == 5.3
    assert figures(document)["save"]["published_seconds"] == pytest.approx(5.0)


BROKEN = {
    "empty": (b"", "it is empty."),
    "cut off": (b'{"1": {"start": "2026', "it is not JSON, or cut off"),
    "no text": (b"\xff\xfe\x00\x81", "it is not JSON"),
    "deep": (b"[" * 100_000, "it is not JSON"),
    "a list": (b"[1, 2]", "it holds no table of epochs."),
    "nothing in it": (b"{}", "it holds no operation."),
}


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_is_named_and_the_rest_judged(judge, tmp_path, content):
    folder = MadeRun().write(tmp_path / "run")
    data, says = BROKEN[content]
    (folder / "3_per_epoch_stats.json").write_bytes(data)
    code, document, _ = judge(folder)
    assert says in texts(document["published"])["3_per_epoch_stats.json"]
    assert (code, document["measurements"][0]["basis"]) == (8, "inferred from rank 0")
    assert figures(document)["save"]["judged_seconds"] == pytest.approx(5.3, abs=0.002)


def test_not_a_number_in_one_operation_costs_that_rank_this_operation_alone(judge, tmp_path):
    folder = MadeRun().write(tmp_path / "run")
    file = folder / "3_per_epoch_stats.json"
    stats = json.loads(file.read_text())
    stats["1"]["save_ckpt2"]["duration"] = float("nan")
    file.write_text(json.dumps(stats))
    _, document, _ = judge(folder)
    assert "save_ckpt2 has no duration above 0 (nan)" in texts(document["published"])["3_per_epoch_stats.json"]
    bases = {(o["kind"], o["index"]): o["basis"] for o in document["measurements"][0]["operations"]}
    assert bases.pop(("save", 2)) == "inferred from rank 0"
    assert set(bases.values()) == {"all ranks"}


@pytest.mark.parametrize("file", ["summary.json", "dlio_config/config.yaml"])
def test_a_broken_file_beside_the_statistics_is_named(judge, tmp_path, file):
    folder = MadeRun().write(tmp_path / "run")
    (folder / file).write_text("{: [")
    _, document, _ = judge(folder)
    assert "it is not" in texts(document["published"])[file]
    assert document["measurements"][0]["basis"] == "all ranks"


def test_a_file_of_another_run_is_left_out_and_named(judge, tmp_path):
    folder = MadeRun().write(tmp_path / "run")
    other = MadeRun(started=MadeRun().started + timedelta(hours=3, minutes=7), seconds=steady(8.0, 9.0))
    (folder / "6_per_epoch_stats.json").write_text(json.dumps(other.stats([6])[6]))
    _, document, _ = judge(folder)
    assert "another run" in texts(document["published"])["6_per_epoch_stats.json"]
    assert document["measurements"][0]["basis"] == "inferred from rank 0"


def test_a_summary_of_another_run_is_named_and_the_times_are_judged(judge, tmp_path):
    folder = MadeRun().write(tmp_path / "run")
    (folder / "summary.json").write_text(json.dumps(MadeRun(seconds=steady(2.0, 2.0)).summary()))
    _, document, _ = judge(folder)
    assert "it is of another run, or was changed" in texts(document["published"])["summary.json"]
    assert figures(document)["save"]["judged_seconds"] == 5.3


def test_files_of_two_models_are_not_judged(judge, tmp_path):
    folder = MadeRun().write(tmp_path / "run")
    (folder / "summary.json").write_text(json.dumps(MadeRun(model="llama3-70b", processes=64).summary()))
    code, document, error = judge(folder)
    assert (code, document) == (4, None)
    assert "the files are of different runs" in error


def test_a_folder_that_lost_rank_0_has_no_published_figure_but_a_verdict(judge, tmp_path):
    folder = MadeRun().write(tmp_path / "run", ranks=[1, 2, 3], parts=("config",))
    _, document, _ = judge(folder)
    assert figures(document)["save"]["published_seconds"] is None
    assert outcomes(document)["SAVE"] == "met"
    assert any("rank 0's times are missing" in m["text"] for m in document["published"]["messages"])


def test_rank_0s_log_serves_where_its_statistics_are_lost(judge, tmp_path):
    folder = MadeRun().write(tmp_path / "run", ranks=[], parts=("summary", "log"))
    _, document, _ = judge(folder)
    assert document["measurements"][0]["basis"] == "inferred from rank 0"
    assert figures(document)["save"]["judged_seconds"] == pytest.approx(5.3, abs=0.002)
    assert "read from this log" in texts(document["published"])["dlio.log"]


def test_a_run_that_was_cut_off_is_not_complete(judge, tmp_path):
    folder = MadeRun().write(tmp_path / "run")
    for file in folder.glob("*_per_epoch_stats.json"):
        stats = json.loads(file.read_text())
        del stats["1"]["load_ckpt9"], stats["1"]["load_ckpt10"]
        file.write_text(json.dumps(stats))
    code, document, _ = judge(folder)
    assert code == 8
    assert (outcomes(document)["SAVE"], outcomes(document)["LOAD"]) == ("met", "not run")
    assert because(document, "LOAD") == "Only 8 of 10 loads were measured."


def test_a_summary_alone_cannot_be_judged(judge, tmp_path):
    code, document, error = judge(MadeRun().write(tmp_path / "run", ranks=[], parts=("summary",)))
    assert (code, document) == (4, None)
    assert "A summary holds only means of rank 0" in error


def test_training_runs_are_no_results_of_this_workload(judge, tmp_path):
    folder = tmp_path / "training" / "unet3d" / "run" / "20260301_120000"
    folder.mkdir(parents=True)
    epoch = {"start": "2026-03-01T12:00:00.000001", "block1": {"start": "2026-03-01T12:00:01", "duration": "7.10"}}
    (folder / "0_per_epoch_stats.json").write_text(json.dumps({"1": epoch}))
    code, _, error = judge(tmp_path)
    assert code == 4
    assert "Passed over: 1 run of another benchmark, such as training" in error


def test_a_file_that_cannot_be_read_is_named(judge, tmp_path):
    folder = MadeRun().write(tmp_path / "run")
    (folder / "2_per_epoch_stats.json").unlink()
    (folder / "2_per_epoch_stats.json").symlink_to("nowhere")
    (folder / "3_per_epoch_stats.json").unlink()
    os.mkfifo(folder / "3_per_epoch_stats.json")
    found = texts(judge(folder)[1]["published"])
    assert "cannot be read" in found["2_per_epoch_stats.json"]
    assert found["3_per_epoch_stats.json"] == "it is no file."


def test_the_cluster_is_asked_for_before_anything_is_read(capsys, tmp_path):
    MadeRun().write(tmp_path / "run")
    assert cli.main(["judge", str(tmp_path)]) == 4
    assert "--cluster is missing" in capsys.readouterr().err


# --- trees -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path):
    """Three systems, one with two models, one too slow, one broken; and runs of other benchmarks."""
    MadeRun().write(published(tmp_path, "Maker", "fast array", "llama3-8b", "20260301_120000"))
    big = MadeRun(model="llama3-70b", processes=64, seconds=steady(12.0, 11.0))
    big.write(published(tmp_path, "Maker", "fast array", "llama3-70b", "20260302_120000"), ranks=[0, 9])
    slow = MadeRun(seconds=lambda kind, n, r: 90.0 if r == 3 else 20.0)
    slow.write(published(tmp_path, "Other", "slow <array> & more", "llama3-8b", "20260301_120000"), ranks=[0])
    broken = MadeRun().write(published(tmp_path, "Third", "broken", "llama3-8b", "20260301_120000"), ranks=[0])
    (broken / "0_per_epoch_stats.json").write_text("{")
    training = tmp_path / "closed" / "Maker" / "results" / "fast array" / "training" / "unet3d" / "run" / "20260301"
    training.mkdir(parents=True)
    (training / "training_20260301_metadata.json").write_text('{"benchmark_type": "training"}')
    cache = tmp_path / "closed" / "Maker" / "results" / "fast array" / "kv_cache" / "llama3.1-70b" / "run" / "20260301"
    cache.mkdir(parents=True)
    (cache / "kv_cache_20260301_metadata.json").write_text('{"benchmark_type": "kv_cache"}')
    return tmp_path


def test_a_tree_gives_one_row_a_system_and_model(judge, tree):
    code, document, _ = judge(tree)
    assert (code, document["schema"]) == (1, "pytest-ckpt/published/1")
    rows = {(r["system"], r["subject"]): r for r in document["results"]}
    assert list(rows) == [
        ("Maker fast array", "llama3-8b-full"),
        ("Maker fast array", "llama3-70b-full"),
        ("Other slow <array> & more", "llama3-8b-full"),
    ]
    fast, big, slow = rows.values()
    assert (fast["verdict"], fast["basis"], fast["grade"]) == ("both in time", "all ranks", "incomplete")
    assert (big["verdict"], big["basis"], big["grade"]) == (
        "both in time as far as recorded",
        "inferred from rank 0",
        "rehearsal",
    )
    assert (slow["verdict"], slow["grade"]) == ("save too slow", "rehearsal")
    assert slow["figures"][0]["published_seconds"] == pytest.approx(20.0)
    assert slow["figures"][0]["judged_seconds"] == pytest.approx(90.0, abs=0.002)
    assert fast["certified_cluster"]["overall"] > big["certified_cluster"]["overall"]
    assert document["passed_over"] == 2
    broken = "closed/Third/results/broken/checkpointing/llama3-8b/20260301_120000"
    assert "cut off" in texts(document)[f"{broken}/0_per_epoch_stats.json"]


def test_for_people_the_tree_is_a_table(lines, tree):
    output = lines(tree)
    assert "system checkpoint published judged published judged serves up to at 16,000" in output
    assert "Maker fast array llama3-8b-full 5 s 5.3 s 4 s 4.3 s" in output
    assert "20 s 90 s 20 s 90 s" in output
    assert "save too slow" in output
    assert "None is certified" in output
    assert "2 runs of other benchmarks were passed over" in output


def test_both_pages_are_written_and_escape_what_comes_from_outside(judge, tree, tmp_path):
    table, certificate = tmp_path / "table.html", tmp_path / "certificate.html"
    judge(tree, f"--html={table}")
    page = table.read_text()
    assert "slow &lt;array&gt; &amp; more" in page
    assert "<array>" not in page
    assert "<script" not in page
    assert "save too slow" in page
    judge(tree / "closed" / "Other", f"--html={certificate}")
    page = certificate.read_text()
    assert "As published, and as judged" in page
    assert "9 inferred from rank 0, 1 rank 0 only" in page
    assert "REHEARSAL" in page
    assert "<array>" not in page


def test_runs_of_one_system_are_pooled_and_every_operation_counts(judge, tmp_path):
    MadeRun().write(published(tmp_path, "M", "a", "llama3-8b", "1"))
    slow = MadeRun(started=MadeRun().started + timedelta(hours=2), seconds=steady(50.0, 4.0))
    slow.write(published(tmp_path, "M", "a", "llama3-8b", "2"))
    code, document, _ = judge(tmp_path)
    assert code == 1
    assert len(document["measurements"][0]["operations"]) == 40
    assert "10 of 20 saves exceeded the limit" in because(document, "SAVE")


# --- the command -----------------------------------------------------------------------------------------------------


def test_it_imports_nothing_heavy(tmp_path):
    folder = MadeRun().write(tmp_path / "run")
    code = (
        "import sys; from pytest_ckpt.cli.main import main; "
        f"main(['judge', {str(folder)!r}, '--cluster=16000']); print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.splitlines()[-1] == "[]"


def test_a_terminal_sees_a_progress_bar_and_a_file_does_not(tmp_path):
    MadeRun(model="llama3-70b", processes=64).write(tmp_path / "a")
    command = [sys.executable, "-m", "pytest_ckpt.cli.main", "judge", str(tmp_path), "--cluster=16000"]
    plain = subprocess.run(command, capture_output=True, text=True, check=False)
    assert plain.stderr == ""
    ours, theirs = pty.openpty()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs, check=False)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert b"reading [" in shown
    assert b"1 of 1 run, 64 files" in shown


def test_a_folder_with_neither_names_both(judge, tmp_path):
    code, _, error = judge(tmp_path)
    assert code == 4
    assert "report.json" in error
    assert "results of DLIO" in error


def test_our_own_run_folder_is_not_taken_for_one_of_theirs(judge, tmp_path):
    MadeRun().write(tmp_path)
    Path(tmp_path / "report.json").write_text("{")
    code, _, error = judge(tmp_path)
    assert code == 4
    assert "report.json is not JSON" in error
