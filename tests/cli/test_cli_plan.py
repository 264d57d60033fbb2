"""``pytest-ckpt plan``: what a run would write, read and need, and its limits, without touching anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.run import foreseen
from pytest_ckpt.sizing.models import MODELS
from pytest_ckpt.targets.child import NoAnswerError
from pytest_ckpt.targets.posix import target
from pytest_ckpt.targets.posix.mounts import Mount
from pytest_ckpt.targets.posix.target import PosixTarget
from tests.support import CHECKOUT

pytestmark = pytest.mark.covers(commands=("plan",))

HEAVY = ("torch", "mpi4py", "jinja2", "numpy", "psutil", "pytest")

SMALL = ("--ckpt-model=llama3-8b", "--ckpt-mode=open", "--ckpt-processes=2", "--ckpt-profile=smoke")
# Bytes and files of one checkpoint in the published table of the workload.
FULL = {
    "llama3-8b": (8, 112_425_623_552, 16, "105 GB"),
    "llama3-70b": (64, 978_406_572_032, 128, "912 GB"),
    "llama3-405b": (512, 5_682_508_791_808, 1_544, "5.29 TB"),
    "llama3-1t": (1024, 16_564_174_094_592, 2_072, "15 TB"),
}
SUBSET = {"llama3-70b": 122_300_821_504, "llama3-405b": 105_811_532_800, "llama3-1t": 154_322_342_880}


@pytest.fixture
def plan(capsys):
    """Run ``pytest-ckpt plan --cluster=16000 …`` and return what it printed."""

    def run(*arguments, cluster="16000"):
        code = main(["plan", *([f"--cluster={cluster}"] if cluster else []), *arguments])
        output = capsys.readouterr()
        assert (code, output.err) == (0, "")
        return output.out

    return run


@pytest.fixture
def plan_json(plan):
    return lambda *arguments, **how: json.loads(plan("--json", *arguments, **how))


def command(*arguments, **how):
    words = [sys.executable, "-m", "pytest_ckpt.cli.main", *map(str, arguments)]
    return subprocess.run(words, cwd=how.pop("cwd", CHECKOUT), capture_output=True, text=True, check=False, **how)


# --- JSON ------------------------------------------------------------------------------------------------------------


def test_the_document_has_the_shape_that_scripts_rely_on(plan_json):
    document = plan_json("--ckpt-processes=1024")
    assert document["schema"] == "pytest-ckpt/plan/2"
    assert set(document["cluster"]) >= {
        "accelerators", "failures_per_day", "mttf_seconds", "checkpoints_per_failure", "interval_seconds", "overhead",
        "restore_budget", "save_limit_seconds", "load_limit_seconds",
    }  # fmt: skip
    assert [c["subject"] for c in document["checkpoints"]] == [f"{name}-full" for name in MODELS]
    for checkpoint in document["checkpoints"]:
        assert set(checkpoint) >= {
            "subject", "model", "mode", "processes", "scale", "bytes", "files", "save_bytes_per_second",
            "load_bytes_per_second", "space_bytes", "memory_bytes",
        }  # fmt: skip
        assert set(checkpoint["memory_bytes"]) >= {"largest_rank", "largest_host"}
        assert "ranks" not in checkpoint


def test_the_limits_of_a_cluster_of_16000(plan_json):
    cluster = plan_json()["cluster"]
    mttf = 54 * 86_400 / 419
    assert cluster["accelerators"] == 16_000
    assert cluster["failures_per_day"] == pytest.approx(7.759, abs=5e-4)
    assert cluster["mttf_seconds"] == pytest.approx(mttf)
    assert cluster["checkpoints_per_failure"] == 20
    assert cluster["interval_seconds"] == pytest.approx(mttf / 20)
    assert (cluster["overhead"], cluster["restore_budget"]) == (0.05, 0.01)
    assert cluster["save_limit_seconds"] == pytest.approx(27.84, abs=0.005)
    assert cluster["load_limit_seconds"] == pytest.approx(111.35, abs=0.005)


def test_sizes_files_and_rates_of_every_full_model(plan_json):
    document = plan_json("--ckpt-processes=1024", f"--ckpt-model={','.join(FULL)}")
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


@pytest.mark.parametrize("arguments", [("--ckpt-processes=1024",), ("--ckpt-processes=8",),
                                       ("--ckpt-mode=open", "--ckpt-processes=512"),
                                       ("--ckpt-engine=dcp", "--ckpt-processes=8"),
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
    (planned,) = plan_json("--ckpt-model=llama3-405b", f"--ckpt-gates={gates}")["checkpoints"]
    assert planned["mode"] == ("full" if extends == "posix-shared" else "subset")


def test_a_plan_at_reduced_scale_keeps_the_bandwidth_and_the_files(plan_json):
    (full,), (smoke,) = (plan_json("--ckpt-model=llama3-8b", p)["checkpoints"]
                         for p in ("--ckpt-profile=acceptance", "--ckpt-profile=smoke"))  # fmt: skip
    assert smoke["save_bytes_per_second"] == full["save_bytes_per_second"]
    assert smoke["files"] == full["files"]
    assert smoke["bytes"] == pytest.approx(full["bytes"] / 1000, rel=1e-3)
    assert smoke["save_limit_seconds"] == pytest.approx(full["save_limit_seconds"] / 1000, rel=1e-3)
    assert (smoke["operations"], full["operations"]) == (3, 10)


@pytest.mark.parametrize(("profile", "scale", "operations"),
                         [("acceptance", 1, 10), ("nightly", 0.01, 10), ("smoke", 0.001, 3)])  # fmt: skip
def test_profiles(plan_json, profile, scale, operations):
    for checkpoint in plan_json(f"--ckpt-profile={profile}")["checkpoints"]:
        assert (checkpoint["scale"], checkpoint["operations"]) == (scale, operations)


# --- text ------------------------------------------------------------------------------------------------------------


def test_the_text_tells_a_person_limits_sizes_and_needs(plan):
    text = plan("--ckpt-processes=1024")
    for words in (
        "cluster of 16,000 accelerators",
        "Llama 3 405B had 419 unexpected interruptions in 54 days on 16,000 accelerators",
        "llama3-405b-full: 512 ranks, 1,544 files, 5,682,508,791,808 bytes (5,292 GiB) a checkpoint, "
        "published as 5.29 TB",
        "save   within 27.8 s: 204 GB/s",
        "load   within 111 s: 51 GB/s",
        "10 saves, 10 loads, space",
        "a day",
        "a node of 8",
    ):
        assert words in text


@pytest.mark.parametrize(("engine", "says"), [
    # Its largest file is 12.9 GiB.
    ("stream", ("2,072 objects and _COMMITTED", "parts of 5 MiB", "at most 2,645 of one object", "requests a save")),
    ("torch", ("2,072 objects and _COMMITTED", "parts of 16 MiB", "at most 827 of one object")),
    ("dcp-s3fs", ("1,025 objects a checkpoint", "those of the engine's library, which commits by .metadata")),
])  # fmt: skip
def test_on_an_object_store_the_text_tells_keys_parts_and_requests(capsys, engine, says):
    words = ("--ckpt-target=s3://test/ckpt", "--ckpt-endpoint=embedded", "--cluster=16000", f"--ckpt-engine={engine}")
    # Whether this host has the memory for it is another question.
    main(["plan", *words, "--ckpt-model=llama3-1t", "--ckpt-processes=1024"])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  keys ")]
    assert "below s3://test/ckpt/pytest-ckpt-…/llama3-1t-full" in line
    assert not [words for words in says if words not in line], line


def test_with_ranks_the_text_names_every_file(plan):
    text = plan("--ranks", "--ckpt-model=llama3-8b")
    files = [line.split()[-1] for line in text.splitlines() if line.endswith(".pt")]
    assert len(files) == len(set(files)) == 16
    assert "zero_pp_rank_7_mp_rank_0_optim_states.pt" in files


def test_what_cannot_run_is_said_with_its_reason(plan):
    text = plan("--ckpt-mode=full", "--ckpt-processes=64")
    assert text.count("not run:") == 2
    assert "not run: llama3-405b in full has 512 ranks" in text


# --- what it costs and touches ---------------------------------------------------------------------------------------


def test_planning_imports_nothing_heavy():
    code = (
        "import sys; from pytest_ckpt.cli.main import main; "
        "main(['plan', '--cluster=16000', '--ckpt-target=/tmp', '--json', '--ranks', '--ckpt-processes=1024']); "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert not set(done.stderr.split()) & set(HEAVY)


def test_planning_touches_neither_the_target_nor_the_report_folder(plan, tmp_path, monkeypatch):
    target = tmp_path / "target"
    target.mkdir()
    before = target.stat()
    monkeypatch.chdir(tmp_path)
    plan(f"--ckpt-target={target}", "--ckpt-report=report", *SMALL)
    assert not any(target.iterdir())
    assert target.stat().st_mtime_ns == before.st_mtime_ns
    assert [p.name for p in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("form", ["text", "JSON"])
def test_a_target_that_does_not_exist_can_be_planned_for_and_is_the_first_obstacle(capsys, form):
    words = ["plan", "--cluster=64", "--ckpt-target=/nonexistent/array", *SMALL]
    assert main([*words, "--json"] if form == "JSON" else words) == 4
    out, error = capsys.readouterr()
    assert "error: --ckpt-target /nonexistent/array does not exist.\n  Mount the storage" in error
    if form == "JSON":
        document = json.loads(out)
        assert len(document["checkpoints"]) == 1
        found = [(o["grade"], o["text"]) for o in document["obstacles"]]
        assert found[0] == ("none", "--ckpt-target /nonexistent/array does not exist.")
        assert {grade for grade, _ in found[1:]} == {"rehearsal"}
    else:
        assert "llama3-8b-open-2" in out
        assert "grade possible: none, the run would not start; between this command and a certificate:\n" in out
        assert "does not exist. Remedy: Mount the storage and name a folder on it that exists.\n" in out


def test_a_target_that_does_not_answer_holds_a_plan_for_seconds_and_is_named(capsys, monkeypatch, tmp_path):
    def hangs(_spec, _text, seconds):
        raise NoAnswerError(4711, seconds)

    monkeypatch.setattr(foreseen, "check_in_time", hangs)
    assert main(["plan", "--cluster=64", f"--ckpt-target={tmp_path}", *SMALL]) == 4
    output = capsys.readouterr().out
    assert "did not answer for 10 s; process 4711 waits for it" in output
    assert "Remedy: Unmount it" in output


@pytest.mark.parametrize("form", ["text", "JSON"])
def test_a_target_in_memory_is_an_obstacle(plan, form, monkeypatch):
    # Of a host that has one there.
    monkeypatch.setattr(target, "mount_of", lambda _: Mount(
        mount_point="/dev/shm", file_system="tmpfs", source="tmpfs", options="rw"))  # fmt: skip
    monkeypatch.setattr(foreseen, "check_in_time", lambda *_: PosixTarget("/tmp").check())
    printed = plan("--ckpt-target=/dev/shm", *SMALL, *(["--json"] if form == "JSON" else []))
    assert "COLD will fail: the target is memory of this host" in printed
    assert "cached pages of the target can be counted" not in printed


def test_space_and_memory_are_obstacles_beside_all_others_each_with_its_remedy(capsys, tmp_path):
    words = ["--ckpt-model=llama3-1t", "--ckpt-mode=full", "--ckpt-processes=1024", "--ckpt-operations=2"]
    assert main(["plan", "--cluster=64", f"--ckpt-target={tmp_path}", *words]) == 4
    output = capsys.readouterr().out.partition("grade possible: none")[2].splitlines()
    for says, remedy in (
        ("Too little space on the target", "Give the target more space"),
        ("Too little memory on this host", "Spread the ranks over more hosts"),
        ("acceptance needs 10 of each", "--ckpt-profile=acceptance"),
    ):
        (line,) = [line for line in output if says in line]
        assert f"Remedy: {remedy}" in line
        assert line.endswith(".")
        assert not line.endswith("..")


@pytest.mark.parametrize("word", ["--ckpt-hosts=n1:512,n2:512", "--ckpt-launcher=srun"])
def test_the_memory_of_other_hosts_is_not_guessed(capsys, tmp_path, word):
    words = ["--ckpt-model=llama3-1t", "--ckpt-mode=full", "--ckpt-processes=1024", word]
    main(["plan", "--cluster=64", f"--ckpt-target={tmp_path}", *words])
    output = capsys.readouterr().out
    assert "Too little space" in output
    assert "Too little memory" not in output


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plan"], "--cluster is missing"),
        (["plan", "--cluster=0"], "--ckpt-cluster 0"),
        (["plan", "--cluster=16000", "--ckpt-overhead=100%"], "--ckpt-overhead 100%"),
        (["plan", "--cluster=16000", "--ckpt-model=lama3-8b"], "did you mean 'llama3-8b'?"),
        (["plan", "--cluster=16000", "--ckpt-processes=3"], "3 processes fit no layout"),
        (["plan", "--cluster=16000", "--ckpt-failures=mttf:x"], "--ckpt-failures mttf:x"),
        (["plan", "--cluster=16000", "--ckpt-config=/nonexistent.toml"], "it cannot be read"),
        (["plan", "--cluster=16000", "--no-such-option"], "--no-such-option"),
        (["plna", "--cluster=16000"], "plna"),
        ([], "command"),
    ],
)
def test_errors_end_with_4_and_say_what_is_wrong(arguments, says):
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (4, "")
    assert says in done.stderr
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_early_sees_no_traceback():
    """As in ``pytest-ckpt plan --ranks | head -1``, where there is more than a pipe holds."""
    reading, writing = os.pipe()
    words = [
        sys.executable,
        "-m",
        "pytest_ckpt.cli.main",
        "plan",
        "--cluster=16000",
        "--ranks",
        "--ckpt-processes=1024",
    ]
    with subprocess.Popen(words, cwd=CHECKOUT, stdout=writing, stderr=subprocess.PIPE, text=True) as process:
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        assert process.stderr.read() == ""


def test_the_version_is_that_of_the_package():
    from pytest_ckpt import __version__  # noqa: PLC0415

    assert command("--version").stdout.strip() == f"pytest-ckpt {__version__}"


def test_an_error_of_ours_is_one_sentence_and_exit_3(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def broken(*_):
        raise TypeError("must be real number, not str")

    monkeypatch.setattr("pytest_ckpt.sizing.plan.plan_run", broken)
    assert main(["plan", "--cluster=64"]) == 3
    output = capsys.readouterr().err
    assert "Traceback" not in output
    (line,) = output.splitlines()
    assert "This is an error of pytest-ckpt and says nothing of the storage: TypeError: must be real number" in line
    assert "Traceback" in Path(line.rpartition("its traceback is in ")[2].rstrip(".")).read_text()


def test_a_report_in_place_of_its_folder_is_told_where_it_lies(tmp_path, capsys):
    (tmp_path / "report.json").write_text("{}")
    assert main(["judge", str(tmp_path / "report.json")]) == 4
    assert f"Name the folder that it lies in: {tmp_path}" in capsys.readouterr().err


def test_parallelism_is_for_models_of_one_s_own(capsys):
    assert main(["plan", "--cluster=64", "--ckpt-model=llama3-8b", "--ckpt-parallel=dp=8,zero=3"]) == 4
    assert "every model of the workload is cut as the workload says" in capsys.readouterr().err


@pytest.mark.parametrize(("suite", "moved"), [
    ("performance", ""),
    # Three shifted, joined and split loads of one checkpoint each and a storm; turns of reading go by the clock.
    ("performance,contention", r", \d+ more steps beside them move at least [\d.]+ GB"),
    # At most 25 rounds until saves are steady: 25 x 112 MB.
    ("performance,endurance", ", 1 more step beside them moves at most 2.81 GB"),
    ("performance,contention,endurance", r", \d+ more steps beside them move about [\d.]+ GB"),
    # Saves and loads by 1, 2, 4 and 8 of the ranks: known before.
    ("performance,scaling", r", \d+ more steps beside them move [\d.]+ GB"),
])  # fmt: skip
def test_what_all_steps_of_a_run_move_is_foretold(plan, suite, moved):
    text = plan("--ckpt-model=llama3-8b", "--ckpt-profile=smoke", f"--ckpt-suite={suite}")
    found = re.search(r"in all: 3 saves write 337 MB and 3 loads read as much(.*): at most", text)
    assert found, text
    assert re.fullmatch(moved, found[1])
