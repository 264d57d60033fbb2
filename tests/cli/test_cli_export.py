"""``pytest-ckpt export --mlperf`` writes runs in DLIO's format. ``judge`` gives the same verdicts on the export."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.facts.proofs import Durability
from tests.support.synthetic_run import write_run

pytestmark = pytest.mark.covers(commands=("export",))

FULL = {"ckpt_mode": "full", "ckpt_ranks": "8", "ckpt_profile": "acceptance", "ckpt_cluster": "16000"}
TIMES = ("SAVE", "LOAD", "REPEAT")


def committed(measurement, seconds=0.75):
    """Return a copy of the measurement with ``seconds`` added to each save.

    This simulates that rank 0 commits ``seconds`` after the slowest rank has finished.
    """
    operations = [
        dataclasses.replace(o, seconds=o.seconds + seconds) if o.kind == "save" else o for o in measurement.operations
    ]
    return dataclasses.replace(measurement, operations=tuple(operations))


@pytest.fixture
def exported(tmp_path, capsys):
    """Return a function that writes a full run, exports it, and runs ``judge`` on the export.

    The returned function returns (the run's report, the exported directory, the output of ``judge``).
    """

    def run(name="run", **message):
        options = FULL | message.pop("options", {})
        document = write_run(tmp_path / name, options=options, **({"save": 5.0, "load": 4.0} | message))
        out = tmp_path / f"{name}-exported"
        assert main(["export", str(tmp_path / name), "--mlperf", str(out)]) == 0
        capsys.readouterr()
        code = main(["judge", str(out), "--cluster=16000", "--json"])
        judged = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
        assert code == judged["exit_code"]
        return document, next(out.rglob("0_per_epoch_stats.json")).parent, judged

    return run


def verdicts(document):
    return {v["id"]: v["outcome"] for v in document["requirements"] if v["id"] in TIMES}


def seconds_of(document):
    return [o["seconds"] for o in document["measurements"][0]["operations"]]


@pytest.mark.parametrize(
    ("save", "load"), [(5.0, 4.0), (60.0, 4.0), (5.0, 400.0)], ids=["met", "save late", "load late"]
)
def test_judging_the_export_gives_the_same_seconds_and_verdicts(exported, save, load):
    document, _, judged = exported(save=save, load=load, change=committed)
    assert seconds_of(judged) == pytest.approx(seconds_of(document), abs=2e-6)
    assert verdicts(judged) == verdicts(document)
    assert judged["measurements"][0]["basis"] == "all ranks"
    assert judged["grade"] != "certified"


def test_an_export_claims_nothing_that_was_not_measured(exported):
    document, directory, judged = exported(change=committed)
    metadata = json.loads(next(directory.glob("*_metadata.json")).read_text())
    checkpoint = metadata["parameters"]["checkpoint"]
    assert metadata["verification"] == "not a submission"
    assert "neither a submission" in metadata["pytest_ckpt_export"]["not_a_submission"]
    assert checkpoint["fsync"] is True
    # The run had no pause, no accelerator and no snapshot of a cluster, so the export has no such fields.
    assert "time_between_checkpoints" not in checkpoint
    assert not {"accelerator", "cluster_snapshots", "result_dir", "override_parameters"} & set(metadata)
    stats = json.loads((directory / "3_per_epoch_stats.json").read_text())["1"]
    operation = document["measurements"][0]["operations"][0]
    assert stats["save_ckpt1"]["duration"] == pytest.approx(operation["rank_seconds"][3], abs=1e-6)
    rank0 = json.loads((directory / "0_per_epoch_stats.json").read_text())["1"]
    assert rank0["save_ckpt1"]["duration"] == pytest.approx(operation["seconds"], abs=1e-6)
    summary = json.loads((directory / "summary.json").read_text())
    saves = [o["seconds"] for o in document["measurements"][0]["operations"] if o["kind"] == "save"]
    assert summary["metric"]["save_checkpoint_duration_mean_seconds"] == pytest.approx(sum(saves) / len(saves))
    assert (summary["num_hosts"], summary["hostname"]) == (1, "n1")
    assert {v["outcome"] for v in judged["requirements"] if v["id"] in ("INTEGRITY", "COLD", "DURABLE-CALLS")} == {
        "not run"
    }
    assert judged["published"]["tool"].startswith("pytest-ckpt")
    assert any("not a result of MLPerf" in m["text"] for m in judged["published"]["messages"])


def test_unsynced_files_are_not_reported_as_synced(exported):
    def unsynced(found):
        assert isinstance(found.durability, Durability)
        return dataclasses.replace(
            found, durability=dataclasses.replace(found.durability, files_synced=found.durability.files - 1)
        )

    _, directory, _ = exported(change=unsynced)
    metadata = json.loads(next(directory.glob("*_metadata.json")).read_text())
    assert metadata["parameters"]["checkpoint"]["fsync"] is False


def test_results_beyond_the_mlperf_format_are_in_a_separate_file(exported):
    document, directory, _ = exported()
    top = Path(*directory.parts[: directory.parts.index("not-a-submission")])
    beside = json.loads((top / "pytest-ckpt.json").read_text())
    assert (beside["schema"], beside["grade"]) == ("pytest-ckpt/mlperf-export/1", document["grade"])
    assert {v["id"]: v["outcome"] for v in beside["requirements"]} == {
        v["id"]: v["outcome"] for v in document["requirements"]
    }
    assert beside["measurements"][0]["integrity"]["fault_count"] == 0
    assert "neither a submission" in (top / "NOT-A-SUBMISSION.txt").read_text()


def test_an_export_breaks_the_rule_that_mlpstorage_runs_the_test(exported, capsys):
    _, directory, _ = exported()
    assert main(["judge", str(directory), "--rules=mlperf-v3", "--json"]) == 1
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert {r["number"]: r["outcome"] for r in result["rules"]}["1"] == "broken"


def test_a_changed_directory_is_reported_as_changed(exported, tmp_path, capsys):
    exported()
    file = next((tmp_path / "run" / "measurements").iterdir())
    file.write_text(file.read_text() + "\n")
    assert main(["export", str(tmp_path / "run"), "--mlperf", str(tmp_path / "again")]) == 0
    assert "not as its run left it" in capsys.readouterr().out
    beside = json.loads((tmp_path / "again" / "pytest-ckpt.json").read_text())
    assert any("not as its run left it" in reason for reason in beside["grade_reasons"])


def test_each_measurement_has_a_directory_and_is_judged_by_itself(tmp_path, capsys):
    options = {"ckpt_model": "llama3-70b,llama3-405b", "ckpt_mode": "subset", "ckpt_engine": "torch,stream"}
    write_run(tmp_path / "run", options=FULL | options, save=5.0, load=4.0)
    assert main(["export", str(tmp_path / "run"), "--mlperf", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    main(["judge", str(tmp_path / "out"), "--cluster=16000", "--json"])
    found = json.loads(capsys.readouterr().out)["results"]
    subjects = sorted(row["subject"] for row in found)
    assert subjects == ["llama3-405b-subset"] * 2 + ["llama3-70b-subset"] * 2
    assert {row["basis"] for row in found} == {"all ranks"}


@pytest.mark.parametrize(("options", "message"), [
    ({"ckpt_profile": "smoke"}, "are 0.001 of the full size, and the format has only full ones"),
    ({"ckpt_strategy": "async"}, "strategy async saves in the background"),
])  # fmt: skip
def test_tensors_that_the_format_cannot_represent_are_refused(tmp_path, capsys, options, message):
    write_run(tmp_path / "run", options=FULL | options, save=5.0, load=4.0)
    assert main(["export", str(tmp_path / "run"), "--mlperf", str(tmp_path / "out")]) == 4
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_existing_output_directory_is_left_unchanged(tmp_path, capsys):
    write_run(tmp_path / "run", options=FULL)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    assert main(["export", str(tmp_path / "run"), "--mlperf", str(tmp_path / "out")]) == 4
    assert "already exists" in capsys.readouterr().err
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine"]


def test_a_directory_without_a_run_is_refused(tmp_path, capsys):
    assert main(["export", str(tmp_path / "none"), "--mlperf", str(tmp_path / "out")]) == 4
    assert "is not a directory" in capsys.readouterr().err
