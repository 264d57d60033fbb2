"""A new requirement, check, pattern, model, engine or option needs only the steps in ARCHITECTURE.md.

The tests add one of each to a copy of the project, and generate pages and expected texts again. Other files stay
unchanged. If other code lists the names, a test fails.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.support import CHECKOUT
from tests.support.machine import need_fuse
from tests.support.new_entries import NEW_ENTRIES, add
from tests.support.vendor_directory import QUICK

# These tests are left out: counts on pages are changed by hand, as ARCHITECTURE.md says of models and engines; the help
# has no space for one more option of daily use; this module would copy the tree again.
LENGTH_OF_THE_HELP = "tests/config/test_options_in_help.py::test_our_part_of_pytest_s_help_is_one_page"
# Its configurations name their tensors; entries of the project do not change how they are counted.
OF_CONFIGURATIONS = "tests/config/test_library_models.py"
OF_THE_WHOLE_TREE = ("tests/docs/test_counts_on_pages.py", "tests/test_new_entries.py", LENGTH_OF_THE_HELP)
# Tests of modules that know requirements, checks, models, engines or options: verdicts, sizes, settings, pages, the
# plan, the tests of a run.
RELEVANT = (
    "tests/judging", "tests/sizing", "tests/config", "tests/cli/plan/test_cli_plan.py",
    "tests/docs/test_generated_pages.py", "tests/file_systems",
    "tests/conformance/test_matrix.py::test_every_fault_has_its_row_and_every_check_a_fault_that_fails_it",
    "tests/conformance/test_matrix.py::test_the_page_contains_the_current_tables",
    "tests/conformance/test_matrix_of_objects.py::test_every_fault_has_its_row_and_every_check_a_fault_that_fails_it",
    "tests/report/test_text.py", "tests/plugin/test_plugin_is_light.py", "tests/test_layers.py",
    "tests/test_fast_set.py",
)  # fmt: skip
# The fast set takes 10 minutes on a machine without other load.
PATIENCE_SECONDS = 3600
FINDS_AN_OBJECT_FAULT = """
from tests.support.object_checks import failed
from tests.support.object_matrix import MATRIX
from tests.support.targets.object_faults import faulty_store
for fault in ("", "empty prefixes list all"):
    with faulty_store(fault) as endpoint:
        assert set(failed(endpoint, ["OBJECT-LIST.empty"])) == {row.fails[0] for row in MATRIX if row.fault == fault}
"""
PLANS_A_PATTERN = """
from pytest_ckpt.config.options import resolve
from pytest_ckpt.ranks.process.job import Task
from pytest_ckpt.sizing.plan import plan_run
from pytest_ckpt.sizing.steps import planned_steps
from tests.support.synthetic_target import mounted
words = {"ckpt_engine": "torch", "ckpt_cluster": "64", "ckpt_model": "toy-2b", "ckpt_suite": "performance,contention"}
settings = resolve(words, {})
(planned,) = plan_run(settings, mounted("ext4")).checkpoints
assert "again" in Task.of(planned, settings, 1).patterns
(steps,) = (s for s in planned_steps(planned, settings, None) if s.kind == "again")
print(steps.count, steps.label(1).partition(" ")[2])
"""
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build", "dist", "ckpt-*"
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Return a copy of the project with one more entry of each kind."""
    copy = tmp_path_factory.mktemp("copy") / "tree"
    shutil.copytree(CHECKOUT, copy, ignore=NOT_COPIED, symlinks=True)
    for kind in NEW_ENTRIES:
        add(kind, copy)
    for page in sorted({page for thing in NEW_ENTRIES.values() for page in thing.pages}):
        assert python(copy, "-m", f"tests.support.docs_pages.{page}").returncode == 0
    golden = python(copy, "-m", "pytest", "-q", "-k", "sentences", "tests/judging/test_golden_texts.py",
                    CKPT_UPDATE_GOLDEN="1")  # fmt: skip
    assert golden.returncode == 0, golden.stdout
    return copy


def python(tree, *words, **more):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
    return subprocess.run(
        [sys.executable, *words], cwd=tree, env=environment | {"PYTHONPATH": str(tree)} | more, capture_output=True,
        text=True, check=False, timeout=PATIENCE_SECONDS,
    )  # fmt: skip


def test_architecture_names_every_place_that_is_touched():
    text = (CHECKOUT / "ARCHITECTURE.md").read_text().partition("## Where to add what")[2].partition("\n## ")[0]
    for kind, thing in NEW_ENTRIES.items():
        (line,) = (line for line in text.splitlines() if line.startswith(f"| {kind} |"))
        for file, _, _ in thing.insertions:
            directory = file.rpartition("/")[0].removeprefix("pytest_ckpt/")
            assert file.removeprefix("pytest_ckpt/") in line or f"`{directory}/`" in line, (kind, file)
        assert all(f"tests.support.docs_pages.{page}" in line for page in thing.pages), kind


def test_a_plan_has_the_new_model_and_takes_the_new_option(tree):
    planned = python(tree, "-m", "pytest_ckpt.cli.main", "plan", "--cluster=64", "--ckpt-model=toy-2b",
                     "--ckpt-patience=9s")  # fmt: skip
    assert planned.returncode == 0, planned.stderr
    assert "toy-2b" in planned.stdout


def test_the_new_requirement_is_part_of_a_run(tree, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    listed = python(tree, "-m", "pytest", "-p", "pytest_ckpt.plugin.session_hooks", "--collect-only", "-q",
                    f"--ckpt-target={target}", "--cluster=64", "--ckpt-model=toy-2b", "--ckpt-mode=open",
                    "--ckpt-ranks=2", "--ckpt-profile=smoke", "--ckpt-gate-table=speed-only",
                    f"--rootdir={tmp_path}", "-c", os.devnull)  # fmt: skip
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert "TOTAL[toy-2b-open-2/stream]" in listed.stdout


def test_the_new_pattern_is_part_of_the_plan_and_of_the_tasks_of_ranks(tree):
    planned = python(tree, "-c", PLANS_A_PATTERN)
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.split() == ["1", "load", "that", "is", "made", "again"]


@pytest.mark.thorough
def test_the_new_pattern_is_measured_and_judged(tree, tmp_path):
    target, report = tmp_path / "target", tmp_path / "report"
    target.mkdir()
    done = python(tree, "-m", "pytest", "-p", "pytest_ckpt.plugin.session_hooks", "-q", f"--ckpt-target={target}",
                  f"--ckpt-report={report}", *QUICK, "--ckpt-suite=performance,contention", "--ckpt-engine=stream",
                  f"--rootdir={tmp_path}", "-c", os.devnull)  # fmt: skip
    assert done.returncode in (0, 8), done.stdout + done.stderr
    (measurement,) = (json.loads(file.read_text()) for file in (report / "measurements").iterdir())
    assert measurement["patterns"]["again"]["seconds"] > 0
    verdicts = {v["id"]: v for v in json.loads((report / "report.json").read_text())["requirements"]}
    assert verdicts["AGAIN"]["measured"] == measurement["patterns"]["again"]["seconds"]


@pytest.mark.thorough
def test_the_new_checks_are_met_and_find_their_faults(tree, tmp_path):
    made = python(tree, "-m", "pytest_ckpt.conformance", "CAPABILITIES.modes", f"--directory={tmp_path}")
    assert (made.returncode, made.stdout.partition(" in ")[0]) == (0, "CAPABILITIES.modes: 0 anomalies")
    of_objects = python(tree, "-c", FINDS_AN_OBJECT_FAULT)
    assert of_objects.returncode == 0, of_objects.stderr


@pytest.mark.thorough
def test_the_new_check_alone_finds_its_fault(tree):
    need_fuse()
    found = python(tree, "-m", "pytest", "-q", "--tb=short", "--all", "tests/conformance/test_matrix.py",
                   "-k", "no_others and permissions")  # fmt: skip
    assert found.returncode == 0, found.stdout[-6000:]
    assert "1 passed" in found.stdout


@pytest.mark.thorough
def test_the_new_engine_saves_and_loads(tree, tmp_path):
    target, report = tmp_path / "target", tmp_path / "report"
    target.mkdir()
    done = python(tree, "-m", "pytest", "-p", "pytest_ckpt.plugin.session_hooks", "-q", f"--ckpt-target={target}",
                  f"--ckpt-report={report}", *QUICK, "--ckpt-engine=plain", f"--rootdir={tmp_path}",
                  "-c", os.devnull)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (measurement,) = (json.loads(file.read_text()) for file in (report / "measurements").iterdir())
    assert measurement["engine_facts"].keys() == {"form", "directory"}
    assert measurement["integrity"]["bytes_checked"] == 2 * measurement["bytes"]
    assert measurement["integrity"]["fault_count"] == 0


@pytest.mark.thorough
@pytest.mark.timeout(PATIENCE_SECONDS + 300)
def test_every_fast_test_passes_with_one_more_of_each(tree):
    """Runs the fast set in the copy, except the tests in ``OF_THE_WHOLE_TREE``.

    The next test runs only the tests in ``RELEVANT``.
    """
    left_out = [f"--deselect={test}" for test in OF_THE_WHOLE_TREE]
    # More processes, beside those of the labs, would overload the machine: clients would not answer in time.
    found = python(tree, "-m", "pytest", "-q", "-n2", "--tb=short", "-p", "no:cacheprovider", *left_out)
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]


@pytest.mark.thorough
@pytest.mark.timeout(PATIENCE_SECONDS + 300)
def test_the_tests_that_know_them_pass_with_one_more_of_each(tree):
    left_out = [f"--deselect={test}" for test in (LENGTH_OF_THE_HELP, OF_CONFIGURATIONS)]
    found = python(tree, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", *left_out, *RELEVANT)
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
