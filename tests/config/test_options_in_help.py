"""`--help` lists the common options briefly, and `pytest-ckpt options` lists all options. Both start no run."""

from __future__ import annotations

import re

import pytest

from pytest_ckpt.cli.main import COMMANDS, main
from pytest_ckpt.config.options import OFTEN_USED
from pytest_ckpt.facts.options import ACTIONS, GROUPS, OPTIONS, option_of, with_role


def one_line(text):
    """Return the text without any white space, because pytest's help breaks lines at spaces and hyphens."""
    return "".join(text.split())


def shown(option):
    return f" (default: {option.default})" if option.default and not option.is_flag else ""


def our_lines(text):
    """Return the lines of pytest's help that describe this plugin."""
    part = text[text.index("\npytest-ckpt: ") + 1 :]
    return part[: part.index("\n\n", part.index(f"pytest-ckpt: {GROUPS[-1]}:"))].splitlines()


def test_pytest_s_help_lists_the_options_of_daily_use_with_their_words_and_defaults(run_pytest, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = run_pytest("--help").stdout.str()
    groups = {name: text.split(f"\npytest-ckpt: {name}:\n")[1].split("\n\n")[0] for name in GROUPS}
    listed = [option for option in OPTIONS if option.is_option and option.is_listed]
    for option in listed:
        stated = one_line(groups[option.group])
        assert one_line(option.help + shown(option)) in stated
        flag = option.flags[0]
        assert (flag if option.is_flag else f"{flag}={option.metavar}") in stated
    found = [re.findall(r"^  -", group, re.MULTILINE) for group in groups.values()]
    assert sum(map(len, found)) == len(listed)
    assert "pytest-ckpt options" in summary_of_option(groups, "config")


def test_our_part_of_pytest_s_help_is_one_page(run_pytest, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert len(our_lines(run_pytest("--help").stdout.str())) <= 45


def summary_of_option(groups, key):
    option = option_of(key)
    return next(line for line in groups[option.group].splitlines() if line.strip().startswith(option.flags[0]))


def test_pytest_s_help_lists_every_name_for_configuration_files(run_pytest):
    text = run_pytest("--help").stdout.str()
    for option in OPTIONS:
        is_there = re.search(rf"^  {option.ini_name} \(string\)", text, re.MULTILINE)
        assert bool(is_there) is option.is_option


def help_of(capsys, word):
    with pytest.raises(SystemExit) as end:
        main([word, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "options"),
    [
        ("plan", [option for option in OPTIONS if option.key in OFTEN_USED]),
        ("doctor", [option for option in OPTIONS if option.key in OFTEN_USED]),
        ("judge", with_role("limit")),
    ],
)
def test_the_command_s_help_lists_options_in_the_same_groups(capsys, word, options):
    text = help_of(capsys, word)
    for option in options:
        stated = one_line(text.split(f"\n{option.group}:\n")[1].split("\n\n")[0])
        assert one_line(option.help + shown(option)) in stated
        flag = option.flags[0]
        assert one_line(flag if option.is_flag else f"{flag} {option.metavar}") in stated


@pytest.mark.parametrize("word", COMMANDS)
def test_the_help_of_each_command_is_a_page(capsys, monkeypatch, word):
    monkeypatch.setenv("COLUMNS", "80")
    assert len(help_of(capsys, word).splitlines()) < 40


def test_plan_takes_the_options_that_its_help_leaves_out(capsys):
    words = ["--cluster=16000", "--ckpt-model=llama3-8b", "--ckpt-save-budget=3%", "--ckpt-engine=stream:depth=16"]
    assert main(["plan", *words]) == 0
    assert "3 %" in capsys.readouterr().out


def test_every_help_text_is_in_one_style():
    for option in OPTIONS:
        assert option.help[0].islower() or option.help.startswith("TCP"), option.key
        assert not option.help.endswith("."), option.key
        assert not option.more or option.more.endswith("."), option.key
        assert len(option.help.split()) <= 20, option.key
        assert option.is_flag or option.metavar


# --- pytest-ckpt options ----------------------------------------------------------------------------------------------


def listed(capsys, *words):
    assert main(["options", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.covers(commands=("options",))
def test_the_command_lists_every_option_and_parameter(capsys):
    text = one_line(listed(capsys))
    for option in OPTIONS:
        name = f"[{option.owners[0]}] {option.name}" if option.parent == ACTIONS else option.name
        assert one_line(option.flags[-1] if option.is_option else name or option.variables[0]) in text
        assert one_line(option.help) in text


@pytest.mark.parametrize("option", OPTIONS, ids=[option.key for option in OPTIONS])
def test_the_command_explains_one_by_each_of_its_names(capsys, option):
    for name in (option.key, option.ini_name, *option.variables, *filter(None, [option.name])):
        text = listed(capsys, name)
        assert f"{option.flag}: {option.help}\n" in text
        assert one_line(option.more) in one_line(text)
        assert f"  Default: {option.default or 'not set'}\n" in text


def test_the_command_explains_all_parameters_of_a_name(capsys):
    text = listed(capsys, "tiered")
    assert text.count("Command line: --ckpt-strategy=tiered:") == 3
    assert "File: [strategy.tiered] drain-every = 5" in text
    text = listed(capsys, "failover")
    assert "File: [failover] fault = " in text
    assert "Command line" not in text


def test_the_command_names_the_nearest_option(capsys):
    assert main(["options", "io-sice"]) == 4
    assert "did you mean 'io-size'?" in capsys.readouterr().err


# Parameters have these names only inside the program.
@pytest.mark.parametrize("option", [o for o in OPTIONS if o.parent], ids=lambda option: option.key)
def test_a_parameter_as_an_option_of_its_own_is_refused_and_told_how_it_is_written(run_pytest, capsys, option):
    word = "--ckpt-" + option.key.replace("_", "-")
    if option.key in ("near_full", "upgrade_command"):
        result = run_pytest(f"{word}=1", "--ckpt-target=x")
        assert result.ret == 4
        assert f"{word} is not an option: write {option.flag}." in result.stderr.str()
    with pytest.raises(SystemExit) as end:
        main(["plan", f"{word}=1"])
    assert end.value.code == 4
    assert f"(write {option.flag})" in capsys.readouterr().err


def test_help_with_a_target_starts_nothing(run_pytest, pytester):
    (pytester.path / "target").mkdir()
    for asked in ("--help", "--version"):
        assert run_pytest("--ckpt-target=target", "--cluster=16000", asked).ret == 0
    assert not any((pytester.path / "target").iterdir())
    assert not (pytester.path / "ckpt-report").exists()
