"""``pytest-ckpt plan`` prints the limits of a run, and the data, space and memory that the run would need."""

from __future__ import annotations

import json
import re

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.sizing.architectures import MODELS

pytestmark = pytest.mark.covers(commands=("plan",))
# Bytes and files of one checkpoint in the published table of the workload.
FULL = {
    "llama3-8b": (8, 112_425_623_552, 16, "105 GB"),
    "llama3-70b": (64, 978_406_572_032, 128, "912 GB"),
    "llama3-405b": (512, 5_682_508_791_808, 1_544, "5.29 TB"),
    "llama3-1t": (1024, 16_564_174_094_592, 2_072, "15 TB"),
}
SUBSET = {"llama3-70b": 122_300_821_504, "llama3-405b": 105_811_532_800, "llama3-1t": 154_322_342_880}


@pytest.fixture
def plan_json(plan):
    return lambda *arguments, **how: json.loads(plan("--json", *arguments, **how))


# --- JSON ------------------------------------------------------------------------------------------------------------


def test_the_document_has_the_shape_that_scripts_rely_on(plan_json):
    document = plan_json("--ckpt-ranks=1024")
    assert document["schema"] == "pytest-ckpt/plan/1"
    assert set(document["cluster"]) >= {
        "accelerators", "failures_per_day", "mttf_seconds", "checkpoints_per_failure", "interval_seconds",
        "save_budget", "load_budget", "save_limit_seconds", "load_limit_seconds",
    }  # fmt: skip
    assert [c["subject"] for c in document["checkpoints"]] == [f"{name}-full" for name in MODELS]
    for checkpoint in document["checkpoints"]:
        assert set(checkpoint) >= {
            "subject", "model", "mode", "processes", "scale", "bytes", "files", "save_bytes_per_second",
            "load_bytes_per_second", "space_bytes", "memory_bytes",
        }  # fmt: skip
        assert set(checkpoint["memory_bytes"]) >= {"largest_rank", "largest_host"}
        assert "ranks" not in checkpoint


def test_more_requests_in_flight_than_usual_need_more_memory(plan_json):
    def memory_of(*options):
        one = plan_json("--ckpt-model=llama3-8b", "--ckpt-engine=stream", *options)["checkpoints"][0]
        return one["memory_bytes"]["largest_rank"]

    assert memory_of("--ckpt-engine=depth=16") - memory_of("--ckpt-engine=depth=2") == 48 << 20


def test_the_plan_explains_how_the_number_of_requests_in_flight_is_chosen(plan):
    words = ("--ckpt-model=llama3-8b", "--ckpt-engine=stream")
    assert (
        "  depth  found by a ramp before the first save: 1, 2, 4, 8, 16 requests in flight on each rank, each with a "
        "save and a load of a scratch checkpoint of 2.15 GB, twice; at most 134 MB of buffers on each rank\n"
    ) in plan(*words)
    smoke = plan(*words, "--ckpt-profile=smoke")
    assert "  depth  2 requests in flight on each rank: a scratch file of a ramp would have 1 request, too" in smoke
    for set_or_none in ("stream:depth=16", "torch"):
        assert "  depth  " not in plan("--ckpt-model=llama3-8b", f"--ckpt-engine={set_or_none}")


def test_the_limits_of_a_cluster_of_16000(plan_json):
    cluster = plan_json()["cluster"]
    mttf = 54 * 86_400 / 419
    assert cluster["accelerators"] == 16_000
    assert cluster["failures_per_day"] == pytest.approx(7.759, abs=5e-4)
    assert cluster["mttf_seconds"] == pytest.approx(mttf)
    assert cluster["checkpoints_per_failure"] == 20
    assert cluster["interval_seconds"] == pytest.approx(mttf / 20)
    assert (cluster["save_budget"], cluster["load_budget"]) == (0.05, 0.01)
    assert cluster["save_limit_seconds"] == pytest.approx(27.84, abs=0.005)
    assert cluster["load_limit_seconds"] == pytest.approx(111.35, abs=0.005)


def test_sizes_files_and_rates_of_every_full_model(plan_json):
    document = plan_json("--ckpt-ranks=1024", f"--ckpt-model={','.join(FULL)}")
    limits = document["cluster"]
    for checkpoint in document["checkpoints"]:
        processes, size, files, published = FULL[checkpoint["model"]]
        assert (checkpoint["mode"], checkpoint["processes"], checkpoint["scale"]) == ("full", processes, 1.0)
        assert (checkpoint["bytes"], checkpoint["files"], checkpoint["published"]) == (size, files, published)
        assert checkpoint["save_bytes_per_second"] == pytest.approx(size / limits["save_limit_seconds"])
        assert checkpoint["load_bytes_per_second"] == pytest.approx(size / limits["load_limit_seconds"])
        assert checkpoint["space_bytes"] == pytest.approx(10 * size, rel=1e-3)
        assert checkpoint["space_bytes"] > 10 * size
        assert checkpoint["memory_bytes"]["largest_host"] > size


@pytest.mark.parametrize("arguments", [("--ckpt-ranks=1024",), ("--ckpt-ranks=8",),
                                       ("--ckpt-mode=open", "--ckpt-ranks=512"),
                                       ("--ckpt-engine=dcp", "--ckpt-ranks=8"),
                                       ("--ckpt-profile=smoke",)])  # fmt: skip
def test_the_files_of_all_ranks_add_up_to_the_checkpoint(plan_json, arguments):
    for checkpoint in plan_json("--ranks", *arguments)["checkpoints"]:
        ranks = checkpoint["ranks"]
        assert [rank["rank"] for rank in ranks] == list(range(checkpoint["processes"]))
        assert sum(rank["bytes"] for rank in ranks) == checkpoint["bytes"]
        assert sum(file["bytes"] for rank in ranks for file in rank["files"]) == checkpoint["bytes"]
        names = [file["name"] for rank in ranks for file in rank["files"]]
        assert len(names) == len(set(names)) == checkpoint["files"]


def test_subsets_have_the_published_bytes(plan_json):
    checkpoints = plan_json("--ckpt-mode=subset")["checkpoints"]
    assert {c["model"]: c["bytes"] for c in checkpoints if c["model"] in SUBSET} == SUBSET


@pytest.mark.parametrize("extends", ["posix-shared", "posix-local"])
def test_a_table_of_ones_own_is_planned_as_the_one_that_it_extends(plan_json, tmp_path, extends):
    gates = tmp_path / "ours.toml"
    gates.write_text(f'name = "ours"\nextends = "{extends}"\n')
    (planned,) = plan_json("--ckpt-model=llama3-405b", f"--ckpt-gate-table={gates}")["checkpoints"]
    assert planned["mode"] == ("full" if extends == "posix-shared" else "subset")


def test_a_plan_at_reduced_scale_keeps_the_bandwidth_and_the_files(plan_json):
    (full,), (smoke,) = (plan_json("--ckpt-model=llama3-8b", p)["checkpoints"]
                         for p in ("--ckpt-profile=acceptance", "--ckpt-profile=smoke"))  # fmt: skip
    assert smoke["save_bytes_per_second"] == full["save_bytes_per_second"]
    assert smoke["files"] == full["files"]
    assert smoke["bytes"] == pytest.approx(full["bytes"] / 1000, rel=1e-3)
    assert smoke["save_limit_seconds"] == pytest.approx(full["save_limit_seconds"] / 1000, rel=1e-3)
    assert (smoke["operations"], full["operations"]) == (3, 10)


def test_a_confidence_sets_the_number_of_operations_and_the_plan_shows_their_time_and_bytes(plan, plan_json):
    words = ("--ckpt-model=llama3-8b", "--ckpt-confidence=95/99")
    assert [c["operations"] for c in plan_json(*words)["checkpoints"]] == [299]
    printed = plan(*words)
    assert (
        "  sure   if all meet the limit: 95 % confident that 99 % of saves take at most 27.8 s and 99 % of loads "
        "at most 111 s, if they are independent\n"
        "         all 299 checkpoints stay until they are loaded; --ckpt-keep-last=2 keeps two and loads them in turn\n"
    ) in printed
    assert "in all: 299 saves write 33.6 TB and 299 loads read as much: at most 11.6 h if" in printed
    with_a_miss = plan("--ckpt-model=llama3-8b", "--ckpt-confidence=95/99:misses=1")
    assert "  sure   if all but 1 of the 473 saves, and of the 473 loads, meet the limit: 95 %" in with_a_miss
    assert "in all: 473 saves write 53.2 TB and 473 loads read as much: at most 18.3 h if" in with_a_miss
    kept = plan(*words, "--ckpt-keep-last=2")
    assert "stay until they are loaded" not in kept
    assert "  sure   " not in plan("--ckpt-model=llama3-8b")


@pytest.mark.parametrize(("profile", "scale", "operations"),
                         [("acceptance", 1, 10), ("nightly", 0.01, 10), ("smoke", 0.001, 3)])  # fmt: skip
def test_profiles(plan_json, profile, scale, operations):
    for checkpoint in plan_json(f"--ckpt-profile={profile}")["checkpoints"]:
        assert (checkpoint["scale"], checkpoint["operations"]) == (scale, operations)


# --- text ------------------------------------------------------------------------------------------------------------


def test_the_text_reports_limits_sizes_and_needs(plan):
    text = plan("--ckpt-ranks=1024")
    for words in (
        "cluster of 16,000 accelerators",
        "Llama 3 405B had 419 unexpected interruptions in 54 days on 16,000 accelerators",
        "llama3-405b-full: 512 ranks, 1,544 files, 5,682,508,791,808 bytes (5.68 TB) a checkpoint, 5,292 GiB, "
        "published as 5.29 TB",
        "save   within 27.8 s: 204 GB/s",
        "load   within 111 s: 51 GB/s",
        "10 saves, 10 loads, space",
        "a day",
        "a node of 8",
    ):
        assert words in text


@pytest.mark.parametrize(("engine", "expected_text"), [
    # The largest file of a checkpoint is 12.9 GiB.
    ("stream", ("2,072 objects and _COMMITTED", "parts of 5 MiB", "at most 2,645 of one object", "requests a save")),
    ("torch", ("2,072 objects and _COMMITTED", "parts of 16 MiB", "at most 827 of one object")),
    ("dcp-s3fs", ("1,025 objects a checkpoint", "commits by .metadata")),
])  # fmt: skip
def test_on_an_object_store_the_text_reports_keys_parts_and_requests(capsys, engine, expected_text):
    words = ("--ckpt-target=s3://test/ckpt", "--ckpt-endpoint=embedded", "--cluster=16000", f"--ckpt-engine={engine}")
    # The exit code is ignored: this host may lack the memory for the run.
    main(["plan", *words, "--ckpt-model=llama3-1t", "--ckpt-ranks=1024"])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  keys ")]
    assert "below s3://test/ckpt/pytest-ckpt-…/llama3-1t-full" in line
    assert not [words for words in expected_text if words not in line], line


def test_with_ranks_the_text_names_every_file(plan):
    text = plan("--ranks", "--ckpt-model=llama3-8b")
    files = [line.split()[-1] for line in text.splitlines() if line.endswith(".pt")]
    assert len(files) == len(set(files)) == 16
    assert "zero_pp_rank_7_mp_rank_0_optim_states.pt" in files


# --- errors ----------------------------------------------------------------------------------------------------------


def test_parallelism_is_for_models_of_one_s_own(capsys):
    assert main(["plan", "--cluster=64", "--ckpt-model=llama3-8b", "--ckpt-parallel=dp=8,zero=3"]) == 4
    assert "the workload defines how its models are sharded" in capsys.readouterr().err


@pytest.mark.parametrize(("suite", "moved"), [
    ("performance", ""),
    # The suite loads one checkpoint shifted, joined, split and as a storm. The paced saves follow the clock.
    ("performance,contention", r", \d+ more steps in addition move at least [\d.]+ GB"),
    # At most 25 rounds until saves are steady: 25 x 112 MB is 2.81 GB.
    ("performance,endurance", ", 1 more step in addition moves at most 2.81 GB"),
    ("performance,contention,endurance", r", \d+ more steps in addition move about [\d.]+ GB"),
    # 1, 2, 4 and 8 of the ranks save and load, so the volume is known in advance.
    ("performance,scaling", r", \d+ more steps in addition move [\d.]+ GB"),
])  # fmt: skip
def test_the_plan_predicts_the_bytes_that_all_steps_move(plan, suite, moved):
    text = plan("--ckpt-model=llama3-8b", "--ckpt-profile=smoke", f"--ckpt-suite={suite}", "--cluster=64")
    found = re.search(r"in all: 3 saves write 337 MB and 3 loads read as much(.*): at most", text)
    assert found, text
    assert re.fullmatch(moved, found[1])
