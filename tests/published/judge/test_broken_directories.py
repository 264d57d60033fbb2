"""``pytest-ckpt judge`` names files of published results that are missing, broken, or copied from another run."""

from __future__ import annotations

import json
import os
from datetime import timedelta

import pytest

from pytest_ckpt.cli import main as cli
from tests.support.published_documents import messages_by_path, outcomes, reason_for, values_by_kind
from tests.support.synthetic_results import SyntheticRun, steady


@pytest.mark.parametrize(
    "parts", [(), ("summary",), ("config",), ("metadata",), ("summary", "config", "metadata", "log")]
)
def test_whatever_lies_beside_the_statistics_the_times_are_judged(judge, tmp_path, parts):
    _, document, _ = judge(SyntheticRun().write(tmp_path / "run", parts=parts))
    assert document["measurements"][0]["subject"] == "llama3-8b-full"
    assert values_by_kind(document)["save"]["judged_seconds"] == 5.3
    assert values_by_kind(document)["save"]["published_seconds"] == pytest.approx(5.0)


BROKEN = {
    "empty": (b"", "it is empty."),
    "cut off": (b'{"1": {"start": "2026', "it is not JSON, or cut off"),
    "no text": (b"\xff\xfe\x00\x81", "it is not JSON"),
    "deep": (b"[" * 100_000, "it is not JSON"),
    "a list": (b"[1, 2]", "it contains no table of epochs."),
    "nothing in it": (b"{}", "it contains no operation."),
}


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_is_named_and_the_rest_judged(judge, tmp_path, content):
    directory = SyntheticRun().write(tmp_path / "run")
    data, expected_text = BROKEN[content]
    (directory / "3_per_epoch_stats.json").write_bytes(data)
    code, document, _ = judge(directory)
    assert expected_text in messages_by_path(document["published"])["3_per_epoch_stats.json"]
    assert (code, document["measurements"][0]["basis"]) == (8, "inferred from rank 0")
    assert values_by_kind(document)["save"]["judged_seconds"] == pytest.approx(5.3, abs=0.002)


def test_not_a_number_in_one_operation_costs_that_rank_this_operation_alone(judge, tmp_path):
    directory = SyntheticRun().write(tmp_path / "run")
    file = directory / "3_per_epoch_stats.json"
    stats = json.loads(file.read_text())
    stats["1"]["save_ckpt2"]["duration"] = float("nan")
    file.write_text(json.dumps(stats))
    _, document, _ = judge(directory)
    assert (
        "save_ckpt2 has no duration above 0 (nan)" in messages_by_path(document["published"])["3_per_epoch_stats.json"]
    )
    bases = {(o["kind"], o["index"]): o["basis"] for o in document["measurements"][0]["operations"]}
    assert bases.pop(("save", 2)) == "inferred from rank 0"
    assert set(bases.values()) == {"all ranks"}


@pytest.mark.parametrize("file", ["summary.json", "dlio_config/config.yaml"])
def test_a_broken_file_beside_the_statistics_is_named(judge, tmp_path, file):
    directory = SyntheticRun().write(tmp_path / "run")
    (directory / file).write_text("{: [")
    _, document, _ = judge(directory)
    assert "it is not" in messages_by_path(document["published"])[file]
    assert document["measurements"][0]["basis"] == "all ranks"


def test_a_file_of_another_run_is_left_out_and_named(judge, tmp_path):
    directory = SyntheticRun().write(tmp_path / "run")
    other = SyntheticRun(started=SyntheticRun().started + timedelta(hours=3, minutes=7), seconds=steady(8.0, 9.0))
    (directory / "6_per_epoch_stats.json").write_text(json.dumps(other.stats([6])[6]))
    _, document, _ = judge(directory)
    assert "another run" in messages_by_path(document["published"])["6_per_epoch_stats.json"]
    assert document["measurements"][0]["basis"] == "inferred from rank 0"


def test_a_summary_of_another_run_is_named_and_the_times_are_judged(judge, tmp_path):
    directory = SyntheticRun().write(tmp_path / "run")
    (directory / "summary.json").write_text(json.dumps(SyntheticRun(seconds=steady(2.0, 2.0)).summary()))
    _, document, _ = judge(directory)
    assert "it is of another run, or was changed" in messages_by_path(document["published"])["summary.json"]
    assert values_by_kind(document)["save"]["judged_seconds"] == 5.3


def test_files_of_two_models_are_not_judged(judge, tmp_path):
    directory = SyntheticRun().write(tmp_path / "run")
    (directory / "summary.json").write_text(json.dumps(SyntheticRun(model="llama3-70b", processes=64).summary()))
    code, document, error = judge(directory)
    assert (code, document) == (4, None)
    assert "the files are of different runs" in error


def test_a_directory_that_lost_rank_0_has_no_published_figure_but_a_verdict(judge, tmp_path):
    directory = SyntheticRun().write(tmp_path / "run", ranks=[1, 2, 3], parts=("config",))
    _, document, _ = judge(directory)
    assert values_by_kind(document)["save"]["published_seconds"] is None
    assert outcomes(document)["SAVE"] == "met"
    assert any("rank 0's times are missing" in m["text"] for m in document["published"]["messages"])


def test_rank_0s_log_serves_where_its_statistics_are_lost(judge, tmp_path):
    directory = SyntheticRun().write(tmp_path / "run", ranks=[], parts=("summary", "log"))
    _, document, _ = judge(directory)
    assert document["measurements"][0]["basis"] == "inferred from rank 0"
    assert values_by_kind(document)["save"]["judged_seconds"] == pytest.approx(5.3, abs=0.002)
    assert "read from this log" in messages_by_path(document["published"])["dlio.log"]


def test_a_run_that_was_cut_off_is_not_complete(judge, tmp_path):
    directory = SyntheticRun().write(tmp_path / "run")
    for file in directory.glob("*_per_epoch_stats.json"):
        stats = json.loads(file.read_text())
        del stats["1"]["load_ckpt9"], stats["1"]["load_ckpt10"]
        file.write_text(json.dumps(stats))
    code, document, _ = judge(directory)
    assert code == 8
    assert (outcomes(document)["SAVE"], outcomes(document)["LOAD"]) == ("met", "not run")
    assert reason_for(document, "LOAD") == "Only 8 of 10 loads were measured."


def test_a_summary_alone_cannot_be_judged(judge, tmp_path):
    code, document, error = judge(SyntheticRun().write(tmp_path / "run", ranks=[], parts=("summary",)))
    assert (code, document) == (4, None)
    assert "A summary contains only means of rank 0" in error


def test_training_runs_are_no_results_of_this_workload(judge, tmp_path):
    directory = tmp_path / "training" / "unet3d" / "run" / "20260301_120000"
    directory.mkdir(parents=True)
    epoch = {"start": "2026-03-01T12:00:00.000001", "block1": {"start": "2026-03-01T12:00:01", "duration": "7.10"}}
    (directory / "0_per_epoch_stats.json").write_text(json.dumps({"1": epoch}))
    code, _, error = judge(tmp_path)
    assert code == 4
    assert "Passed over: 1 run of another benchmark, such as training" in error


def test_a_file_that_cannot_be_read_is_named(judge, tmp_path):
    directory = SyntheticRun().write(tmp_path / "run")
    (directory / "2_per_epoch_stats.json").unlink()
    (directory / "2_per_epoch_stats.json").symlink_to("nowhere")
    (directory / "3_per_epoch_stats.json").unlink()
    os.mkfifo(directory / "3_per_epoch_stats.json")
    found = messages_by_path(judge(directory)[1]["published"])
    assert "cannot be read" in found["2_per_epoch_stats.json"]
    assert found["3_per_epoch_stats.json"] == "it is not a file."


def test_a_missing_cluster_is_an_error_before_anything_is_read(capsys, tmp_path):
    SyntheticRun().write(tmp_path / "run")
    assert cli.main(["judge", str(tmp_path)]) == 4
    assert "--cluster is missing" in capsys.readouterr().err
