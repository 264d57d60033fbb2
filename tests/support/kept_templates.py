"""A plugin for end-to-end runs that caches compiled templates between runs, which saves a tenth of a small run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)  # before the certificate is written
def pytest_sessionfinish(session: pytest.Session) -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME", "none"))
    # A host with a private /tmp does not have the tests' directory, and a run must leave nothing there.
    if session.config.getoption("ckpt_target", None) and cache.is_dir():
        # Imported late, because tests check which modules a run imports.
        import jinja2  # noqa: PLC0415

        from pytest_ckpt.report import html  # noqa: PLC0415

        directory = cache / "templates"
        directory.mkdir(exist_ok=True)
        # By name and content, so that a changed template is compiled again.
        html._environment().bytecode_cache = jinja2.FileSystemBytecodeCache(str(directory))
