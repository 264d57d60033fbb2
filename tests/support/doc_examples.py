"""Runs the examples of a documentation page as a reader would, and compares their output with the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.doc_pages import CHECKOUT, Block
from tests.support.machine import patience

_SECONDS = 240
_ANYTHING = "…"
_UNITS = "ns|µs|ms|s|min|h|d|%|B|kB|MB|GB|TB|PB|KiB|MiB|GiB|TiB"
# A number with its unit, except digits within a name (llama3-8b). Counts of checks and verdicts are numbers too: an
# example shows one run, and a new check must not change its page.
_QUANTITY = re.compile(rf"(?<![\w.-])[-+]?\d+(?:,\d+)*(?:\.\d+)*(?:[eE][-+]?\d+)?(?: ?(?:{_UNITS})(?:/s)?)?(?![\w])")
# A margin; beyond twice the limit it is printed as a multiple, which depends on the machine.
_MULTIPLE = re.compile(r"# x limit\b")
# The phase in which the slowest rank spent its time also depends on the machine.
_SLOWEST_PHASE = re.compile(r"(most of it in )[^,.]+?( on rank)")
# Lists of unmet requirements and of measured subjects; continuation lines are indented by two spaces.
_SENTENCE = re.compile(r"(advisory )?(failed|not run|waived): |Start \d+, ")
_RULE = re.compile(r"([=_-])\1{2,}")
_BARS = re.compile("[▁▂▃▄▅▆▇█]+")
_BLANKS = re.compile(r"[ \t]+")
# Environment variables of a test run that would change the output of a command.
_NOT_INHERITED = ("CI", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "PYTEST_VERSION", "FORCE_COLOR", "NO_COLOR", "LINES")


class Commands:
    """Runs shell commands in a separate directory, with the ``pytest`` and ``pytest-ckpt`` of this checkout."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home / "a directory of examples"
        self.home.mkdir()
        self._programs = home / "programs"
        self._programs.mkdir()
        for name, module in (("pytest", "tests.support.light_pytest"), ("pytest-ckpt", "pytest_ckpt.cli.main")):
            self.add(name, f'exec "{sys.executable}" -m {module} "$@"\n')
        self._environment = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
        self._environment |= {
            "PATH": os.pathsep.join([str(self._programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(CHECKOUT),
            "PYTEST_PLUGINS": "pytest_ckpt.plugin.session_hooks",
            "COLUMNS": "80",
            "TERM": "dumb",
            **environment,
        }

    @property
    def programs(self) -> Path:
        """The directory to which `add` writes programs. This directory is the first in PATH."""
        return self._programs

    def add(self, name: str, script: str) -> None:
        """Write ``script`` as the shell script ``name`` to a directory in PATH."""
        program = self._programs / name
        program.write_text("#!/bin/bash\n" + script)
        program.chmod(0o755)

    def run(self, script: str, **environment: str) -> tuple[int, str]:
        """Run shell commands; return (exit code, standard output and standard error as one text)."""
        done = subprocess.run(
            ["/bin/bash", "-e", "-o", "pipefail", "-c", script],
            cwd=self.home,
            env=self._environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience(_SECONDS),
            check=False,
        )
        return done.returncode, done.stdout


def follow(found: list[Block], commands: Commands) -> Iterator[str]:
    """Run the blocks of one page in order; yield a sentence for each difference between the output and the page."""
    printed = ""
    for block in found:
        word, _, rest = block.comment.partition(" ")
        if word.rstrip(",") == "runs":
            expected = int(rest.removeprefix("exit ")) if rest else 0
            code, printed = commands.run(block.text)
            if code != expected:
                yield f"{block.where}: exit code {code}, the page says {expected}:\n{printed}"
                return
        elif word == "prints":
            if not resembles(block.text, printed, exactly=rest == "exactly"):
                yield f"{block.where}: the page shows\n{block.text}\nand this was printed:\n{printed}"
        elif word == "writes":
            (commands.home / rest).write_text(block.text)


def resembles(shown: str, printed: str, *, exactly: bool) -> bool:
    """Return true if a printed text matches the text that a page shows.

    In the page, … matches any text within a line. A line with only … matches any number of lines. If ``exactly`` is
    true, all other text must be equal. Otherwise, the text may differ in numbers with a unit, the number of spaces,
    margins, and the name of the longest phase. It may also differ in line breaks in sentences about unmet requirements.
    Counts of verdicts, checks and requirements must be equal.
    """
    pattern = []
    for line in _lines(shown, exactly=exactly):
        if line.strip() == _ANYTHING:
            pattern.append(r"(?:.*\n)*?")
        else:
            pattern.append(".*".join(map(re.escape, re.split(f" ?{_ANYTHING}", line))) + r"\n")
    return re.fullmatch("".join(pattern), "".join(f"{line}\n" for line in _lines(printed, exactly=exactly))) is not None


def _lines(text: str, *, exactly: bool) -> list[str]:
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    if exactly:
        return lines
    whole: list[str] = []
    for line in lines:
        if whole and _SENTENCE.match(whole[-1]) and re.match(r"  \S", line):
            whole[-1] += line[1:]
        else:
            whole.append(line)
    return [_without_figures(line) for line in whole]


def _without_figures(line: str) -> str:
    figures = _MULTIPLE.sub("#", _QUANTITY.sub("#", _SLOWEST_PHASE.sub(r"\1write\2", line)))
    return _BLANKS.sub(" ", _BARS.sub("▁", _RULE.sub(r"\1\1\1", figures))).strip()
