"""``pytest-ckpt judge`` on directory trees of published results, and the options of the command."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.published_documents import messages_by_path, reason_for
from tests.support.synthetic_results import SyntheticRun, published, steady

HEAVY = ("torch", "mpi4py", "numpy", "psutil", "jinja2")


# --- trees -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path):
    """Return a tree of three systems: a system with two models, a slow system, and a system with a broken file.

    The tree also contains runs of other benchmarks.
    """
    SyntheticRun().write(published(tmp_path, "Maker", "fast array", "llama3-8b", "20260301_120000"))
    big = SyntheticRun(model="llama3-70b", processes=64, seconds=steady(12.0, 11.0))
    big.write(published(tmp_path, "Maker", "fast array", "llama3-70b", "20260302_120000"), ranks=[0, 9])
    slow = SyntheticRun(seconds=lambda kind, n, r: 90.0 if r == 3 else 20.0)
    slow.write(published(tmp_path, "Other", "slow <array> & more", "llama3-8b", "20260301_120000"), ranks=[0])
    broken = SyntheticRun().write(published(tmp_path, "Third", "broken", "llama3-8b", "20260301_120000"), ranks=[0])
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
        "save in time, load met as far as recorded: 9 of 10 loads",
        "inferred from rank 0",
        "rehearsal",
    )
    assert (slow["verdict"], slow["grade"]) == ("save too slow", "rehearsal")
    assert slow["figures"][0]["published_seconds"] == pytest.approx(20.0)
    assert slow["figures"][0]["judged_seconds"] == pytest.approx(90.0, abs=0.002)
    assert fast["sufficient_up_to_accelerators"]["overall"] > big["sufficient_up_to_accelerators"]["overall"]
    assert document["passed_over"] == 2
    broken = "closed/Third/results/broken/checkpointing/llama3-8b/20260301_120000"
    assert "cut off" in messages_by_path(document)[f"{broken}/0_per_epoch_stats.json"]


def test_the_outcome_as_far_as_recorded_is_a_field_of_each_figure(judge, tree):
    fast, big, slow = judge(tree)[1]["results"]
    shown = [[(f["outcome"], f["known_operations"]) for f in row["figures"]] for row in (fast, big, slow)]
    assert shown == [
        [("met", 10), ("met", 10)],
        [("met", 10), ("met as far as recorded", 9)],
        [("failed", 10), ("met as far as recorded", 9)],
    ]
    assert big["figures"][1]["outcome_text"] == "met as far as recorded: 9 of 10 loads"
    # The requirement stays undecided, because "met as far as recorded" is not a verdict.
    assert big["outcomes"]["LOAD"] == "not run"


def test_how_sure_a_result_is_rests_on_the_operations_that_are_known(judge, lines, tree):
    directory = published(tree, "Maker", "fast array", "llama3-70b", "20260302_120000")
    verdicts = {v["id"]: v for v in judge(directory)[1]["requirements"]}
    load, save = verdicts["LOAD"], verdicts["SAVE"]
    # All ten saves count: the last one has an upper bound, which meets the limit.
    assert (load["bound"]["trials"], load["bound"]["met"]) == (9, 9)
    assert load["bound"]["share"] == pytest.approx(0.05 ** (1 / 9), abs=0.001)
    assert (save["bound"]["trials"], save["bound"]["met"]) == (10, 10)
    assert "9 of 9 loads met the limit" in load["detail"]
    assert "10 of 10 loads" not in load["detail"]
    alone = SyntheticRun(saves=1, loads=0).write(tree / "alone", ranks=[0])
    assert judge(alone)[1]["requirements"][0]["bound"] is None


def test_without_any_inference_nothing_is_met_as_far_as_recorded(judge, tmp_path):
    run = SyntheticRun(saves=1, loads=0).write(tmp_path / "run", ranks=[0])
    figure = judge(run)[1]["published"]["figures"][0]
    assert (figure["outcome"], figure["known_operations"]) == ("not known", 0)


def test_invocations_that_measure_nothing_are_no_runs(judge, tree):
    before = judge(tree)[1]
    model = published(tree, "Maker", "fast array", "llama3-8b", "20260301_120000").parent
    for directory, name in ((model / "20260301_110000", "datasize"), (model / "datasize" / "20260301_100000", "")):
        directory.mkdir(parents=True)
        content = SyntheticRun().metadata() | {"command": name}
        (directory / f"checkpointing_{directory.name}_metadata.json").write_text(json.dumps(content))
    after = judge(tree)[1]
    assert (after["runs"], after["passed_over"], after["messages"]) == (
        before["runs"], before["passed_over"], before["messages"],
    )  # fmt: skip
    code, _, error = judge(model / "datasize")
    assert code == 4
    assert "Passed over: 1 invocation of datasize or datagen." in error


def test_for_people_the_tree_is_a_table(lines, tree):
    output = lines(tree)
    assert "system checkpoint published judged published judged sufficient for at 16,000" in output
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
    SyntheticRun().write(published(tmp_path, "M", "a", "llama3-8b", "1"))
    slow = SyntheticRun(started=SyntheticRun().started + timedelta(hours=2), seconds=steady(50.0, 4.0))
    slow.write(published(tmp_path, "M", "a", "llama3-8b", "2"))
    code, document, _ = judge(tmp_path)
    assert code == 1
    assert len(document["measurements"][0]["operations"]) == 40
    assert "10 of 20 saves exceeded the limit" in reason_for(document, "SAVE")


# --- the command -----------------------------------------------------------------------------------------------------


def test_it_imports_nothing_heavy(tmp_path):
    directory = SyntheticRun().write(tmp_path / "run")
    code = (
        "import sys; from pytest_ckpt.cli.main import main; "
        f"main(['judge', {str(directory)!r}, '--cluster=16000']); print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.splitlines()[-1] == "[]"


def test_a_terminal_sees_a_progress_bar_and_a_file_does_not(tmp_path):
    SyntheticRun(model="llama3-70b", processes=64).write(tmp_path / "a")
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


def test_a_directory_with_neither_names_both(judge, tmp_path):
    code, _, error = judge(tmp_path)
    assert code == 4
    assert "report.json" in error
    assert "results of DLIO" in error


def test_our_own_run_directory_is_not_taken_for_one_of_theirs(judge, tmp_path):
    SyntheticRun().write(tmp_path)
    Path(tmp_path / "report.json").write_text("{")
    code, _, error = judge(tmp_path)
    assert code == 4
    assert "report.json is not JSON" in error
