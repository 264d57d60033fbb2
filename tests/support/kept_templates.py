"""A plugin of the front door's runs: templates that one run compiled are there for the next, a tenth of a small run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)  # before the certificate is written
def pytest_sessionfinish(session: pytest.Session) -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME", "none"))
    # A host with a /tmp of its own, which must hold nothing behind a run, does not have the tests' directory.
    if session.config.getoption("ckpt_target", None) and cache.is_dir():
        # Not before: what a run imports without us is a matter of tests.
        import jinja2  # noqa: PLC0415

        from pytest_ckpt.report import html  # noqa: PLC0415

        directory = cache / "templates"
        directory.mkdir(exist_ok=True)
        # By name and content: a template that is changed is compiled anew.
        html._environment().bytecode_cache = jinja2.FileSystemBytecodeCache(str(directory))
