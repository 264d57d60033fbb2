"""No file of a run contains secrets.

The tests use each source of secrets separately, and a real run with secrets in all sources.
"""

from __future__ import annotations

import json
import shlex
import stat
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.support.redaction import HIDDEN, Redactor, may_be_secret
from tests.support.end_to_end import TINY

NOBODY = Redactor()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("https://user:hunter2@host/x", "https://***@host/x"),
        ("https://ghp_token@host/x", "https://***@host/x"),
        ("ftp://u:pa/ss@host/", "ftp://***@host/"),
        ("x --token=abc --n=3", "x --token=*** --n=3"),
        ("x --token abc", "x --token ***"),
        ("x --password='a b' y", "x --password=*** y"),
        ('x --api-key "a b" y', "x --api-key *** y"),
        ("env AWS_SECRET_ACCESS_KEY=abc/def x", "env AWS_SECRET_ACCESS_KEY=*** x"),
        ("rw,username=me,password=abc,vers=3.0", "rw,username=me,password=***,vers=3.0"),
        ("https://host/x?sig=abc%2F&n=1", "https://host/x?sig=***&n=1"),
        ("Authorization: Bearer abcdefgh", "Authorization: *** ***"),
        ("curl -u me:word host", "curl -u *** host"),
        ("sshpass -p word ssh host", "sshpass -p *** ssh host"),
        ("me:word@host:/export", "***@host:/export"),
    ],
)
def test_text_in_the_place_of_a_secret_is_hidden(text, left):
    hidden = NOBODY.text(text)
    assert hidden == left
    assert NOBODY.text(hidden) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1@o2ib:10.0.0.2@o2ib:/lustre",
        "array:/export/ckpt",
        "admin@array:/export",
        "client01:8,client02:8",
        "observed:419/54d@16000",
        "mpiexec -n 8 --host client01:8 python -m pytest_ckpt.ranks",
        "rw,relatime,vers=4.2,sec=krb5,rsize=1048576,hard,proto=tcp",
        "http://host:8080/a@b",
        "--tokenizer=llama --max-tokens=3",
        "fsync returned for all 160 files: 3 of 3 keys",
        "https://user:***@host",
    ],
)
def test_other_text_stays_as_it_is(text):
    assert NOBODY.text(text) == text


def test_names_tell():
    assert all(
        map(may_be_secret, ["AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "GITHUB_TOKEN", "DB_PWD", "apikey", "ckpt_pass"])
    )
    assert not any(
        map(may_be_secret, ["HOME", "PATH", "LANG", "max_tokens", "PYTHONPATH", "OMP_NUM_THREADS", "author"])
    )


def test_a_known_value_is_hidden_wherever_it_stands():
    redactor = Redactor.of({"MY_TOKEN": "s3cr3t-value", "HOME": "/root", "PWD": "/work"}, ["x --pass='a long one'"])
    assert redactor.text("the server said: s3cr3t-value is wrong, /root, /work") == (
        "the server said: *** is wrong, /root, /work"
    )
    assert redactor.plain({"a": ["a long one", 1, None, True]}) == {"a": [HIDDEN, 1, None, True]}


def test_secrets_in_a_command_within_a_command_are_known():
    redactor = Redactor.of({}, ["sh -c \"mount -o 'password=inner-secret' x\"", "curl https://u:p%40ss-word@h/"])
    assert redactor.text("inner-secret p%40ss-word p@ss-word") == f"{HIDDEN} {HIDDEN} {HIDDEN}"


def test_the_word_behind_an_option_in_a_list_is_hidden():
    assert NOBODY.plain(["x", "--password", "hunter2", "--n", "3"]) == ["x", "--password", HIDDEN, "--n", "3"]
    assert NOBODY.plain(["x", "--password", "--n"]) == ["x", "--password", "--n"]


def test_short_values_do_not_destroy_other_text():
    assert Redactor.of({"ALLOW_EMPTY_PASSWORD": "yes"}, []).text("yes, 3 of 3") == "yes, 3 of 3"


@given(st.text(max_size=80))
def test_hiding_twice_is_hiding_once(text):
    once = NOBODY.text(text)
    assert NOBODY.text(once) == once


NUMBERS = st.integers(min_value=0, max_value=10**16)
PLAIN = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=8), below, max_size=4),
    max_leaves=12,
)


def shape(value):
    """Return a JSON document in which "text" replaces each string."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, dict):
        return {name: shape(below) for name, below in value.items()}
    return [shape(below) for below in value] if isinstance(value, list) else value


@given(PLAIN, NUMBERS, st.text(max_size=12))
def test_nothing_but_texts_is_ever_changed(plain, number, short):
    redactor = Redactor.of({"DB_PASSWORD": str(number), "PIN_TOKEN": short}, [])
    assert shape(redactor.plain(plain)) == shape(plain)
    assert json.loads(json.dumps(redactor.plain({"full_bytes": number})))["full_bytes"] == number


def test_digits_are_hidden_as_whole_words_alone():
    redactor = Redactor.of({"DB_PASSWORD": "2368128", "PIN_TOKEN": "12345"}, [])
    assert redactor.text("2368128 of 12368128 in 2368128.5 s, 12345") == f"{HIDDEN} of 12368128 in 2368128.5 s, 12345"


def test_words_that_files_are_read_by_stay():
    environment = {"DB_PASSWORD": "conformance", "A_TOKEN": "llama3-8b-full", "OTHER_KEY": "certainly-not-one"}
    redactor = Redactor.of(environment, [], ["conformance", "llama3-8b-full/stream"])
    text = "conformance of llama3-8b-full/stream: certainly-not-one"
    assert redactor.text(text) == f"conformance of llama3-8b-full/stream: {HIDDEN}"
    assert redactor.text("x --password conformance") == f"x --password {HIDDEN}"


DIGITS = {
    # The bytes of the checkpoint, a word of the settings, a requirement's word, and a variable that is no secret.
    "DB_PASSWORD": "11236752",
    "A_TOKEN": "llama3-8b-open-2",
    "B_SECRET": "checkpoint",
    "I_MPI_PIN_DOMAIN": "socket",
}


def test_a_run_beside_secrets_that_are_numbers_and_words_is_verified(runner):
    run = runner.run(*TINY, environment=DIGITS)
    assert run.code == 0, run.text
    assert run.document["measurements"][0]["subject"].startswith("llama3-8b-open-2")
    assert f"{HIDDEN}-open" not in (run.report / "report.json").read_text()
    verified = subprocess.run(
        [sys.executable, "-m", "pytest_ckpt.cli.main", "verify", run.report],
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stdout


PLANTED = {
    "AWS_SECRET_ACCESS_KEY": "planted/environment/secret",
    "DB_PASSWORD": "planted-password-of-a-database",
}
IN_OPTIONS = ("planted-token-of-the-launcher", "planted-word-of-a-url", "planted-word-of-another-plugin", "planted-pw")


@pytest.mark.parametrize(
    "workers", [pytest.param((), marks=pytest.mark.thorough, id="alone"), pytest.param(("-n", "2"), id="xdist")]
)
def test_no_planted_secret_reaches_a_file_of_a_real_run(run_pytest, pytester, monkeypatch, workers):
    """Secrets are in options and in the environment, and the launcher prints the secrets to its output."""
    target = pytester.path / "target"
    target.mkdir()
    launcher = pytester.path / "launch"
    # Not by its first line: that cannot name a Python whose path holds a space.
    launcher.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(launcher))}.py "$@"\n')
    launcher.with_name("launch.py").write_text(
        "import os, sys\n"
        "words = [w for w in sys.argv[1:] if not w.startswith(('--token', 'https:'))]\n"
        "if words == ['--version']:\n    print('mpiexec (Open MPI) 5.0.8 with', *sys.argv); raise SystemExit\n"
        "print('launched as', *sys.argv, os.environ.get('AWS_SECRET_ACCESS_KEY'), flush=True)\n"
        "print('to standard error', *sys.argv, os.environ.get('DB_PASSWORD'), file=sys.stderr, flush=True)\n"
        f"mpiexec = {str(pytester.path)!r} and os.path.join(os.path.dirname(sys.executable), 'mpiexec')\n"
        "os.execv(mpiexec, [mpiexec, *words])\n"
    )
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    result = run_pytest(
        f"--ckpt-target={target}",
        *TINY,
        "--ckpt-engine=stream",
        "--ckpt-gate-table=speed-only",
        f"--ckpt-launcher={launcher} --token={IN_OPTIONS[0]} https://me:{IN_OPTIONS[1]}@host/",
        f"--ckpt-drop-caches=true --password {IN_OPTIONS[3]} me:{IN_OPTIONS[2]}@host",
        *workers,
    )
    directory = pytester.path / "ckpt-report"
    assert result.ret in (0, 8), result.stdout.str()
    text = {p.relative_to(directory).as_posix(): p.read_text() for p in directory.rglob("*") if p.is_file()}
    assert "launched as" in text["launches/1/launcher.log"]
    assert "to standard error" in text["launches/1/launcher.log"]
    for name, content in text.items():
        found = [s for s in (*PLANTED.values(), *IN_OPTIONS) if s in content]
        assert not found, f"{name} holds {found}"
    assert HIDDEN in text["report.json"]
    assert f"--token={HIDDEN}" in text["launches/1/command"]
    verified = pytester.run(sys.executable, "-m", "pytest_ckpt.cli.main", "verify", directory)
    assert verified.ret == 0, verified.stdout.str()
