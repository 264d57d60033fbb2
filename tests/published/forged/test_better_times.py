"""Published results whose times were improved with a text editor: the change is reported, and no verdict improves."""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timedelta

import pytest

from tests.support.synthetic_results import SyntheticRun, published

TRUE_SECONDS = 40.0


def edit(file, change):
    stats = json.loads(file.read_text())
    change(stats["1"])
    file.write_text(json.dumps(stats))


def outcome(document, requirement="SAVE"):
    return next(v["outcome"] for v in document["requirements"] if v["id"] == requirement)


def reason_for(document, requirement):
    return next(v["because"] for v in document["requirements"] if v["id"] == requirement)


def judged(document, kind="save"):
    return next(f["judged_seconds"] for f in document["published"]["figures"] if f["kind"] == kind)


def shortened(entry, seconds):
    start = datetime.fromisoformat(entry["start"])
    entry["throughput"] *= entry["duration"] / seconds
    entry["duration"] = seconds
    entry["end"] = (start + timedelta(seconds=seconds)).isoformat(timespec="microseconds")


def test_as_it_was_it_misses_the_limit(judge, directory):
    document, _ = judge(directory)
    assert outcome(document) == "failed"
    assert judged(document) == pytest.approx(TRUE_SECONDS, abs=0.1)


def test_the_times_of_the_slow_rank_are_shortened(judge, directory):
    def better(epoch):
        for name, entry in epoch.items():
            if name.startswith("save"):
                shortened(entry, 5.0)

    edit(directory / "3_per_epoch_stats.json", better)
    document, messages = judge(directory)
    assert outcome(document) == "failed"
    assert judged(document) == pytest.approx(TRUE_SECONDS, abs=0.1)
    assert document["grade"] == "rehearsal"
    assert "the next operation started later than all ranks were done" in messages


@pytest.mark.parametrize("field", ["duration", "end"])
def test_one_field_of_the_slow_rank_is_changed(judge, directory, field):
    def better(epoch):
        for name, entry in epoch.items():
            if name.startswith("save"):
                entry[field] = 5.0 if field == "duration" else entry["start"]

    edit(directory / "3_per_epoch_stats.json", better)
    document, messages = judge(directory)
    assert outcome(document) == "failed"
    assert "its start and end are" in messages


def test_the_slow_ranks_file_is_replaced_by_a_copy_of_a_fast_ones(judge, directory):
    shutil.copy(directory / "0_per_epoch_stats.json", directory / "3_per_epoch_stats.json")
    document, messages = judge(directory)
    assert outcome(document) == "failed"
    assert document["measurements"][0]["basis"] == "inferred from rank 0"
    assert "3_per_epoch_stats.json: left out: its times equal the times of rank 0, to the microsecond" in messages


def test_the_slow_ranks_file_is_taken_away(judge, directory):
    (directory / "3_per_epoch_stats.json").unlink()
    document, messages = judge(directory)
    assert outcome(document) == "failed"
    assert "contains the times of 7 of 8 ranks" in messages


@pytest.mark.parametrize("name", ["03_per_epoch_stats.json", "\u0663_per_epoch_stats.json", "+3_per_epoch_stats.json"])
def test_a_second_file_for_the_slow_rank_does_not_stand_for_it(judge, directory, name):
    fast = json.loads((directory / "2_per_epoch_stats.json").read_text())
    (directory / name).write_text(json.dumps(fast))
    document, messages = judge(directory)
    assert outcome(document) == "failed"
    assert judged(document) == pytest.approx(TRUE_SECONDS, abs=0.1)
    assert f"{name}: left out: DLIO names no rank's file like this" in messages


def test_a_longer_pause_is_written_into_the_configuration(judge, directory):
    """A longer pause in the configuration is reported, and does not shorten the inferred times.

    Only the file of rank 0 exists. The times of other ranks are inferred from the starts of rank 0 and the pauses.
    """
    for rank in range(1, 8):
        (directory / f"{rank}_per_epoch_stats.json").unlink()
    for file in (directory / "dlio_config" / "config.yaml", *directory.glob("*_metadata.json")):
        text = file.read_text()
        file.write_text(text.replace('"time_between_checkpoints": 5.0', '"time_between_checkpoints": 38.0').replace(
            "time_between_checkpoints: 5.0", "time_between_checkpoints: 38.0"))  # fmt: skip
    document, messages = judge(directory)
    assert outcome(document) == "failed"
    assert judged(document) == pytest.approx(TRUE_SECONDS, abs=0.1)
    assert "38 s between checkpoints is the configured time" in messages


@pytest.mark.parametrize("ranks", [[0], [0, 1, 2, 4, 5, 6, 7]])
@pytest.mark.parametrize("pause", ["5.0", "{type: normal, mean: 5, stdev: 1}"])
def test_an_unrecorded_slow_last_load_meets_no_limit(judge, tmp_path, ranks, pause):
    """If the file of the slow rank is missing, LOAD is "not run".

    The time of a missing rank is inferred from the start of the next operation, and no operation follows the last load.
    If pauses are random, SAVE is also "not run".
    """
    run = SyntheticRun(seconds=lambda kind, n, rank: 400.0 if (kind, n, rank) == ("load", 10, 3) else 5.0 + 0.01 * n)
    assert outcome(judge(run.write(tmp_path / "whole"))[0], "LOAD") == "failed"
    directory = run.write(tmp_path / "run", ranks=ranks)
    file = directory / "dlio_config" / "config.yaml"
    file.write_text(file.read_text().replace("time_between_checkpoints: 5.0", f"time_between_checkpoints: {pause}"))
    document, _ = judge(directory)
    assert {outcome(document, name) for name in ("LOAD", "REPEAT", "STRAGGLER")} == {"not run"}
    assert outcome(document, "SAVE") == ("met" if pause == "5.0" else "not run")
    assert "may have missed it" in reason_for(document, "LOAD")


def one_late(kind, number, rank):
    return 400.0 if (number, rank) == (4, 3) else 5.0 + 0.01 * rank


def test_a_straggler_in_what_not_every_rank_recorded_is_not_met(judge, tmp_path):
    directory = SyntheticRun(seconds=one_late).write(tmp_path / "run")
    assert outcome(judge(directory)[0], "STRAGGLER") == "failed"
    for kind in ("save", "load"):
        edit(directory / "5_per_epoch_stats.json", lambda epoch, name=f"{kind}_ckpt4": epoch.pop(name))
    document, _ = judge(directory)
    assert outcome(document, "STRAGGLER") == "not run"
    assert "Of 2 other operations not every rank is recorded." in reason_for(document, "STRAGGLER")
    one_more = SyntheticRun(seconds=lambda *at: 90.0 if at[1:] == (2, 6) else one_late(*at)).write(tmp_path / "more")
    edit(one_more / "5_per_epoch_stats.json", lambda epoch: epoch.pop("save_ckpt4"))
    document, _ = judge(one_more)
    assert outcome(document, "STRAGGLER") == "failed"


def test_files_that_disagree_on_the_pause_are_named(judge, directory):
    file = directory / "dlio_config" / "config.yaml"
    file.write_text(file.read_text().replace("time_between_checkpoints: 5.0", "time_between_checkpoints: 3.0"))
    assert "The files disagree on the time between checkpoints" in judge(directory)[1]


def test_the_slow_operation_is_taken_out_of_every_file(judge, tmp_path):
    run = SyntheticRun(
        seconds=lambda kind, number, _rank: 40.0 if (kind, number) == ("save", 4) else 5.0 + number / 100
    )
    directory = run.write(tmp_path / "run", parts=())
    for file in directory.glob("*_per_epoch_stats.json"):
        edit(file, lambda epoch: epoch.pop("save_ckpt4"))
    document, _ = judge(directory)
    assert outcome(document) == "not run"
    assert (
        next(v["because"] for v in document["requirements"] if v["id"] == "SAVE") == "Only 9 of 10 saves were measured."
    )


def test_ranks_of_a_faster_run_are_mixed_in(judge, directory, tmp_path):
    fast = SyntheticRun(started=SyntheticRun().started + timedelta(days=1)).stats()
    for rank in (1, 3, 5):
        (directory / f"{rank}_per_epoch_stats.json").write_text(json.dumps(fast[rank]))
    document, messages = judge(directory)
    assert outcome(document) == "failed"
    assert "3_per_epoch_stats.json: left out: its operations do not start at the others' intervals" in messages


@pytest.mark.parametrize("field", ["save_checkpoint_duration_mean_seconds", "save_checkpoint_io_mean_GB_per_second"])
def test_a_better_summary_is_reported_and_changes_no_verdict(judge, directory, field):
    file = directory / "summary.json"
    summary = json.loads(file.read_text())
    summary["metric"][field] *= 0.5 if "duration" in field else 2
    file.write_text(json.dumps(summary))
    document, messages = judge(directory)
    assert outcome(document) == "failed"
    assert "summary.json: it states that a save took" in messages
    assert "it is of another run, or was changed" in messages


def test_every_rank_that_waits_for_the_slowest_hides_a_straggler(judge, tmp_path):
    run = SyntheticRun()
    directory = run.write(tmp_path / "run")
    assert outcome(judge(directory)[0], "STRAGGLER") == "met"
    file = directory / "dlio_config" / "config.yaml"
    file.write_text(file.read_text() + "    rank_sync: true\n")
    document, _ = judge(directory)
    assert outcome(document, "STRAGGLER") == "not run"


def test_the_same_run_twice_counts_once(judge, tmp_path):
    """If a directory contains a run and a copy of the run, each operation counts only once."""
    start = SyntheticRun().started
    first = published(tmp_path, "Maker", "array", "llama3-8b", "20260301_120000")
    SyntheticRun(saves=5, loads=5, started=start).write(first)
    shutil.copytree(first, first.with_name("20260301_130000"))
    document, messages = judge(tmp_path)
    assert len(document["measurements"][0]["operations"]) == 10
    assert "to the microsecond: one of them is a copy, and counts once" in messages
    assert any("acceptance needs 10" in reason for reason in document["grade_reasons"])


def test_a_run_that_two_systems_show_is_named_on_the_second(judge, tmp_path):
    first = published(tmp_path, "Maker", "array", "llama3-8b", "20260301_120000")
    SyntheticRun().write(first)
    shutil.copytree(first, published(tmp_path, "Other", "array", "llama3-8b", "20260301_120000"))
    document, messages = judge(tmp_path)
    assert len(document["results"]) == 2
    assert messages.count("one of them is a copy.") == 1
