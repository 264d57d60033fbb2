"""A target that is missing, not given or not writable is refused before anything is written."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from tests.support import CHECKOUT
from tests.support.actions import actions
from tests.support.refusals import SMALL, is_refusal, succeeds
from tests.support.selection import first_few


def test_a_cluster_without_a_target_is_refused(run_pytest):
    result = run_pytest("--cluster=16000")
    is_refusal(result.ret, result.stderr.str(), ["--ckpt-cluster without --ckpt-target", "--ckpt-target=/mnt/array"])


def test_a_value_that_steers_a_terminal_is_printed_as_text(refused):
    message = refused("--ckpt-ranks=\x1b[2J\u202e8", expected_text=["--ckpt-ranks", "a whole number is expected"])
    assert not {"\x1b", "\u202e"} & set(message)


def test_every_option_without_a_target_is_named(run_pytest):
    result = run_pytest("--ckpt-save-budget=3%", "--ckpt-keep-files")
    is_refusal(result.ret, result.stderr.str(), ["--ckpt-save-budget", "--ckpt-keep-files", "without --ckpt-target"])


def test_the_suites_without_a_target_are_refused(run_pytest):
    result = run_pytest("--pyargs", "pytest_ckpt.suites")
    if "module or package not found" in result.stderr.str():
        result = run_pytest(CHECKOUT / "suites")
    is_refusal(result.ret, result.stderr.str(), ["--ckpt-target=/mnt/array --cluster=16000"])


def test_a_marker_of_the_same_name_belongs_to_whoever_uses_it(run_pytest, pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.requirement("REQ-17")
        @pytest.mark.parametrize("subject", ["brake"])
        def test_it_stops(subject): pass
        """
    )
    run_pytest().assert_outcomes(passed=1)


def test_without_a_repair_command_no_fault_is_injected(refused):
    refused(
        actions(fault_command="true"),
        expected_text=[
            "--ckpt-actions [failover] fault is given and --ckpt-actions [failover] repair is not",
            "Give both, or neither",
        ],
    )
    refused(
        actions(repair_command="true"),
        expected_text=["--ckpt-actions [failover] repair is given and --ckpt-actions [failover] fault is not"],
    )


def test_a_break_command_without_its_suite_is_refused(refused):
    both = (actions(fault_command="true", repair_command="true"),)
    refused(
        *both,
        "--ckpt-suite=performance",
        expected_text=["belongs to the suite failover", "--ckpt-suite=performance,failover"],
    )


@pytest.mark.parametrize(
    ("option", "suite"),
    [
        ("--ckpt-suite=load-limit=60s", "serving"),
        ("--ckpt-suite=consolidate-limit=2h", "serving"),
        ("--ckpt-suite=preemption-notice=60s", "strategies"),
    ],
)
def test_an_option_of_a_suite_that_is_not_run_is_refused(refused, option, suite):
    expected_text = [f"belongs to the suite {suite}", f"--ckpt-suite=performance,{suite}"]
    refused(option, "--ckpt-suite=performance", expected_text=expected_text)


def test_a_system_that_must_be_described_and_is_not_is_refused(refused, tmp_path):
    table = tmp_path / "mine.toml"
    table.write_text('extends = "speed-only"\nname = "mine"\nrequires_system = true\n')
    expected_text = [
        "gate table mine requires a description",
        "--ckpt-system lacks system.vendor",
        "doctor --write-system",
    ]
    refused(f"--ckpt-gate-table={table}", expected_text=expected_text)


def test_a_snapshot_that_nothing_removes_is_not_taken(refused):
    refused(
        actions(snapshot="true"),
        expected_text=["--ckpt-actions [snapshot] take is given and --ckpt-actions [snapshot] remove is not"],
    )
    refused(
        actions(remove_snapshot="true"),
        expected_text=["--ckpt-actions [snapshot] remove is given and --ckpt-actions [snapshot] take is not"],
    )


@pytest.mark.parametrize(
    "given", [[actions(upgrade_command="true")], [actions(snapshot="true", remove_snapshot="true")]]
)
def test_a_command_of_maintenance_without_its_suite_is_refused(refused, given):
    expected_text = ["belongs to the suite maintenance", "--ckpt-suite=performance,maintenance"]
    refused(*given, "--ckpt-suite=performance", expected_text=expected_text)


def test_a_target_that_is_missing_is_refused(refused, pytester):
    missing = pytester.path / "no such place"
    refused(
        f"--ckpt-target={missing}", expected_text=["--ckpt-target", str(missing), "does not exist", "Mount the storage"]
    )


def test_a_target_that_is_a_file_is_refused(refused, pytester):
    file = pytester.path / "file"
    file.write_text("mine")
    refused(
        f"--ckpt-target={file}", expected_text=["--ckpt-target", str(file), "is not a directory", "Name a directory"]
    )
    assert file.read_text() == "mine"


def test_a_target_that_leads_nowhere_is_refused(refused, pytester):
    link = pytester.path / "link"
    link.symlink_to("nowhere")
    refused(f"--ckpt-target={link}", expected_text=["--ckpt-target", str(link), "does not exist"])


@pytest.mark.parametrize("root", first_few(["/", "//", "/tmp/.."]))
def test_the_root_directory_is_refused(refused, root):
    refused(f"--ckpt-target={root}", expected_text=["--ckpt-target is the root directory", "Name a directory"])


def test_a_link_to_the_root_directory_is_refused(refused, pytester):
    (pytester.path / "link").symlink_to("/")
    refused(f"--ckpt-target={pytester.path / 'link'}", expected_text=["--ckpt-target is the root directory"])


def test_a_target_that_is_not_writable_is_refused(pytester, target, monkeypatch):
    """A target that the user cannot write to is refused.

    If the test runs as root, it drops the capabilities that permit root to write anywhere.
    """
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    powerless = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    if powerless and not (shutil.which("setpriv") and succeeds([*powerless, "true"])):
        pytest.skip("root can write everywhere here")
    target.chmod(0o555)
    words = ["-m", "pytest", "-p", "pytest_ckpt.plugin.session_hooks", "-p", "no:cacheprovider"]
    result = pytester.run(*powerless, sys.executable, *words, f"--ckpt-target={target}", "--cluster=16000")
    expected_text = ["--ckpt-target", str(target), f"not writable for user {os.geteuid()}", "chown"]
    is_refusal(result.ret, result.stderr.str(), expected_text)
    assert not any(target.iterdir())
    assert not (pytester.path / "ckpt-report").exists()


def test_a_target_that_is_mounted_read_only_is_refused(mounted):
    found = mounted("ro", "--ckpt-profile=smoke")
    is_refusal(found.returncode, found.stderr, ["--ckpt-target", "mounted read-only", "remount,rw"])
    assert found.stdout.endswith("left:\n")


def test_a_target_that_takes_no_directory_is_refused_and_leaves_no_report(mounted, pytester):
    found = mounted("size=8g,nr_inodes=1", *SMALL)
    is_refusal(found.returncode, found.stderr, ["No directory can be made on the target", "No space left", "writable"])
    assert not (pytester.path / "ckpt-report").exists()
