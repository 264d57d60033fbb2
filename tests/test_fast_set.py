"""The fast set (plain ``pytest``) has at least one test for each requirement, command and fault topic."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pytest_ckpt.cli.main import COMMANDS
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from tests.support import CHECKOUT
from tests.support.collected_markers import VARIABLE, covered_names
from tests.support.matrix import KINDS
from tests.support.selection import HAS_FAST_SET, IMPORTED

ALL_OF = {"requirements": set(REQUIREMENTS), "commands": set(COMMANDS), "faults": set(KINDS)}


@pytest.fixture(scope="module")
def covered_by_test(request, tmp_path_factory):
    """Return {test of the fast set: the names in its mark ``covers``}."""
    if getattr(request.config, "workerinput", {}).get(HAS_FAST_SET):
        return covered_names(request.session.items)
    file = tmp_path_factory.mktemp("held") / "held.json"
    words = ["--collect-only", "-q", "-p", "tests.support.collected_markers", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=CHECKOUT,
        env={**os.environ, VARIABLE: str(file)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return json.loads(file.read_text())


@pytest.mark.parametrize("kind", ALL_OF)
def test_the_fast_set_has_a_test_for_each(covered_by_test, kind):
    found = {name for holds in covered_by_test.values() for name in holds.get(kind, ())}
    assert found - ALL_OF[kind] == set(), "marked to be covered, and there is no such thing"
    assert ALL_OF[kind] - found == set(), "no test of the fast set is marked to cover it"


def test_the_fast_set_contains_end_to_end_runs(covered_by_test):
    assert any(test.startswith("tests/end_to_end/test_run_that_passes.py::") for test in covered_by_test)


def test_no_module_of_tests_imports_what_takes_seconds_before_its_tests_run(request):
    """No test module imports a slow library during collection, because each worker process would repeat the import."""
    assert request.config.stash[IMPORTED] == set()
