"""Mistakes of plugins end pytest before anything is written, with exit code 4.

The message names the plugin, the mistake and the remedy.
"""

from __future__ import annotations

import textwrap

import pytest

from tests.support.selection import first_few

SMALL = ("--ckpt-model=llama3-8b", "--ckpt-mode=open", "--ckpt-ranks=2", "--ckpt-profile=smoke")

JUDGE = '''
from pytest_ckpt.vendors import Decision, requirement

@requirement({})
def judge(measurement):
    """A text for the buyer."""
    return Decision(outcome="met", because="It is so.")

def pytest_ckpt_requirements():
    return [judge]
'''
STATED = JUDGE.format("'ACME', title='t', source=''")


@pytest.fixture
def refused(run_pytest, pytester):
    """Return a function that runs pytest with the given text as a plugin, and returns the error message.

    The function checks that nothing was written to the target.
    """
    (pytester.path / "target").mkdir()
    (pytester.path / "vendor").mkdir()

    def run(plugin, *options, test=""):
        (pytester.path / "vendor" / "conftest.py").write_text(textwrap.dedent(plugin))
        (pytester.path / "vendor" / "test_vendor.py").write_text(textwrap.dedent(test))
        result = run_pytest("--ckpt-target=target", "--cluster=64", *SMALL, *options, "vendor")
        output = result.stderr.str()
        assert result.ret == 4, output + result.stdout.str()
        for text in (output, result.stdout.str()):
            assert "Traceback" not in text
            assert "INTERNALERROR" not in text
        assert list((pytester.path / "target").iterdir()) == []
        return output

    return run


def hook(name, body):
    return f"def pytest_ckpt_{name}():\n    {body}\n"


REMEDY = "Fix the plugin, or run without it."
WRONG = [
    # the mistake of the plugin, and the message
    (hook("drop_caches", "return 5"), ["drop_caches of plugin vendor/conftest.py: 5 is not a command", REMEDY]),
    (hook("drop_caches", "return ' '"), ["' ' is not a command"]),
    (hook("drop_caches", "return 'never'"), ["'never' is not a command", "--ckpt-drop-caches"]),
    (hook("drop_caches", "return \"sh -c 'sync\""), ["--ckpt-drop-caches", "(in hook of vendor/conftest.py)"]),
    (hook("power_cut", "return ['ipmitool']"), ["pytest_ckpt_power_cut of plugin vendor/conftest.py"]),
    (hook("launch_command", "return 'no_such_launcher -q'"),
     ["--ckpt-launcher no_such_launcher -q (in hook of vendor/conftest.py): unknown command 'no_such_launcher'"]),
    (hook("launch_command", "return 1 / 0"),
     ["Plugin vendor/conftest.py failed in pytest_ckpt_launch_command: ZeroDivisionError", "(conftest.py, line 2)"]),
    (hook("launch_command", "raise SystemExit('no')"), ["failed in pytest_ckpt_launch_command: SystemExit: no"]),
    (hook("environment_facts", "__import__('pytest').skip('no')"), ["pytest_ckpt_environment_facts: Skipped: no"]),
    (hook("environment_facts", "raise __import__('pytest').UsageError('firmware 6 is too old')"),
     ["failed in pytest_ckpt_environment_facts: firmware 6 is too old"]),
    (hook("environment_facts", "return [1]"), ["[1] is not a mapping of names to texts"]),
    (hook("environment_facts", "return {'nodes': 8}"), ["the fact 'nodes' is 8, and a text is expected"]),
    (hook("environment_facts", "return {' ': 'x'}"), ["the name of a fact is ' '"]),
    (hook("requirements", "return None"), ["None was returned, and a list of requirements is expected"]),
    (hook("requirements", "return ['ACME']"),
     ["'ACME' is not a function with the decorator pytest_ckpt.vendors.requirement"]),
    (JUDGE.format("'acme', title='t', source=''"), ["the id 'acme' is not of capital letters", "ACME-WARMUP"]),
    (JUDGE.format("'A.B', title='t', source=''"), ["the id 'A.B'"]),
    (JUDGE.format("7, title='t', source=''"), ["the id 7"]),
    (JUDGE.format("'ACME', title=' ', source=''"), ["ACME has no title"]),
    (JUDGE.format("'ACME', title='t', source='', severity='must'"), ["the severity of ACME is 'must'"]),
    (JUDGE.format("'ACME', title='t', source='', units=(1,)"), ["the units of ACME are (1,)"]),
    (STATED.replace('"""A text for the buyer."""', "pass"), ["ACME has no docstring"]),
    (STATED.replace("judge(measurement)", "judge(observation)"), ["ACME requires an observation"]),
    (JUDGE.format("'SAVE', title='t', source=''"),
     ["the id SAVE belongs to a requirement of pytest-ckpt; choose another id"]),
    (JUDGE.format("'COMMIT', title='t', source=''"), ["the id COMMIT belongs to a requirement of pytest-ckpt"]),
    (STATED + "\n" + hook("suites", "return ['nowhere']"),
     ["'nowhere' is not a directory or file"]),
    (hook("suites", "return 'vendor'"), ["'vendor' was returned, and a list of directories or files is expected"]),
    (hook("drop_cache", "return 'sync'"),
     ["implements pytest_ckpt_drop_cache, which is not a hook (did you mean 'pytest_ckpt_drop_caches'?)"]),
    ("import pytest\n\n@pytest.hookimpl(wrapper=True)\ndef pytest_ckpt_requirements():\n    yield\n    return []\n",
     ["Plugin vendor/conftest.py wraps pytest_ckpt_requirements", "without wrapper=True"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("plugin", "expected_text"), first_few(WRONG, 6), ids=[expected_text[0][:60] for _, expected_text in WRONG]
)
def test_a_misused_hook_is_refused_and_its_plugin_named(refused, plugin, expected_text):
    message = refused(plugin)
    for words in expected_text:
        assert words in message


def test_two_plugins_that_both_answer_are_both_named(refused, pytester):
    (pytester.path / "other.py").write_text("__version__ = '3'\n" + hook("drop_caches", "return 'sync'"))
    pytester.syspathinsert()
    message = refused(hook("drop_caches", "return 'true'"), "-p", "other")
    assert "Plugins vendor/conftest.py and other 3 both answer pytest_ckpt_drop_caches" in message
    assert "--ckpt-drop-caches wins over plugins" in message


def test_two_plugins_with_one_id_are_both_named(refused, pytester):
    plugin = STATED
    (pytester.path / "other.py").write_text(plugin)
    pytester.syspathinsert()
    message = refused(plugin, "-p", "other")
    assert (
        "plugin other: the id ACME belongs to a requirement of plugin vendor/conftest.py; choose another id" in message
    )


def test_a_plugin_that_is_an_object_is_named_by_its_class(refused):
    message = refused(
        """
        class Array:
            def pytest_ckpt_drop_caches(self):
                return 5

        def pytest_configure(config):
            config.pluginmanager.register(Array())
        """
    )
    assert "pytest_ckpt_drop_caches of plugin Array: 5 is not a command" in message


def test_a_requirement_of_an_unknown_fact_ends_pytest_with_the_names_of_facts(refused):
    """If a requirement's function has an unknown argument, pytest ends. The message lists the available facts."""
    message = refused(STATED.replace("judge(measurement)", "judge(saved)"))
    assert "requires 'saved'; the facts are measurement, limits, maximum" in message


def test_a_plugin_that_comes_when_the_run_is_open_is_refused(refused, pytester):
    below = pytester.mkdir("vendor/below") if (pytester.path / "vendor").is_dir() else None
    (below / "conftest.py").write_text(hook("drop_caches", "return 'sync'"))
    (below / "test_below.py").write_text("def test_it(): pass\n")
    message = refused("")
    assert "Plugin vendor/below/conftest.py comes too late for pytest_ckpt_drop_caches" in message
    assert "Name its directory on the command line" in message


@pytest.mark.thorough
def test_a_hook_that_is_optional_may_be_unknown(run_pytest, pytester):
    """An unknown hook is accepted if it is marked optional.

    A plugin can thereby support several versions of pytest-ckpt.
    """
    optional = "import pytest\n\n@pytest.hookimpl(optionalhook=True)\ndef pytest_ckpt_of_tomorrow(): pass\n"
    pytester.makeconftest(optional)
    (pytester.path / "target").mkdir()
    result = run_pytest("--ckpt-target=target", "--cluster=64", *SMALL, "--collect-only", "-q", "pytest_ckpt.suites")
    assert result.ret == 0, result.stderr.str()


def test_listing_the_tests_queries_requirements_and_writes_nothing(run_pytest, pytester):
    (pytester.path / "target").mkdir()
    pytester.makeconftest(STATED + hook("environment_facts", "raise ValueError('not asked')"))
    result = run_pytest("--ckpt-target=target", "--cluster=64", *SMALL, "--collect-only", "-q", ".")
    assert result.ret == 0, result.stderr.str()
    assert "conftest.py::ACME[llama3-8b-open-2/stream]" in result.stdout.str()
    assert not (pytester.path / "ckpt-report").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("place", ["command line", "pytest.ini", "a file"])
def test_a_hook_is_not_called_for_a_value_that_is_set_elsewhere(run_pytest, pytester, place):
    (pytester.path / "target").mkdir()
    pytester.makeconftest(hook("drop_caches", "raise ValueError('asked')"))
    pytester.makepyfile("def test_it(): pass")
    options = ("--ckpt-target=target", "--cluster=64", *SMALL, "--collect-only", "-q", ".")
    result = run_pytest(*options)
    assert result.ret == 4
    assert "asked" in result.stderr.str()
    if place == "command line":
        options = ("--ckpt-drop-caches=auto", *options)
    elif place == "pytest.ini":
        pytester.makeini("[pytest]\nckpt_drop_caches = auto\n")
    else:
        (pytester.path / "mine.toml").write_text('ckpt_drop_caches = "auto"\n')
        options = ("--ckpt-config=mine.toml", *options)
    result = run_pytest(*options)
    assert result.ret == 0, result.stderr.str()


def test_without_a_target_no_hook_is_asked(run_pytest, pytester):
    pytester.makeconftest("".join(hook(n, "raise ValueError") for n in ("drop_caches", "requirements", "suites")))
    pytester.makepyfile("def test_it(): pass")
    run_pytest().assert_outcomes(passed=1)
