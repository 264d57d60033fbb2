"""Published results with bad links, names, sizes or configurations: a message names the bad file or directory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pytest_ckpt.cli import main as cli
from tests.support.deep_directories import create_too_deep
from tests.support.synthetic_results import SyntheticRun, published


def test_links_are_named_and_not_followed(judge, tmp_path):
    SyntheticRun().write(tmp_path / "results" / "run")
    (tmp_path / "results" / "loop").symlink_to(tmp_path)
    (tmp_path / "results" / "again").symlink_to(tmp_path / "results" / "run")
    document, messages = judge(tmp_path)
    assert len(document["measurements"][0]["operations"]) == 20
    assert "results/loop: it is a link to a directory, and was not followed" in messages
    assert "results/again: it is a link to a directory, and was not followed" in messages


HOSTILE = "a\x1b[2Jb\nc\u202ed"


def test_names_that_steer_a_terminal_are_printed_as_text(tmp_path, capsys):
    run = SyntheticRun().write(published(tmp_path, HOSTILE, HOSTILE, "llama3-8b", "1"), ranks=[0])
    SyntheticRun().write(published(tmp_path, "Other", "array", "llama3-8b", "1"), ranks=[0])
    (run / "summary.json").write_text("{")
    for where in (tmp_path, run):
        cli.main(["judge", str(where), "--cluster=16000", f"--html={tmp_path / 'page.html'}"])
        output = capsys.readouterr()
        page = (tmp_path / "page.html").read_text()
        for text in (output.out, output.err, page):
            assert not {"\x1b", "\u202e"} & set(text)
    assert cli.main(["judge", str(run / "nothing\x1b[2J"), "--cluster=16000"]) == 4
    assert "\x1b" not in capsys.readouterr().err


def test_names_that_are_no_text_are_printed_all_the_same(tmp_path, capsysbinary):
    SyntheticRun().write(
        published(tmp_path, os.fsdecode(b"\xff\xfe"), os.fsdecode(b"\xff"), "llama3-8b", "1"), ranks=[0]
    )
    for words in ([], ["--json"], [f"--html={tmp_path / 'page.html'}"]):
        assert cli.main(["judge", str(tmp_path), "--cluster=16000", *words]) == 8
        capsysbinary.readouterr().out.decode("utf-8")
    assert (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "content",
    [
        b"workload:\n  checkpoint: &a [*a, *a]\n",
        b"a: &a [x,x,x]\nb: &b [*a,*a,*a]\nc: &c [*b,*b,*b]\nworkload: {checkpoint: {checkpoint_folder: [*c,*c]}}\n",
        b"workload: " + b"[" * 5_000,
        b"workload: !!python/object/apply:os.system ['true']\n",
        b"\xff\xfe\x00",
        b"workload: {checkpoint: {num_checkpoints_write: 99999999999999999999999, time_between_checkpoints: .nan}}\n",
        b"workload: {checkpoint: {time_between_checkpoints: {type: normal, mean: 5, stdev: 1}}}\n",
        b"? [1, 2]\n: 3\n",
        b"2026-13-45: 1\n",
        b"",
    ],
)
def test_any_configuration_ends_in_a_judgement(judge, tmp_path, content):
    directory = SyntheticRun().write(tmp_path / "run", ranks=[0], parts=("summary",))
    (directory / "dlio_config").mkdir()
    (directory / "dlio_config" / "config.yaml").write_bytes(content)
    document, _ = judge(directory)
    assert document["grade"] == "rehearsal"


def test_pauses_that_were_drawn_leave_only_rank_0s_times(judge, tmp_path):
    directory = SyntheticRun().write(tmp_path / "run", ranks=[0], parts=("summary",))
    (directory / "dlio_config").mkdir()
    (directory / "dlio_config" / "config.yaml").write_text(
        "workload: {checkpoint: {time_between_checkpoints: {type: normal, mean: 5, stdev: 1}}}\n"
    )
    document, messages = judge(directory)
    assert document["measurements"][0]["basis"] == "rank 0 only"
    assert "every pause was drawn at random" in messages


@pytest.mark.parametrize("inside", ["checkpointing/checkpointing", "results/a/checkpointing/checkpointing", "training"])
def test_directories_of_any_names_are_no_trap(judge, tmp_path, inside):
    directory = SyntheticRun().write(tmp_path / inside)
    document, _ = judge(directory)
    assert document["measurements"][0]["basis"] == "all ranks"
    document, _ = judge(tmp_path)
    assert document["measurements"][0]["basis"] == "all ranks"


def test_ranks_beyond_any_run_are_not_read(judge, tmp_path):
    directory = SyntheticRun().write(tmp_path / "run")
    (directory / "9999999_per_epoch_stats.json").write_text("{")
    document, messages = judge(directory)
    assert document["measurements"][0]["basis"] == "all ranks"
    assert "9999999_per_epoch_stats.json: left out: no run has so many ranks" in messages


def test_a_file_that_is_far_too_large_is_not_read(judge, tmp_path):
    directory = SyntheticRun().write(tmp_path / "run", ranks=range(1, 8))
    for name in ("0_per_epoch_stats.json", "dlio_config/config.yaml", "dlio.log"):
        with (directory / name).open("wb") as file:
            file.truncate(1 << 40)
    document, messages = judge(directory)
    assert document["measurements"][0]["basis"] == "inferred from rank 0"
    assert messages.count("far too large for what it should be") == 3


def test_a_directory_that_cannot_be_read_is_named(tmp_path, judge):
    """A directory whose path is too long for the kernel is named in a message.

    The other result of the tree is judged.
    """
    SyntheticRun().write(tmp_path / "run")
    create_too_deep(tmp_path)
    document, messages = judge(tmp_path)
    assert document["measurements"][0]["basis"] == "all ranks"
    assert "d: it cannot be read: File name too long." in messages


@pytest.mark.parametrize("words", [["x" * 5000], [".", "--html=/nowhere/page.html"], [".", "--html=."]])
def test_a_refusal_by_the_kernel_is_reported(tmp_path, monkeypatch, capsys, words):
    SyntheticRun().write(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["judge", *words, "--cluster=16000"]) == 4
    assert capsys.readouterr().err.startswith("pytest-ckpt: error: ")


def test_names_that_the_terminal_cannot_show_are_escaped(tmp_path):
    SyntheticRun().write(published(tmp_path, "Größe", "日本", "llama3-8b", "1"), ranks=[0])
    command = [sys.executable, "-m", "pytest_ckpt.cli.main", "judge", str(tmp_path), "--cluster=16000"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (8, b"")
    assert rb"Gr\xf6\xdfe \u65e5\u672c" in done.stdout


@pytest.mark.parametrize(
    ("name", "content", "expected_text"),
    [
        ("dlio_config/config.yaml", b"a: 1\n" * 60_000, "far too large for what it should be"),
        ("1_per_epoch_stats.json", b"[" + b"{}," * 2_000_001 + b"0]", "it has more than 2,000,000 values"),
    ],
)
def test_input_that_would_take_minutes_or_gigabytes_is_not_read(judge, tmp_path, name, content, expected_text):
    directory = SyntheticRun().write(tmp_path / "run")
    (directory / name).write_bytes(content)
    document, messages = judge(directory)
    assert document["grade"] != "certified"
    assert f"{name}: " in messages
    assert expected_text in messages


@pytest.mark.parametrize(
    "content", ["a: !!int\n", "? [?a]\n: b..\n<<: {q: 1}\n", "%YAML 1.25\n---\na: 1\n", "a: {\n", "a: 1\na: 2\n"]
)
def test_a_configuration_that_is_no_yaml_is_one_message(judge, tmp_path, content):
    directory = SyntheticRun().write(tmp_path / "run")
    (directory / "dlio_config" / "config.yaml").write_text(content)
    _, messages = judge(directory)
    assert "config.yaml: it is not YAML: " in messages
