"""Options in a real pytest run: pytest's configuration files are read. The report states the source of each value."""

from __future__ import annotations

import json

import pytest

from pytest_ckpt.grading.catalogue import REQUIREMENTS
from tests.support.option_examples import settings_of

TINY = "--ckpt-model=llama3-8b", "--ckpt-mode=open", "--ckpt-ranks=1", "--ckpt-profile=smoke"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", "[pytest]\nckpt_target = {target}\nckpt_cluster = 0\n"),
        ("tox.ini", "[pytest]\nckpt_target = {target}\nckpt_cluster = 0\n"),
        ("pyproject.toml", '[tool.pytest.ini_options]\nckpt_target = "{target}"\nckpt_cluster = 0\n'),
    ],
)
def test_pytest_s_own_files_are_read(run_pytest, pytester, name, text):
    target = pytester.mkdir("target")
    (pytester.path / name).write_text(text.format(target=target))
    result = run_pytest()
    assert result.ret == 4
    assert "--ckpt-cluster 0 (in pytest configuration)" in result.stderr.str()


def test_a_target_in_the_toml_file_is_enough(run_pytest, pytester):
    (pytester.path / "array.toml").write_text('ckpt_target = "missing"\nckpt_cluster = 16000\n')
    result = run_pytest("--ckpt-config=array.toml")
    assert result.ret == 4
    assert "missing does not exist" in result.stderr.str()


def test_an_empty_configuration_value_counts_as_not_given(run_pytest, pytester):
    pytester.mkdir("target")
    (pytester.path / "pytest.ini").write_text("[pytest]\nckpt_save_budget =\nckpt_target =\n")
    assert run_pytest().ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_the_report_gives_the_source_of_every_value_and_discloses_unusual_values(run_pytest, pytester):
    pytester.mkdir("target")
    (pytester.path / "array.toml").write_text('ckpt_save_budget = "3%"\nckpt_load_budget = "3%"\n')
    (pytester.path / "pytest.ini").write_text(
        "[pytest]\nckpt_cluster = 24000\nckpt_save_budget = 4%\nckpt_load_budget = 4%\nckpt_config = array.toml\n"
    )
    result = run_pytest("-k", "no_test_has_this_name", "--ckpt-target=target", "--ckpt-load-budget=2%", *TINY)
    assert result.ret == 8
    report = json.loads((pytester.path / "ckpt-report" / "report.json").read_text())
    stated = {s["option"]: (s["value"], s["source"]) for s in report["settings"]}
    assert stated["--ckpt-target"] == ("target", "command line")
    assert stated["--ckpt-cluster"] == ("24000", "pytest configuration")
    assert stated["--ckpt-save-budget"] == ("3%", "array.toml")
    assert stated["--ckpt-load-budget"] == ("2%", "command line")
    assert stated["--ckpt-failures"] == ("llama3", "default")
    assert (report["cluster"]["accelerators"], report["cluster"]["save_budget"]) == (24_000, 0.03)
    assert report["cluster"]["load_budget"] == 0.02
    assert set(report["disclosures"]) == {
        "--ckpt-save-budget 3% (default 5%; from array.toml)",
        "--ckpt-load-budget 2% (default 1%; from command line)",
        "--ckpt-model llama3-8b (default all; from command line)",
        "--ckpt-mode open (default auto; from command line)",
        "--ckpt-ranks 1 (default not set; from command line)",
        "--ckpt-profile smoke (default acceptance; from command line)",
    }


def test_listing_the_tests_launches_nothing_and_writes_nothing(run_pytest, pytester):
    target = pytester.mkdir("target")
    asked = sum(r.suite == "performance" and r.is_requested(settings_of()) for r in REQUIREMENTS.values())
    result = run_pytest(
        "--collect-only", "-q", "--ckpt-target=target", "--cluster=16000", "--ckpt-gate-table=speed-only", *TINY
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*::SAVE?llama3-8b-open-1/stream?", f"{asked} tests collected*"])
    assert list(target.iterdir()) == []
    assert not (pytester.path / "ckpt-report").exists()
