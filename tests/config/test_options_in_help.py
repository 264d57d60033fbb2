"""Help lists every option with its words and default, in groups, and starts nothing."""

from __future__ import annotations

import re

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.facts.options import GROUPS, OPTIONS, with_role


def one_line(text):
    """Without white space: help is broken into lines at spaces and hyphens."""
    return "".join(text.split())


def test_pytest_s_help_lists_every_option_with_its_words_and_default(front_door):
    text = front_door("--help").stdout.str()
    groups = {name: text.split(f"\npytest-ckpt: {name}:\n")[1].split("\n\n")[0] for name in GROUPS}
    for option in OPTIONS:
        stated = one_line(groups[option.group])
        default = f" (default: {option.default})" if option.default else ""
        assert one_line(option.help + default) in stated
        for flag in option.flags:
            assert (flag if option.is_flag else f"{flag}={option.metavar}") in stated
    listed = [re.findall(r"^  -", group, re.MULTILINE) for group in groups.values()]
    assert sum(map(len, listed)) == len(OPTIONS)


def test_pytest_s_help_lists_every_name_for_configuration_files(front_door):
    text = front_door("--help").stdout.str()
    for option in OPTIONS:
        assert re.search(rf"^  {option.ini_name} \(string\)", text, re.MULTILINE)


@pytest.mark.parametrize(("word", "options"), [("plan", OPTIONS), ("doctor", OPTIONS), ("judge", with_role("limit"))])
def test_the_command_s_help_lists_the_same_in_the_same_groups(capsys, word, options):
    with pytest.raises(SystemExit) as end:
        main([word, "--help"])
    text = capsys.readouterr().out
    assert end.value.code == 0
    for option in options:
        stated = one_line(text.split(f"\n{option.group}:\n")[1].split("\n\n")[0])
        default = f" (default: {option.default})" if option.default else ""
        assert one_line(option.help + default) in stated
        for flag in option.flags:
            assert one_line(flag if option.is_flag else f"{flag} {option.metavar}") in stated


def test_every_help_text_is_in_one_style():
    for option in OPTIONS:
        assert option.help[0].islower(), option.key
        assert not option.help.endswith("."), option.key
        assert option.is_flag or option.metavar


def test_help_with_a_target_starts_nothing(front_door, pytester):
    (pytester.path / "target").mkdir()
    for asked in ("--help", "--version"):
        assert front_door("--ckpt-target=target", "--cluster=16000", asked).ret == 0
    assert not any((pytester.path / "target").iterdir())
    assert not (pytester.path / "ckpt-report").exists()
