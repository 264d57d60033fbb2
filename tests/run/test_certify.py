"""The isolated process that writes the certificate: its environment, and how its failures are reported."""

from __future__ import annotations

import os

import pytest

from pytest_ckpt.run import certify
from tests.support import synthetic_run
from tests.support.forging import edit

CLOSING = certify.CertifyRequest(directory="", exit_code=0, is_final=False, pdf=False)
DRAFT = {"grade_reasons": []}


def test_libraries_of_one_user_or_of_pythonpath_are_found_by_the_isolated_process(monkeypatch, tmp_path):
    (tmp_path / "of_one_user").mkdir()
    (tmp_path / "of_one_user" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(certify, "_LIBRARIES", ("of_one_user", "is_not_there"))
    assert certify.library_homes() == [str(tmp_path)]


def test_no_variable_of_python_or_the_loader_reaches_the_isolated_process(monkeypatch, tmp_path):
    for name in ("LD_PRELOAD", "PYTHONPATH", "PYTHONSTARTUP", "PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setattr(certify.subprocess, "Popen", run := Recorded())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EndedError):
        certify.certified(DRAFT, CLOSING)
    assert run.environment.get("PATH") == os.environ["PATH"]
    assert not [name for name in run.environment if name.startswith(("LD_", "PYTHON", "PYTEST"))]
    assert run.command[1] == "-I"


def test_a_process_that_was_killed_is_named_with_the_command_that_judges_again(monkeypatch, tmp_path):
    monkeypatch.setattr(certify, "_START", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    closing = certify.CertifyRequest(directory=str(tmp_path), exit_code=0, is_final=False, pdf=False)
    with pytest.raises(certify.NotCertifiedError) as ended:
        certify.certified(DRAFT, closing)
    assert "was killed by signal 9 (SIGKILL)" in str(ended.value)
    assert f"'pytest-ckpt judge {tmp_path}'" in str(ended.value)


class EndedError(Exception):
    """Raised by the fake function that replaces the start of the isolated process."""


class Recorded:
    def __call__(self, command, *, env, **_):
        self.command, self.environment = command, env
        raise EndedError


def test_a_requirement_that_pytests_process_took_from_the_list_certifies_nothing(tmp_path):
    directory = tmp_path / "run"
    synthetic_run.write_run(directory)
    assert certify.judged(directory, CLOSING)["exit_code"] == 0
    edit(directory / "report.json", lambda report: report["catalogue_names"].remove("COLD"))
    document = certify.judged(directory, CLOSING)
    assert (document["exit_code"], document["certified_for"]) == (8, None)
    assert any("(catalogue_names): they were altered" in r for r in document["grade_reasons"])
