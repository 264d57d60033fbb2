"""Targets whose cached pages the kernel cannot count. The run reports this at its start, with a remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.judging.cold import OTHER_PROOFS
from tests.support.end_to_end import TINY, Runner
from tests.support.machine import need_fuse
from tests.support.targets.misbehaving import misbehaving

BLIND = "COLD cannot be proven: no call counts cached pages of the target"
COMMAND = ("--cluster=1", "--ckpt-gate-table=speed-only", *(word for word in TINY if not word.startswith("--cluster")))


@pytest.fixture
def blind(tmp_path: Path) -> Iterator[Path]:
    """A FUSE mount with direct I/O, whose data do not enter the kernel's page cache."""
    need_fuse()
    with misbehaving(tmp_path, direct_io=True) as target:
        yield target.path


def test_the_first_lines_of_a_run_name_it_with_what_helps(runner: Runner, blind: Path) -> None:
    """Before any test starts, a run prints that cached pages cannot be counted, and how to remedy this."""
    run = runner.run(*TINY, "-k", "no_test_is_called_so", target=blind)
    (line,) = (line for line in run.text.splitlines() if BLIND in line)
    assert line.startswith("ckpt obstacle: ")
    assert "Remedy: a mount that keeps read pages in the kernel's page cache" in line
    assert OTHER_PROOFS in line
    assert list(blind.iterdir()) == []
    run = runner.run(*TINY, "-k", "no_test_is_called_so", "--ckpt-drop-caches=true", target=blind)
    assert BLIND not in run.text


@pytest.mark.thorough
def test_doctor_names_it_and_plan_which_writes_nothing_says_who_tries_it(
    capsys: pytest.CaptureFixture[str], blind: Path, tmp_path: Path
) -> None:
    main(["doctor", "--json", f"--ckpt-target={blind}", *COMMAND])
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [f["remedy"] for f in found if f["name"] == "certificate" and f["description"].startswith(BLIND)]
    main(["doctor", "--json", f"--ckpt-target={tmp_path}", *COMMAND])
    assert BLIND not in capsys.readouterr().out
    before = blind.stat().st_mtime_ns
    main(["plan", f"--ckpt-target={blind}", *COMMAND])
    assert "not tried: whether cached pages of the target can be counted" in capsys.readouterr().out
    assert (list(blind.iterdir()), blind.stat().st_mtime_ns) == ([], before)


@pytest.mark.thorough
def test_the_announced_grade_is_the_final_grade(runner: Runner, blind: Path) -> None:
    run = runner.run(*TINY, target=blind)
    assert BLIND in run.text
    assert run.verdict("COLD")["outcome"] == "not run"
    assert run.code == 8
