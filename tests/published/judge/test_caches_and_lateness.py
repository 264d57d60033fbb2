"""``pytest-ckpt judge`` reports published loads that came from a cache, and last saves that may exceed the limit."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from tests.support.published_documents import outcomes, reason_for
from tests.support.synthetic_results import BYTES, GIB, SyntheticRun, published


def test_loads_from_a_cache_are_flagged_on_repeat_and_cold_with_their_numbers(judge, lines, tmp_path):
    run = SyntheticRun(seconds=lambda kind, n, _r: 5.0 if kind == "save" else (9.0 if n < 6 else 3.0))
    directory = run.write(tmp_path / "run")
    document = judge(directory)[1]
    for requirement, outcome in (("REPEAT", "failed"), ("COLD", "not run")):
        assert outcomes(document)[requirement] == outcome
        assert "Loads 6 to 10 took at most 3 s, loads 1 to 5 at least 9 s" in reason_for(document, requirement)
    assert "advisory failed: REPEAT" in lines(directory)


def test_an_operation_of_which_only_rank_0_is_known_is_not_compared_with_the_others(judge, tmp_path):
    run = SyntheticRun(seconds=lambda _kind, _n, rank: 20.0 if rank == 3 else 5.0)
    document = judge(run.write(tmp_path / "run", ranks=[0]))[1]
    assert document["published"]["signs"] == []
    assert outcomes(document)["REPEAT"] == "not run"
    assert reason_for(document, "REPEAT") == (
        "Coefficient of variation: 0.00226 % for saves and 0.00161 % for loads (limit 10 %). The slowest process of 2 "
        "of 20 operations is not known."
    )


def test_even_loads_are_not_flagged(judge, tmp_path):
    document = judge(SyntheticRun().write(tmp_path / "run"))[1]
    assert document["published"]["signs"] == []
    assert reason_for(document, "COLD").endswith(
        "Saves and loads are of one run, which does not clear them in between."
    )


NOT_KNOWN = (
    "It is not known whether MLPerf Storage's rule requires clearing them: the clients' number and memory are not "
    "recorded"
)
LARGE, SMALL = 4 * BYTES["llama3-8b", 8] / GIB, 0.2 * BYTES["llama3-8b", 8] / GIB


@pytest.mark.parametrize(
    ("memory", "expected_text"),
    [
        (
            [LARGE],
            "MLPerf Storage's rule requires clearing them between saves and loads (3 x one checkpoint of the node",
        ),
        ([1.5 * SMALL], "MLPerf Storage's rule requires no clearing"),
        ([], NOT_KNOWN),
        ([LARGE, LARGE], NOT_KNOWN),
    ],
)
def test_the_verdict_on_caches_compares_memory_with_the_checkpoint(judge, tmp_path, memory, expected_text):
    directory = SyntheticRun().write(tmp_path / "run")
    summary = json.loads((directory / "summary.json").read_text()) | {"host_memory_GB": memory}
    (directory / "summary.json").write_text(json.dumps(summary))
    document = judge(directory)[1]
    assert expected_text in reason_for(document, "COLD")
    assert outcomes(document)["COLD"] == "not run"
    detail = next(v["detail"] for v in document["requirements"] if v["id"] == "COLD")
    assert len(detail.splitlines()) == (2 if len(memory) == 1 else 0)


def test_the_size_of_the_page_caches_when_the_loads_began_is_reported(judge, tmp_path):
    write = SyntheticRun(loads=0).write(published(tmp_path, "M", "a", "llama3-8b", "1"), parts=("metadata",))
    read = SyntheticRun(saves=0, started=SyntheticRun().started + timedelta(hours=1))
    directory = read.write(published(tmp_path, "M", "a", "llama3-8b", "2"), parts=("metadata",))
    (file,) = directory.glob("*_metadata.json")
    metadata = json.loads(file.read_text())
    metadata["cluster_snapshots"] = {"start": {"hosts": [{"memory": {"cached": BYTES["llama3-8b", 8] // 50}}]}}
    file.write_text(json.dumps(metadata))
    message = reason_for(judge(tmp_path)[1], "COLD")
    assert (
        "Saves and loads are of different runs; the files do not show whether they were cleared in between." in message
    )
    assert "contained 2.25 GB when the loads' run began, 2 % of one checkpoint." in message
    for name in write.iterdir():
        name.unlink()
    assert "The saves are another run's, and the files do not show whether they were cleared" in reason_for(
        judge(tmp_path)[1], "COLD"
    )


def test_a_last_save_that_is_late_at_most_is_no_failure_and_not_met(judge, tmp_path):
    """If only the upper bound of the last save's time exceeds the limit, SAVE is "not run".

    The lower bound is the time of rank 0. The upper bound is the time until the first load starts.
    """
    directory = SyntheticRun(listing=30.0).write(tmp_path / "run", ranks=[0])
    code, document, _ = judge(directory)
    assert (code, outcomes(document)["SAVE"]) == (8, "not run")
    assert reason_for(document, "SAVE") == (
        "All others met 27.8 s. Save 10, the last, took at least 5 s and at most 35.3 s: the first load started then."
    )
    assert document["sufficient_up_to_accelerators"][0]["save"] < 16000


def test_a_last_save_that_may_be_late_is_reported_next_to_late_saves(judge, tmp_path):
    run = SyntheticRun(listing=30.0, seconds=lambda kind, n, r: 40.0 if (kind, n, r) == ("save", 2, 3) else 5.0)
    code, document, _ = judge(run.write(tmp_path / "run", ranks=[0]))
    assert (code, outcomes(document)["SAVE"]) == (1, "failed")
    assert reason_for(document, "SAVE").startswith("1 of 10 saves exceeded the limit of 27.8 s; slowest: save 2, 40 s")
    assert reason_for(document, "SAVE").endswith("at least 5 s and at most 35 s: the first load started then.")
