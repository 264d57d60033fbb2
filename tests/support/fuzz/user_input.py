"""Attacks on users' inputs: option values on command lines, and files that options name."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pytest_ckpt.config.gate_files import load_waivers
from pytest_ckpt.config.system_description import read_system, template
from pytest_ckpt.facts.options import OPTIONS, Option, with_role
from pytest_ckpt.support.errors import UsageError
from tests.support import synthetic_run
from tests.support.fuzz.families import Family, met, python_jargon, reported
from tests.support.fuzz.mutations import bloated, change_bytes, replaced
from tests.support.fuzz.values import DEEP, NUMBERS, TEXTS

_FILES = {
    "gates.toml": """extends = "posix-local"
name = "mine"
text = "What we ask."
up_to = "llama3-8b"

[requirements]
SAVE = { gate = "required", limit = 1.0 }
STRAGGLER = { gate = "advisory", limit = 1.5 }
"COMMIT.file" = { gate = "off" }

[suites]
contention = { gate = "advisory" }

[needs]
"second client" = { gate = "advisory" }
""",
    "waive.toml": f"""[[waive]]
requirement = "SAVE"
subject = "{synthetic_run.SUBJECT}"
reason = "The array is not finished."
expires = "2099-12-31"

[[waive]]
requirement = "LOAD"
subject = "*"
reason = "Neither is this."
expires = "2031-01-31"
""",
    "config.toml": """ckpt_cluster = 16000
ckpt_model = ["llama3-8b", "llama3-70b"]
ckpt_save_budget = "5%"
ckpt_keep_files = true
ckpt_failures = "llama3"
ckpt_ranks = 8
ckpt_scale = 0.001
""",
    "actions.toml": """[power_cut]
command = "/usr/local/sbin/pull-the-plug --and-wait"
times = 3

[failover]
fault = "fail-drive 7"
repair = "replace-drive 7"
""",
    "hosts": "node1 slots=8  # the first\nnode2:8\n\nnode3\n",
    "system.toml": template().replace("# ", ""),
    "key.pem": "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=\n"
    "-----END PUBLIC KEY-----\n",
}  # fmt: skip
_SMALL = ("--ckpt-profile=smoke", "--ckpt-model=llama3-8b", "--ckpt-mode=open", "--ckpt-ranks=2")
_VALUES = ("inf", "nan", "-1", "0", "1e400", "9" * 30, '""', "[]", "{}", "true", "1979-05-27", "07:32:00", '"off"',
           '"\\u0000"', "[[[]]]", "{ a = { b = 1 } }", "'''x'''", '"\\ud800"', "0x7fffffffffffffffffff", "0.5",
           "[1, 'a']", '"llama3-8b"')  # fmt: skip


class OptionValues(Family):
    """Attacks on option values of the commands plan, judge, trend and verify, and of pytest."""

    name = "options"
    _OF_PYTEST = 0.04  # it takes ten times as long as a command

    def prepare(self, originals: Path) -> None:
        """Create a run directory in which every save exceeds its time limit."""
        synthetic_run.write_run(originals / "late", save=1e5)
        self.late = originals / "late"
        self.options = [o for o in OPTIONS if o.key not in ("config", "cluster") and not o.variables]

    def attempt(self, rng: Random, home: Path) -> tuple[list[str], list[str]]:
        (home / "out").mkdir()
        create_paths(home)
        if rng.random() < self._OF_PYTEST:
            return self._pytest(rng, home)
        found: list[str] = []
        way = rng.random()
        if way < 0.7:
            words = ["plan", "--cluster=64", *self._some(rng, home, self.options)]
            words += rng.choice([[], ["--json"], ["--ranks"]])
        elif way < 0.9:
            words = ["judge", str(self.late), *self._some(rng, home, list(with_role("limit"))), "--json"]
        else:
            command, flag = rng.choice([("trend", "--fail-on-regression"), ("verify", "--key"), ("judge", "--html")])
            words = [command, str(self.late), f"{flag}={value_of(rng, home, OPTIONS[0].example)}"]
            if command == "judge":
                name = value_of(rng, home, OPTIONS[0].example).replace("/", "").replace("..", "")
                words[-1] = f"{flag}={home / 'out'}/p{name}"
        outcome = self.command(words, home, (0, 1, 4, 8), found)
        found += [f"{words!r:.300}: it says {word!r}" for word in python_jargon(outcome.err)]
        return words, found

    def _some(self, rng: Random, home: Path, options: list[Option]) -> list[str]:
        words = []
        for _ in range(rng.choice([1, 1, 2, 3, 6])):
            option = rng.choice(options)
            if not option.is_option:
                value = value_of(rng, home, option.example)
                words += [f"--ckpt-{option.parent}={rng.choice([*option.owners, ''])}:{option.name}={value}"]
                continue
            flag = rng.choice(option.flags)
            words.append(
                flag
                if option.is_flag and rng.random() < 0.5
                else f"{flag}={value_of(rng, home, option.example or option.default or 'x')}"
            )
            if option.is_flag:
                words[-1] = flag
        return words

    def _pytest(self, rng: Random, home: Path) -> tuple[list[str], list[str]]:
        """Run pytest with --collect-only, which checks all options and measures nothing.

        Return (words of the command line, violations).
        """
        (home / "empty.ini").write_text("[pytest]\n")
        target = home / "target"
        words = [f"--ckpt-target={target}", "--cluster=64", *_SMALL, *self._some(rng, home, self.options)]
        always = ["--collect-only", "-q", "-c", str(home / "empty.ini"), "--rootdir", str(home), "-s", "-p",
                  "pytest_ckpt.plugin.session_hooks", "-p", "no:cacheprovider", "-p", "no:warnings"]  # fmt: skip
        outcome = self.sandbox.run(lambda: int(_pytest_main([*always, *words])), (home / "out",), starts_processes=True)
        found = reported(["pytest"], outcome, (0, 4, 5))
        found += [f"pytest {words!r:.300}: it says {word!r}" for word in python_jargon(outcome.err)]
        if left := sorted(path.name for path in target.iterdir()):
            found.append(f"on the target lies {left}")
        return ["pytest", *words], found


def _pytest_main(words: list[str]) -> int:
    before = dict(os.environ)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        return pytest.main(words)
    finally:
        os.environ.clear()
        os.environ.update(before)


def create_paths(home: Path) -> None:
    """Create paths that option values can name: directories, a pipe, a link to itself, and a file with a hole."""
    (home / "target").mkdir()
    (home / "directory").mkdir()
    os.mkfifo(home / "pipe")
    (home / "loop").symlink_to("loop")
    with (home / "huge.toml").open("wb") as file:
        file.truncate(1 << 40)


def value_of(rng: Random, home: Path, example: str) -> str:
    """Return a random option value that is similar to ``example``, as Python receives it from a command line.

    The value contains no NUL. Bytes that are not valid text are represented by lone surrogates.
    """
    word = _any_value(rng, home, example).replace("\0", "")
    return os.fsdecode(word.encode("utf-8", "surrogatepass"))


def _any_value(rng: Random, home: Path, example: str) -> str:
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice(TEXTS)
    if kind == 1:
        return rng.choice([*NUMBERS, "5%", "101%", "1/0", "1/3", "-5%", "1e-400%", "0.0000001%", "9" * 400 + "%"])
    if kind == 2:
        places = [home / name for name in ("target", "directory", "pipe", "loop", "huge.toml", "nothing")]
        word = str(rng.choice([*places, "/dev/zero", "/dev/full", "/proc/self/mem", "/", "~nosuchuser/x", "~", "."]))
        return rng.choice([word, f"@{word}", f"{word}/below", f"s3://{word}"])
    if kind == 3:
        return rng.choice(OPTIONS).example or "x"
    text = example
    if kind == 4:
        return text
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(text) + 1)
        piece = rng.choice(
            ["0", "9" * 20, "-", ".", ",", "%", "h", "e", "E9", ":", "/", "@", "=", " ", "²", "é", "\n", "'", '"']
        )
        text = rng.choice([text[:at] + piece + text[at:], text[:at] + text[at + 1 :], text + piece, text * 2])
    return text


class InputFiles(Family):
    """Attacks on files that options name, such as gate tables, waivers, system descriptions and host lists."""

    name = "inputs"

    def prepare(self, originals: Path) -> None:
        """Create a run directory in which every save exceeds its time limit, and one valid file of each kind."""
        synthetic_run.write_run(originals / "late", save=1e5)
        self.late = originals / "late"
        self.made = originals / "files"
        self.made.mkdir()
        for name, text in _FILES.items():
            (self.made / name).write_text(text)

    def attempt(self, rng: Random, home: Path) -> tuple[list[str], list[str]]:
        name = rng.choice(sorted(_FILES))
        directory, outside = home / "files", home / "outside"
        directory.mkdir()
        outside.mkdir()
        (home / "out").mkdir()
        (outside / "file").write_text(_FILES[name])
        file = directory / name
        file.write_text(_FILES[name])
        done = [changed_line(rng, directory, file, outside)]
        found: list[str] = []
        outcome = self._pass_file(rng, name, file, home, found)
        words = python_jargon(outcome)
        found += [f"{name}: it says {word!r}: {outcome[-300:]!r}" for word in words]
        return [name, *done], found

    def _pass_file(self, rng: Random, name: str, file: Path, home: Path, found: list[str]) -> str:
        """Pass a file to the command that reads it; return the error output of the command."""
        if name == "gates.toml":
            outcome = self.command(
                ["judge", str(self.late), f"--ckpt-gate-table={file}", "--json"], home, (0, 1, 4, 8), found
            )
            if outcome.code == 0 and not outcome.faults:
                self._check_gates(outcome.out, found)
            return outcome.err
        if name == "waive.toml":
            known = {"SAVE": [synthetic_run.SUBJECT], "LOAD": [synthetic_run.SUBJECT]}
            return self._read(lambda: load_waivers(str(file), known), found)
        if name == "system.toml":
            return self._read(lambda: read_system(file), found)
        words = {
            "config.toml": ["plan", "--cluster=64", f"--ckpt-config={file}"],
            "actions.toml": ["plan", "--cluster=64", f"--ckpt-actions={file}"],
            "hosts": ["plan", "--cluster=64", f"--ckpt-hosts=@{file}"],
            "key.pem": ["verify", str(self.late), f"--key={file}"],
        }[name]
        return self.command([*words, *rng.choice([[], ["--json"]])], home, (0, 1, 4, 8), found).err

    def _check_gates(self, out: str, found: list[str]) -> None:
        """Add violations to ``found`` for a late run that passed with a changed gate table.

        ``out`` is the JSON report. The run must not be certified, and the report must list relaxed gates.
        """
        import json  # noqa: PLC0415

        document = json.loads(out)
        if document["grade"] == "certified":
            found.append("it is certified")
        if not document["gate_table"]["relaxed"]:
            found.append(f"gates that relax nothing let a late run pass: {sorted(met(document))}")

    def _read(self, read: Callable[[], object], found: list[str]) -> str:
        def call() -> int:
            try:
                read()
            except UsageError as error:
                print(f"error: {error}", file=sys.stderr)
                return 4
            return 0

        outcome = self.sandbox.run(call, ())
        found += [f"{fault}" for fault in outcome.faults if "holds [" not in fault]
        return outcome.err


def changed_line(rng: Random, directory: Path, file: Path, outside: Path) -> str:
    """Change a file, usually in one line; return a description of the change."""
    way = rng.random()
    if way < 0.08:
        return replaced(rng, directory, outside)
    if way < 0.1:
        return bloated(rng, directory, outside)
    if way < 0.35:
        data, what = change_bytes(rng, file.read_bytes())
        file.write_bytes(data)
        return what
    lines = file.read_text().splitlines()
    number = rng.randrange(len(lines))
    name, equals, _ = lines[number].partition(" = ")
    raw = rng.choice([*_VALUES, *(f'"{t}"' for t in TEXTS), "[" * (depth := rng.choice(DEEP)) + "]" * depth])
    kind = rng.randrange(5)
    if kind <= 1 and equals:
        lines[number] = f"{name} = {raw}"
    elif kind == 2:
        lines.insert(rng.randrange(len(lines)), lines[number])
    elif kind == 3:
        del lines[number]
    else:
        key = rng.choice(
            ["a", "a." * rng.choice([10, 70, 20_000]) + "b", '""', "ckpt_target", "[x]", "[[waive]]", name]
        )
        lines.insert(number, f"{key} = {raw}" if not key.startswith("[") else key)
    text = io.StringIO("\n".join(lines) + "\n").getvalue()
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    return f"line {number + 1}: {lines[min(number, len(lines) - 1)][:60]!r}" if lines else "nothing is left"
