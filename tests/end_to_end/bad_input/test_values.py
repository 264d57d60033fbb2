"""Invalid report directories, numbers and names of options are refused before anything is written."""

from __future__ import annotations

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.support.errors import UsageError
from tests.support.refusals import SMALL, is_refusal
from tests.support.selection import first_few

# --- the report directory
# -----------------------------------------------------------------------------------------------


def test_a_report_on_the_target_is_refused(refused, target):
    words = ["--ckpt-report", str(target), "one contains the other", "--ckpt-report=/var/tmp/ckpt-report"]
    for place in (target, target / "report", target / "deep" / "er"):
        refused(f"--ckpt-report={place}", expected_text=[str(place), *words])


@pytest.mark.thorough
def test_a_report_around_the_target_is_refused(refused, pytester):
    for place in (".", pytester.path, pytester.path.parent):
        refused(f"--ckpt-report={place}", expected_text=["--ckpt-report", "--ckpt-target", "one contains the other"])


def test_a_report_that_reaches_the_target_by_a_link_is_refused(refused, pytester, target):
    (pytester.path / "elsewhere").symlink_to(target)
    refused(
        "--ckpt-report=elsewhere/report", expected_text=["--ckpt-report elsewhere/report", "one contains the other"]
    )


def test_a_report_that_is_a_file_is_refused(refused, pytester):
    (pytester.path / "report").write_text("mine")
    refused("--ckpt-report=report", expected_text=["--ckpt-report report is a file", "Name a directory"])


def test_a_report_directory_with_files_of_others_is_refused(refused, pytester):
    (pytester.path / "report").mkdir()
    (pytester.path / "report" / "thesis.tex").write_text("mine")
    refused(
        "--ckpt-report=report",
        expected_text=["--ckpt-report report", "not of an earlier run", "empty or a new directory"],
    )
    assert (pytester.path / "report" / "thesis.tex").read_text() == "mine"


@pytest.mark.thorough
def test_a_report_directory_that_cannot_be_made_is_refused(refused):
    refused(
        "--ckpt-report=/proc/report", *SMALL, expected_text=["--ckpt-report /proc/report cannot be made", "/var/tmp"]
    )


# --- numbers and words -----------------------------------------------------------------------------------------------

WRONG = [
    ("--cluster", "0", ["at least 1"]),
    ("--cluster", "-16000", ["at least 1"]),
    ("--cluster", "many", ["a whole number is expected, such as 16000"]),
    ("--cluster", "1.5", ["a whole number is expected"]),
    ("--cluster", "9" * 400, ["at most 1,000,000,000"]),
    ("--ckpt-save-budget", "0", ["more than 0 % and less than 100 %"]),
    ("--ckpt-save-budget", "0%", ["more than 0 % and less than 100 %"]),
    ("--ckpt-save-budget", "100%", ["less than 100 %", "such as 5%"]),
    ("--ckpt-save-budget", "150%", ["more than the whole"]),
    ("--ckpt-save-budget", "5", ["write 5%"]),
    ("--ckpt-save-budget", "-5%", ["such as 5%"]),
    ("--ckpt-save-budget", "little", ["such as 5%"]),
    ("--ckpt-load-budget", "100%", ["less than 100 %"]),
    ("--ckpt-checkpoints-per-failure", "0", ["at least 1"]),
    ("--ckpt-failures", "lama3", ["did you mean 'llama3'?", "mttf:50000h", "node-days:6.5", "observed:419/54d@16000"]),
    ("--ckpt-failures", "mttf:soon", ["50000h"]),
    ("--ckpt-failures", "mttf:0h", ["above zero"]),
    ("--ckpt-failures", "mttf:1e-300s", ["at most a failure a second"]),
    ("--ckpt-failures", "observed:419/54d", ["observed:419/54d@16000"]),
    ("--ckpt-failures", "node-days:", ["node-days:6.5"]),
    ("--ckpt-model", "llama3-80b", ["did you mean 'llama3-8b'?", "llama3-1t"]),
    ("--ckpt-model", "llama3-8b,llama3-404b", ["'llama3-404b'", "did you mean 'llama3-405b'?"]),
    ("--ckpt-mode", "fulll", ["did you mean 'full'?", "auto, full, subset, open"]),
    ("--ckpt-ranks", "0", ["at least 1"]),
    ("--ckpt-ranks", "20000", ["at most 16,384"]),
    ("--ckpt-hosts", "node1:0", ["node1:8"]),
    ("--ckpt-hosts", "gpu[1-100000]:8", ["at most 16,384 hosts"]),
    ("--ckpt-hosts", "gpu[4-1]:8", ["'[4-1]'", "is not a range"]),
    ("--ckpt-hosts", "@/nonexistent/hosts", ["cannot be read"]),
    ("--ckpt-engine", "tork", ["did you mean 'torch'?"]),
    ("--ckpt-profile", "smok", ["did you mean 'smoke'?"]),
    ("--ckpt-scale", "2", ["such as 5%, 0.05 or 1/1000"]),
    ("--ckpt-scale", "0", ["at most 1"]),
    ("--ckpt-operations", "5000", ["at most 4,0"]),
    ("--ckpt-io-timeout", "0s", ["such as 300s"]),
    ("--ckpt-io-timeout", "5m", ["'min' for minutes"]),
    ("--ckpt-seed", "-1", ["2^63 - 1"]),
    ("--ckpt-drop-caches", "sync '", ["a command is expected"]),
]


@pytest.mark.parametrize(("option", "value", "expected_text"), WRONG, ids=[f"{o}={v[:20]}" for o, v, _ in WRONG])
def test_a_wrong_value_names_option_value_and_what_is_accepted(option, value, expected_text):
    """The options of each row of ``WRONG`` are resolved without pytest. The error names the option and its value.

    The error also contains the expected text and a remedy. Tests below pass some rows to pytest.
    """
    name = {"--cluster": "ckpt_cluster"}.get(option, option.removeprefix("--").replace("-", "_"))
    with pytest.raises(UsageError) as refusal:
        resolve({"ckpt_target": "/t", "ckpt_cluster": "16000", name: value}, {})
    for word in (option.replace("--cluster", "--ckpt-cluster"), value, *expected_text):
        assert word in str(refusal.value)
    assert "\n  " in str(refusal.value), "there is a remedy"


@pytest.mark.parametrize("value", first_few(["0", "-1", "many"]))
def test_a_wrong_cluster_is_refused(refused, value):
    refused(cluster=value, expected_text=["--ckpt-cluster", value, "a whole number", "accelerators in the cluster"])


@pytest.mark.parametrize("value", first_few(["0", "100%", "150%"]))
def test_a_wrong_overhead_is_refused(refused, value):
    refused(f"--ckpt-save-budget={value}", expected_text=["--ckpt-save-budget", value, "5%", "share of training time"])


def test_an_unknown_model_is_refused_with_the_nearest_name(refused):
    refused("--ckpt-model=llama3-80b", expected_text=["--ckpt-model llama3-80b", "did you mean 'llama3-8b'?"])


def test_a_failure_model_that_cannot_be_read_is_refused(refused):
    refused(
        "--ckpt-failures=mtbf:50000h",
        expected_text=["--ckpt-failures mtbf:50000h", "did you mean 'mttf'?", "mttf:50000h"],
    )


def test_an_empty_value_is_refused_and_not_taken_as_the_default(refused):
    refused("--ckpt-save-budget=", expected_text=["--ckpt-save-budget has no value"])


def test_a_target_without_a_cluster_is_refused(run_pytest, target):
    result = run_pytest(f"--ckpt-target={target}")
    is_refusal(result.ret, result.stderr.str(), ["--cluster is missing", "--cluster=16000"])
    assert not any(target.iterdir())


def test_processes_that_fit_no_layout_are_refused_with_those_that_do(refused):
    expected_text = ["3 processes fit no layout", "--ckpt-ranks=8", "llama3-70b: 64", "--ckpt-mode=open"]
    refused("--ckpt-ranks=3", expected_text=expected_text)


@pytest.mark.parametrize(
    ("arguments", "expected_text"),
    first_few(
        [
            (("--ckpt-mode=open", "--ckpt-ranks=12", "--ckpt-model=llama3-405b"), "needs a multiple of 256 ranks"),
            (("--ckpt-mode=full", "--ckpt-ranks=8", "--ckpt-model=llama3-70b"), "llama3-70b in full has 64 ranks"),
            (("--ckpt-mode=subset", "--ckpt-ranks=7"), "its subset 8"),
        ]
    ),
)
def test_processes_that_do_not_fit_the_mode_are_refused(refused, arguments, expected_text):
    refused(*arguments, expected_text=[expected_text, "--ckpt-ranks"])
