"""The options of every command on a page exist, even if no test runs the command."""

from __future__ import annotations

import argparse
import re

import pytest

from pytest_ckpt.cli.main import COMMANDS
from pytest_ckpt.facts.options import OPTIONS
from tests.support.doc_pages import PAGES

# A line that begins with a command, optionally after an indent or a prompt. Three spaces separate the command from its
# explanation.
COMMAND = re.compile(r"^\s*(?:\$ )?(pytest|pytest-ckpt) ((?:(?!   ).)*)", re.MULTILINE)
FLAG = re.compile(r"(?<!\S)\[?(--[a-z][a-z-]*)")


def commands_shown():
    found = {}
    for page in PAGES:
        for program, words in COMMAND.findall(page.read_text().replace("\\\n", " ")):
            if FLAG.search(words):
                found[f"{page.name}: {program} {words}"[:100]] = (program, words)
    return found


@pytest.mark.parametrize(("program", "words"), commands_shown().values(), ids=list(commands_shown()))
def test_a_command_that_is_shown_has_options_that_exist(program, words):
    flags = set(FLAG.findall(words))
    if program == "pytest":
        ours = {flag for option in OPTIONS for flag in option.flags}
        assert {flag for flag in flags if flag.startswith(("--ckpt", "--cl"))} <= ours
        return
    word = words.split()[0]
    assert word in COMMANDS
    parser = argparse.ArgumentParser()
    COMMANDS[word].add_arguments(parser)
    assert flags <= {flag for action in parser._actions for flag in action.option_strings}


def test_many_are_found():
    assert len(commands_shown()) > 40
