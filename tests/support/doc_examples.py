"""Makes the examples of a page as a reader would, and compares what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.doc_pages import CHECKOUT, Block

_SECONDS = 240
_ANYTHING = "…"
_UNITS = "ns|µs|ms|s|min|h|d|%|B|kB|MB|GB|TB|PB|KiB|MiB|GiB|TiB"
# A figure with its unit. Digits within a name (llama3-8b) are none. How many checks and verdicts there are is a figure
# too: an example shows one run, and the next check changes its page no more than the next machine does.
_QUANTITY = re.compile(rf"(?<![\w.-])[-+]?\d+(?:,\d+)*(?:\.\d+)*(?:[eE][-+]?\d+)?(?: ?(?:{_UNITS})(?:/s)?)?(?![\w])")
# A margin: beyond twice the limit it is a multiple of it, which is the machine's business.
_MULTIPLE = re.compile(r"# x limit\b")
# So is where the slowest rank spent its time.
_SLOWEST_PHASE = re.compile(r"(most of it in )[^,.]+?( on rank)")
# What was not met, and what a start measured; the lines that follow its first are indented by two blanks.
_SENTENCE = re.compile(r"(advisory )?(failed|not run|waived): |Start \d+, ")
_RULE = re.compile(r"([=_-])\1{2,}")
_BARS = re.compile("[▁▂▃▄▅▆▇█]+")
_BLANKS = re.compile(r"[ \t]+")
# Of the environment of a test run, what would change what a command prints.
_NOT_INHERITED = ("CI", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "PYTEST_VERSION", "FORCE_COLOR", "NO_COLOR", "LINES")


class Commands:
    """A shell in a directory of its own, in which ``pytest`` and ``pytest-ckpt`` are those of this checkout."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home / "a directory of examples"
        self.home.mkdir()
        self._programs = home / "programs"
        self._programs.mkdir()
        for name, module in (("pytest", "pytest"), ("pytest-ckpt", "pytest_ckpt.cli.main")):
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
        """The directory of programs that stands first on PATH."""
        return self._programs

    def add(self, name: str, script: str) -> None:
        """Put a program on PATH: the lines of a shell script."""
        program = self._programs / name
        program.write_text("#!/bin/bash\n" + script)
        program.chmod(0o755)

    def run(self, script: str, **environment: str) -> tuple[int, str]:
        """Return the exit code of commands and what a terminal would have shown of them."""
        done = subprocess.run(
            ["/bin/bash", "-e", "-o", "pipefail", "-c", script],
            cwd=self.home,
            env=self._environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout


def follow(found: list[Block], commands: Commands) -> Iterator[str]:
    """Do what the blocks of one page say, in order; return a sentence for everything that is not as the page has it."""
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
    """Whether a text that was printed is the one that a page shows.

    … within a line stands for anything in it or nothing; a line of nothing else for any lines. Where it need not be
    exact, a figure with its unit is as good as any other but a count of verdicts, checks or requirements, and so is any
    number of blanks, a margin told as a share or as a multiple of the limit, and the phase that took longest; and a
    sentence on what was not met may be broken into lines elsewhere.
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
