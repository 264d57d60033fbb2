"""Model, mode and units of a published result are read from its records, or derived from an operation's bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.published.facts import Facts, facts_of, model_by_architecture, model_by_name
from pytest_ckpt.published.runs import recognize
from pytest_ckpt.published.times import rank_times
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.models import layout
from tests.support.synthetic_results import ARCHITECTURES, BYTES, GIB, SyntheticRun


def facts(run, *, metadata=False, config=False, summary=False, overrides=None):
    return facts_of(
        run.metadata() if metadata else None,
        {"workload": run.workload()} if config else None,
        overrides,
        run.summary() if summary else None,
    )


@pytest.mark.parametrize(("model", "processes"), BYTES)
@pytest.mark.parametrize("known", [{"config": True, "summary": True}, {"metadata": True}, {"summary": True}, {}])
def test_every_layout_is_recognized_from_whatever_there_is(model, processes, known):
    run = SyntheticRun(model=model, processes=processes)
    found = recognize(facts(run, **known), run.bytes, 0, "")
    mode = "full" if MODELS[model].processes == processes else "subset"
    assert found.layout == layout(model, mode=mode)
    assert found.source == ("bytes" if known in ({"summary": True}, {}) else "records")


def test_the_directories_name_serves_where_nothing_else_does():
    assert recognize(Facts(), None, 0, "llama3-8b").layout == layout("llama3-8b", mode="full")
    assert recognize(Facts(), None, 9, "llama3-70b").layout == layout("llama3-70b", mode="full")
    both = recognize(Facts(), None, 0, "llama3-70b")
    assert both.layout is None
    assert "llama3-70b-full or llama3-70b-subset" in both.because


def test_an_open_layout_is_recognized_by_its_number_of_processes():
    sixteen = layout("llama3-8b", mode="open", processes=16)
    assert recognize(Facts(model="llama3-8b", processes=16), sixteen.bytes, 15, "").layout == sixteen
    assert recognize(Facts(processes=16), sixteen.bytes, 15, "").layout == sixteen


@pytest.mark.parametrize(
    ("run", "moved", "highest", "expected_text"),
    [
        (SyntheticRun(), BYTES["llama3-70b", 64], 7, "the files are of different runs"),
        (replace(SyntheticRun(), size=50 * GIB), None, 7, "This fits no layout of the workload"),
        (SyntheticRun(), None, 12, "This fits no layout of the workload"),
    ],
)
def test_the_layout_is_not_guessed_if_none_fits(run, moved, highest, expected_text):
    found = recognize(facts(run, summary=True), moved, highest, "")
    assert found.layout is None
    assert expected_text in found.because


def test_without_model_and_size_nothing_is_guessed():
    assert recognize(Facts(), None, 0, "results").layout is None


@pytest.mark.parametrize("model", ARCHITECTURES)
def test_models_are_known_by_name_and_by_architecture(model):
    for name in (model, model.replace("-", "_"), ARCHITECTURES[model][0]):
        assert model_by_name(name) is MODELS[model]
    assert model_by_architecture(SyntheticRun(model=model, processes=8).workload()["model"]) is MODELS[model]


@pytest.mark.parametrize("name", ["", "llama", "llama3", "llama-7b", "bert", "unet3d", "results", "mixtral-8b"])
def test_others_are_not_taken_for_one(name):
    assert model_by_name(name) is None


def test_a_gigabyte_there_is_a_gibibyte():
    run = SyntheticRun()
    assert facts(run, summary=True).bytes == run.bytes == 112_425_623_552
    newer = run.summary()
    newer["metric"]["checkpoint_size_GiB"] = newer["metric"].pop("checkpoint_size_GB")
    assert facts_of(None, None, None, newer).bytes == run.bytes
    assert facts(run, summary=True).published["save"].gib_per_second == pytest.approx(run.bytes / GIB / 5.0)


@given(seconds=st.floats(0.01, 10_000), size=st.sampled_from(sorted(BYTES.values())))
def test_throughput_times_duration_gives_the_bytes(seconds, size):
    run = SyntheticRun(saves=1, loads=0, size=size, seconds=lambda *_: seconds)
    assert rank_times(run.stats([0])[0]).bytes == pytest.approx(size, rel=1e-6)


def test_a_mean_over_nothing_is_no_figure():
    published = facts(SyntheticRun(saves=0), summary=True).published
    assert "save" not in published
    assert published["load"].seconds == 4.0


@pytest.mark.parametrize("pause", [0, 1.5, 30])
def test_the_pause_comes_from_the_configuration_or_its_overrides(pause):
    assert facts(SyntheticRun(between=pause), config=True).seconds_between == pause
    assert facts(SyntheticRun(between=pause), metadata=True).seconds_between == pause
    assert (
        facts(SyntheticRun(), overrides=[f"++workload.checkpoint.time_between_checkpoints={pause}"]).seconds_between
        == pause
    )
    assert facts(SyntheticRun(), summary=True).seconds_between is None


@pytest.mark.parametrize("broken", [[], "text", 7, {"metric": []}, {"metric": {"checkpoint_size_GB": "105"}}])
def test_files_of_unknown_structure_give_no_facts(broken):
    found = facts_of(broken, broken, broken, broken)
    assert (found.bytes, found.processes, found.seconds_between) == (None, None, None)


def test_counts_beyond_any_run_are_mistakes():
    run = SyntheticRun()
    metadata, summary = run.metadata(), run.summary()
    metadata["num_processes"] = summary["num_accelerators"] = summary["num_hosts"] = 10**12
    metadata["parameters"]["checkpoint"]["num_checkpoints_write"] = 10**12
    found = facts_of(metadata, None, None, summary)
    assert (found.processes, found.host_count, found.planned) == (None, 1, {"load": 10})


def test_files_that_disagree_on_the_processes_are_named():
    metadata = SyntheticRun().metadata() | {"num_processes": 64}
    (found,) = facts_of(metadata, None, None, SyntheticRun().summary()).contradictions
    assert "mlpstorage's metadata says 64, summary.json says 8" in found
