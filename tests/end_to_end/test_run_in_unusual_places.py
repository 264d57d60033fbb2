"""Targets and report directories behind links, with unusual names or old files. Existing files stay unchanged."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.support.end_to_end import DIRECTORY, SUBJECT, TINY, TORCH, Runner

NOTHING = "nothing_is_called_like_this"

# Run as the command that drops caches, so between saves and loads. The checkpoint behind the link is complete.
PLANT = """
import os, pathlib, sys

run, = pathlib.Path(sys.argv[1]).glob("pytest-ckpt-*/*/")
outside = pathlib.Path(sys.argv[2])
(run / "checkpoint-0001" / "letters").symlink_to(outside / "letters")
(run / "checkpoint-0001" / "notes.txt").write_text("not of this run")
(run / "checkpoint-0002").rename(outside / "moved")
(run / "checkpoint-0002").symlink_to(outside / "moved")
for file in run.glob("*/*.pt"):
    os.posix_fadvise(os.open(file, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
"""


@pytest.mark.thorough
def test_a_link_to_the_target_works(runner: Runner) -> None:
    link = runner.home / "link"
    link.symlink_to(runner.target)
    run = runner.run(*TINY, target=link)
    assert run.code == 0, run.text
    assert run.left_on_target == []
    assert f"ckpt target: {link} (" in run.text


def test_spaces_and_letters_of_any_language_in_both_directories_work(runner: Runner) -> None:
    target = runner.home / "Ablage für Prüfung"
    target.mkdir()
    report = runner.home / "Bericht für den Käufer 検証"
    run = runner.run(*TINY, target=target, report=report)
    assert run.code == 0, run.text
    assert run.left_on_target == []
    assert str(target) in run.text
    assert "Ablage für Prüfung" in (report / "certificate.html").read_text()
    assert run.document["environment"]["target"]["location"] == str(target)
    assert run.document["run"]["directory"] == str(report)


@pytest.mark.thorough
def test_a_file_of_the_current_directory_replaces_no_module_of_the_ranks(runner: Runner) -> None:
    # Only ranks import this module.
    (runner.home / "mpi4py.py").write_text("raise RuntimeError('of the current directory')\n")
    run = runner.run(*TINY)
    assert run.code == 0, run.text


@pytest.mark.thorough
def test_a_report_that_exists_is_kept_under_another_name(runner: Runner) -> None:
    first = runner.run(*TINY, "-k", NOTHING)
    kept = {p.name: p.read_bytes() for p in first.report.iterdir() if p.is_file()}
    second = runner.run(*TINY, "-k", NOTHING)
    assert second.run_id != first.run_id
    (aside,) = (p for p in runner.home.glob("ckpt-report-*") if p.is_dir())
    assert {p.name: p.read_bytes() for p in aside.iterdir() if p.is_file()} == kept
    assert f"the report of an earlier run is now {aside}" in second.text


@pytest.mark.thorough
def test_checkpoints_that_are_kept_are_reported_and_can_be_loaded(runner: Runner) -> None:
    import torch  # noqa: PLC0415 - every worker collects this module, and torch takes seconds

    run = runner.run(*TINY, TORCH, "--ckpt-keep-files")
    assert run.code == 0, run.text
    (directory,) = runner.target.iterdir()
    left = f"{directory} is kept because of --ckpt-keep-files"
    assert run.document["left_behind"] == [left]
    assert f"left on the target: {left}" in run.text
    assert sorted(p.name for p in (directory / SUBJECT).iterdir()) == ["checkpoint-0001", "checkpoint-0002"]
    files = sorted((directory / SUBJECT / "checkpoint-0002").iterdir())
    assert len(files) == 4
    states = [torch.load(file, weights_only=True) for file in files]
    loaded_bytes = sum(t.numel() * t.element_size() for state in states for t in state.values())
    assert loaded_bytes == run.measurement()["bytes"]


@pytest.mark.thorough
def test_files_of_other_programs_remain_and_no_link_is_followed(runner: Runner) -> None:
    outside = runner.home / "outside"
    (outside / "letters").mkdir(parents=True)
    (outside / "letters" / "letter.txt").write_text("dear customer")
    (runner.target / "other.bin").write_bytes(b"of another user")
    script = runner.home / "plant.py"
    script.write_text(PLANT)
    command = shlex.join([sys.executable, str(script), str(runner.target), str(outside)])
    run = runner.run(*TINY, f"--ckpt-drop-caches={command}")

    assert (outside / "letters" / "letter.txt").read_text() == "dear customer"
    assert len(list((outside / "moved").iterdir())) == 4
    assert (runner.target / "other.bin").read_bytes() == b"of another user"
    (directory,) = (p for p in runner.target.iterdir() if p.is_dir())
    there = sorted(p.relative_to(directory / DIRECTORY).as_posix() for p in (directory / DIRECTORY).glob("*/*"))
    assert [p for p in there if p.startswith("checkpoint-0001")] == [
        "checkpoint-0001/letters",
        "checkpoint-0001/notes.txt",
    ]
    assert (directory / DIRECTORY / "checkpoint-0001" / "notes.txt").read_text() == "not of this run"
    for name in ("checkpoint-0001/letters", "checkpoint-0001/notes.txt", "checkpoint-0002"):
        text = f"{Path(directory, DIRECTORY, name)} was not removed: this run did not make it"
        assert text in run.document["left_behind"]
        assert f"left on the target: {text}" in run.text
