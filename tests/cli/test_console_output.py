"""Control characters from files and names are escaped before a command prints them to the terminal."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from pytest_ckpt import cli
from pytest_ckpt.cli.console import print_lines
from pytest_ckpt.cli.main import main

CLEARS, TURNS = "\x1b[2J", "\N{RIGHT-TO-LEFT OVERRIDE}"
SMALL = ("--ckpt-model=llama3-8b", "--ckpt-mode=open", "--ckpt-ranks=2", "--ckpt-profile=smoke")
MODULES = sorted(Path(cli.__file__).parent.glob("*.py"))


def is_harmless(text: str) -> bool:
    return all(line.replace("\t", " ").isprintable() for line in text.split("\n"))


def test_lines_stay_lines_and_steer_nothing(capsys):
    print_lines(["two\nlines", f"{CLEARS}red", f"{TURNS}turned", "é ü 日本"])
    out = capsys.readouterr().out
    assert is_harmless(out)
    assert out.split("\n") == [
        "two lines",
        "\N{REPLACEMENT CHARACTER}[2Jred",
        "\N{REPLACEMENT CHARACTER}turned",
        "é ü 日本",
        "",
    ]


@pytest.mark.parametrize("name", [f"a{CLEARS}b", f"a{TURNS}b", "a\nmet  COLD", "a\x07\x9b2Jb"])
def test_a_plan_for_a_target_whose_name_steers_a_terminal(name, tmp_path, capsys):
    target = tmp_path / name
    target.mkdir()
    main(["plan", "--cluster=64", *SMALL, f"--ckpt-target={target}"])
    output = capsys.readouterr()
    assert is_harmless(output.out + output.err)
    assert "\nmet  COLD" not in output.out


@pytest.mark.parametrize("words", [["plan", f"--ckpt-{CLEARS}"], ["plan", f"--cluster={CLEARS}"], [f"{CLEARS}"]])
def test_an_error_quotes_what_steers_a_terminal_without_it(words, capsys):
    try:
        code = main(words)
    except SystemExit as stopped:
        code = stopped.code
    output = capsys.readouterr()
    assert code in (2, 4)
    assert is_harmless(output.out + output.err)


@pytest.mark.parametrize(("what", "text"), [
    ("--ckpt-model", 'name = "mine\\u001b[2J"\nlayers = 2\n'),
    ("--ckpt-hosts", f"node{CLEARS}1 slots=2\n"),
    (
        "--ckpt-gate-table",
        'extends = "posix-local"\nname = "x\\u001b[2J"\ntext = "\\u202e"\n[requirements]\nSAVE = { gate = "off" }\n',
    ),
    ("--ckpt-config", 'ckpt_failures = "\\u001b[2J"\n'),
])  # fmt: skip
def test_a_plan_from_files_that_hold_it(what, text, tmp_path, capsys):
    file = tmp_path / f"file{CLEARS}.toml"
    file.write_text(text)
    target = tmp_path / "target"
    target.mkdir()
    value = f"@{file}" if what == "--ckpt-hosts" else str(file)
    main(["plan", "--cluster=64", "--ckpt-profile=smoke", f"--ckpt-target={target}", f"{what}={value}"])
    output = capsys.readouterr()
    assert output.out + output.err
    assert is_harmless(output.out + output.err)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_no_command_prints_past_it(module):
    """Each call of ``print`` in a command prints the result of ``json.dumps`` or ``printable``.

    These two functions escape control characters.
    """
    passed = ("json.dumps(", "printable(")
    for call in ast.walk(ast.parse(module.read_text())):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print":
            assert ast.unparse(call.args[0]).startswith(passed), f"{module.name}:{call.lineno}"
