"""The isolated process that makes the certificate: what it needs is looked for before the run."""

from __future__ import annotations

import os

import pytest

from pytest_ckpt.run import certify
from pytest_ckpt.support.errors import UsageError


def test_what_an_isolated_python_does_not_find_is_refused_before_the_run(monkeypatch, tmp_path):
    certify.check_isolated(signs=False)
    (tmp_path / "of_one_user.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(certify, "_NEEDED", ("json", "of_one_user"))
    with pytest.raises(UsageError, match=r"does not find of_one_user\. .*\n.*venv"):
        certify.check_isolated(signs=False)


def test_no_variable_of_python_or_the_loader_reaches_the_isolated_process(monkeypatch):
    for name in ("LD_PRELOAD", "PYTHONPATH", "PYTHONSTARTUP", "PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setattr(certify.subprocess, "run", run := Recorded())
    with pytest.raises(EndedError):
        certify.check_isolated(signs=True)
    assert run.environment.get("PATH") == os.environ["PATH"]
    assert not [name for name in run.environment if name.startswith(("LD_", "PYTHON", "PYTEST"))]
    assert run.command[1] == "-I"


class EndedError(Exception):
    """A process that was not started."""


class Recorded:
    def __call__(self, command, *, env, **_):
        self.command, self.environment = command, env
        raise EndedError
