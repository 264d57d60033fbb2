"""The selection of tests, the number of test processes, and tests that run alone."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys

import pytest

from tests.support import CHECKOUT
from tests.support.machine import patience
from tests.support.selection import LABS, MATRICES, NOT_LABS, REPEATED_WITH_TORCH, shared_or_exclusive

LOADED = 'pytest_plugins = ["tests.support.selection"]\n'
# Thirty test cases. The test that is appended to them is thorough, too.
CASES = """
import pytest

@pytest.mark.thorough
@pytest.mark.parametrize("case", range(30))
def test_case(case): pass

@pytest.mark.thorough
"""


def test_option_all_runs_thorough_tests_instead_of_their_short_variants(run_pytest, pytester):
    pytester.makeconftest(LOADED)
    pytester.makepyfile(
        """
        import pytest

        def test_fast(): pass

        @pytest.mark.thorough
        def test_thorough(): pass

        @pytest.mark.in_short
        def test_in_short(): pass

        @pytest.mark.alone
        def test_alone(): pass
        """
    )
    run_pytest("--strict-markers").assert_outcomes(passed=3, deselected=1)
    result = run_pytest("--strict-markers", "--all", "-n", "2", "-v")
    result.assert_outcomes(passed=3)
    assert "test_in_short" not in result.stdout.str()


def test_tests_that_run_alone_come_last(run_pytest, pytester):
    pytester.makeconftest(LOADED)
    ten = '@pytest.mark.alone\n@pytest.mark.parametrize("case", range(10))\ndef test_alone(case): pass\n'
    pytester.makepyfile(CASES + ten)
    shown = run_pytest("--all", "-v")
    assert re.findall(r"::(test_case|test_alone)\b", shown.stdout.str()) == 30 * ["test_case"] + 10 * ["test_alone"]
    run_pytest("--all", "-n", "2").assert_outcomes(passed=40)


def test_a_thorough_test_that_needs_a_lab_is_chosen_by_its_mark(run_pytest, pytester):
    pytester.makeconftest(LOADED)
    text = "import pytest\n\n@pytest.mark.thorough\ndef test_long(): pass\n\ndef test_short(): pass\n"
    (pytester.mkdir("tests") / "nfs").mkdir()
    (pytester.path / "tests" / "nfs" / "test_lab.py").write_text(text)
    (pytester.path / "tests" / "test_other.py").write_text(text)
    run_pytest("--all", "-m", "thorough and not lab").assert_outcomes(passed=1, deselected=3)
    run_pytest("--all", "-m", "lab").assert_outcomes(passed=1, deselected=3)


def test_each_change_runs_every_nth_case_of_a_matrix_and_a_lab_the_others(run_pytest, pytester):
    pytester.makeconftest(LOADED)
    matrix = "tests/targets/test_faults_of_bytes.py::test_an_honest_target_passes"
    place, _, name = matrix.partition("::")
    (pytester.mkdir("tests") / "targets").mkdir()
    (pytester.path / place).write_text(CASES.replace("test_case", name) + "def test_other(): pass\n")
    shown = run_pytest("--all", "-v", "-m", "thorough and not lab").stdout.str()
    kept = [str(case) for case in range(0, 30, MATRICES[matrix])]
    assert re.findall(r"\[(\d+)\] PASSED", shown) == kept
    assert "::test_other PASSED" in shown
    run_pytest("--all", "-m", "lab").assert_outcomes(passed=30 - len(kept), deselected=1 + len(kept))


def test_a_run_with_torch_that_the_fast_set_makes_with_stream_is_in_a_lab(run_pytest, pytester):
    pytester.makeconftest(LOADED)
    place, ending = next(iter(REPEATED_WITH_TORCH.items()))
    (pytester.mkdir("tests") / "end_to_end").mkdir()
    (pytester.path / place).write_text(
        "import pytest\n\n"
        f"@pytest.mark.parametrize('engine', ['stream', pytest.param('{ending[1:-1]}', marks=pytest.mark.thorough)])\n"
        "def test_engine(engine): pass\n\n@pytest.mark.thorough\ndef test_other(): pass\n"
    )
    run_pytest("--all", "-m", "thorough and not lab").assert_outcomes(passed=1, deselected=2)
    run_pytest("--all", "-m", "lab").assert_outcomes(passed=1, deselected=2)


def test_every_place_of_labs_is_there():
    for place in (*LABS, *MATRICES, *REPEATED_WITH_TORCH):
        file, _, name = place.partition("::")
        assert (CHECKOUT / file).exists(), place
        assert f"def {name}" in (CHECKOUT / file).read_text() if name else True, place
    assert all(place.startswith(LABS) for place in NOT_LABS)


def test_with_all_tests_a_failure_is_shown_when_it_happens(run_pytest, pytester):
    pytester.makeconftest(LOADED)
    pytester.makepyfile("def test_first(): assert 6 * 9 == 42\ndef test_second(): pass\n")
    shown = run_pytest("--all", "-v").stdout.str()
    assert 0 < shown.index("assert (6 * 9) == 42") < shown.index("test_second PASSED")
    assert "assert (6 * 9) == 42" not in run_pytest("-v").stdout.str().partition("FAILURES")[0]


def test_all_tests_of_the_project_run_in_several_processes_and_those_of_a_file_in_one(run_pytest, pytester):
    pytester.makeconftest(LOADED)
    (pytester.mkdir("tests") / "test_it.py").write_text(
        "def test_it(worker_id, pytestconfig):\n"
        "    has_all = getattr(pytestconfig, 'workerinput', {}).get('has_fast_set')\n"
        "    print(f'in {worker_id}. {has_all}')\n"
    )
    pytester.makeini("[pytest]\ntestpaths = tests\n")
    assert re.search(r"in gw\d\. True", run_pytest("-rP").stdout.str())
    assert re.search(r"in gw\d\. False", run_pytest("-rP", "-k", "it").stdout.str()), (
        "it is told that tests are left out"
    )
    for words in (["tests/test_it.py"], ["-n", "0"]):
        assert "in master." in run_pytest("-rP", *words).stdout.str()


def test_each_test_has_a_limit_and_may_have_another(run_pytest, pytester):
    pytester.makeconftest(LOADED)
    pytester.makepyfile(
        """
        import pytest

        def limit(request): return request.node.get_closest_marker("timeout").args[0]

        def test_usual(request): assert limit(request) == 900

        @pytest.mark.timeout(5)
        def test_its_own(request): assert limit(request) == 5
        """
    )
    run_pytest().assert_outcomes(passed=2)


def is_lock_free(directory, how):
    """Return whether the lock in a directory is free. The mode ``how`` is LOCK_SH or LOCK_EX."""
    with (directory / "tests.lock").open("w") as tests:
        try:
            fcntl.flock(tests, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_an_exclusive_test_and_other_tests_exclude_each_other(tmp_path):
    with shared_or_exclusive(tmp_path, alone=False):
        assert is_lock_free(tmp_path, fcntl.LOCK_SH)
        assert not is_lock_free(tmp_path, fcntl.LOCK_EX)
    with shared_or_exclusive(tmp_path, alone=True):
        assert not is_lock_free(tmp_path, fcntl.LOCK_SH)
    assert is_lock_free(tmp_path, fcntl.LOCK_EX)


def test_a_process_that_a_test_left_running_blocks_no_other_test(tmp_path):
    with shared_or_exclusive(tmp_path, alone=True):
        reading, writing = os.pipe()
        if not (child := os.fork()):
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
    assert is_lock_free(tmp_path, fcntl.LOCK_EX)
    os.close(writing)
    os.waitpid(child, 0)


def test_patience_is_never_less_than_the_given_time():
    assert 3 <= patience(3) <= 3 * 20


@pytest.mark.thorough
def test_without_the_test_environment_pytest_prints_help_and_the_missing_packages(tmp_path):
    """Without hypothesis, ``pytest --help`` works in a checkout; a test run names the missing packages."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['hypothesis'] = None\n")

    def asked(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
            cwd=CHECKOUT,
            env=os.environ | {"PYTHONPATH": str(hidden), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=patience(100),
        )

    for word, told in (("--help", "--ckpt-target"), ("--markers", "pytest.mark.thorough")):
        answer = asked(word)
        assert answer.returncode == 0, answer.stderr
        assert told in answer.stdout
    for words in ((), ("--collect-only",)):
        answer = asked(*words)
        assert answer.returncode == 4
        assert "Traceback" not in answer.stdout + answer.stderr
        assert "pip install -c constraints.txt -e '.[test]'" in answer.stderr
        assert "--ckpt-target=/mnt/array" in answer.stderr
