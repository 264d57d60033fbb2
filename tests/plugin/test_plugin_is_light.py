"""A pytest run without storage options loads almost nothing of the plugin, and prints nothing about it."""

from __future__ import annotations

import sys

import pytest

HEAVY = ("torch", "msgspec", "mpi4py", "jinja2", "numpy", "psutil", "pytest_ckpt.plugin.fixtures",
         "pytest_ckpt.run.open", "pytest_ckpt.launching", "pytest_ckpt.ranks", "pytest_ckpt.report")  # fmt: skip

# Our only modules that an unrelated run may load: literals and declarations, no dataclasses, no tables of other
# packages.
OURS = {"pytest_ckpt", "pytest_ckpt.plugin", "pytest_ckpt.plugin.session_hooks", "pytest_ckpt.plugin.hookspecs",
        "pytest_ckpt.plugin.stash", "pytest_ckpt.facts", "pytest_ckpt.facts.engines", "pytest_ckpt.facts.file_rules",
        "pytest_ckpt.facts.gate_tables", "pytest_ckpt.facts.options", "pytest_ckpt.facts.strategies"}  # fmt: skip

CONFTEST = """
import sys

def pytest_unconfigure(config):
    print("LOADED", *sorted(sys.modules))
"""


def loaded(result):
    (line,) = (line for line in result.outlines if line.startswith("LOADED "))
    return set(line.split()[1:])


def test_an_unrelated_run_imports_nothing_heavy(run_pytest, pytester):
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile("def test_nothing(): pass")
    result = run_pytest("-q", "-s")
    result.assert_outcomes(passed=1)
    names = loaded(result)
    assert {name for name in names if name.startswith("pytest_ckpt")} == OURS
    assert not names & set(HEAVY)


def test_without_a_target_there_are_no_fixtures_no_files_and_no_lines_of_ours(run_pytest, pytester):
    pytester.makepyfile("def test_nothing(): pass")
    before = {p.name for p in pytester.path.iterdir()}
    # pytest-benchmark creates a directory whenever it is loaded.
    result = run_pytest("-p", "no:benchmark", "--fixtures", "-v")
    assert "pytest_ckpt" not in result.stdout.str()
    result = run_pytest("-p", "no:benchmark", "-v")
    result.assert_outcomes(passed=1)
    assert "ckpt target" not in result.stdout.str()
    made = {p.name for p in pytester.path.iterdir()} - before - {"stdout", "stderr", "__pycache__"}
    assert not {name for name in made if not name.startswith("runpytest-")}


def test_a_fixture_of_ours_is_unknown_without_a_target(run_pytest, pytester):
    pytester.makepyfile("def test_it(bench): pass")
    run_pytest().stdout.fnmatch_lines(["*fixture 'bench' not found*"])


def test_a_fixture_of_the_user_with_one_of_our_names_is_the_user_s(run_pytest, pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def bench():
            return lambda subject: subject

        def test_it(bench):
            assert bench("mine") == "mine"
        """
    )
    run_pytest().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "module", ["pytest_ckpt.plugin.session_hooks", "pytest_ckpt.config.options", "pytest_ckpt.cli.main"]
)
def test_the_entry_modules_import_nothing_heavy(pytester, module):
    code = f"import sys, {module}; print('LOADED', *sorted(sys.modules))"
    result = pytester.run(sys.executable, "-c", code)
    assert result.ret == 0
    assert not loaded(result) & set(HEAVY)
