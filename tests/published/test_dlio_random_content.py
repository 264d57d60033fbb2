"""Published files with any content give a message or a judgement, but never a traceback or an invalid number."""

from __future__ import annotations

import json
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_ckpt.cli import main as cli
from pytest_ckpt.published.facts import facts_of
from pytest_ckpt.published.times import logged_times, rank_times
from tests.support.selection import examples
from tests.support.synthetic_results import SyntheticRun

NUMBERS = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.sampled_from([10**400, -(10**400), 2**63, 0, -1, 1e308])
)
VALUES = st.one_of(st.none(), NUMBERS, st.text(max_size=20), st.just("2026-03-01T12:00:00.5"))
ANYTHING = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
STATISTICS = st.dictionaries(
    st.sampled_from(["1", "2", ""]),
    st.dictionaries(
        st.sampled_from(["start", "end", "save_ckpt1", "save_ckpt2", "load_ckpt1", "load_ckpt999999", "block1", "x"]),
        st.dictionaries(st.sampled_from(["start", "end", "duration", "throughput"]), VALUES) | ANYTHING,
    )
    | ANYTHING,
)
CHECKPOINT = st.dictionaries(
    st.sampled_from(["time_between_checkpoints", "num_checkpoints_write", "fsync", "mode", "checkpoint_folder"]), VALUES
)
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "num_processes": VALUES,
        "model": VALUES,
        "benchmark_type": VALUES,
        "parameters": st.fixed_dictionaries({"checkpoint": CHECKPOINT | ANYTHING, "model": ANYTHING}) | ANYTHING,
        "system_info": st.fixed_dictionaries({"hosts": st.lists(ANYTHING, max_size=3)}) | ANYTHING,
    },
)
SUMMARY = st.fixed_dictionaries(
    {},
    optional={
        "num_accelerators": VALUES,
        "num_hosts": VALUES,
        "hostname": VALUES,
        "host_memory_GB": ANYTHING,
        "metric": st.dictionaries(
            st.sampled_from(["checkpoint_size_GB", "save_checkpoint_duration_mean_seconds"]), VALUES
        )
        | ANYTHING,
    },
)


@given(STATISTICS | ANYTHING)
def test_any_statistics_are_read(stats):
    for timing in rank_times(stats).timings.values():
        assert timing.seconds > 0


@given(st.lists(st.text() | st.just("2026-13-01T99:00:00 Starting saving checkpoint 1"), max_size=5))
def test_any_log_is_read(lines):
    logged_times(lines)


@given(METADATA | ANYTHING, ANYTHING, ANYTHING, SUMMARY | ANYTHING)
def test_any_facts_are_read(metadata, config, overrides, summary):
    facts = facts_of(metadata, config, overrides, summary)
    assert facts.processes is None or facts.processes > 0


@pytest.fixture(scope="module")
def result_directory(tmp_path_factory):
    return SyntheticRun().write(tmp_path_factory.mktemp("made") / "run", parts=())


@given(stats=STATISTICS | ANYTHING, metadata=METADATA | ANYTHING, summary=SUMMARY | ANYTHING)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_directory_ends_in_a_judgement_or_a_message(result_directory, tmp_path, capsys, stats, metadata, summary):
    directory = tmp_path / "run"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(result_directory, directory)
    (directory / "3_per_epoch_stats.json").write_text(json.dumps(stats))
    (directory / "checkpointing_metadata.json").write_text("{")
    (directory / "checkpointing_1_metadata.json").write_text(json.dumps(metadata))
    (directory / "summary.json").write_text(json.dumps(summary))
    code = cli.main(["judge", str(directory), "--cluster=16000", "--json"])
    output = capsys.readouterr()
    if code == 4:
        assert output.err.startswith("pytest-ckpt: error: ")
    else:
        assert code in (1, 8)
        assert json.loads(output.out, parse_constant=pytest.fail)["grade"] != "certified"


def test_a_rank_that_the_run_did_not_have_is_left_out(tmp_path, capsys):
    directory = SyntheticRun().write(tmp_path / "run")
    shutil.copy(directory / "3_per_epoch_stats.json", directory / "12_per_epoch_stats.json")
    cli.main(["judge", str(directory), "--cluster=16000", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["measurements"][0]["basis"] == "all ranks"
    assert {m["path"]: m["text"] for m in document["published"]["messages"]} == {
        "12_per_epoch_stats.json": "left out: rank 12 does not exist among 8."
    }
