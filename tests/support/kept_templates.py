"""A plugin of the front door's runs: a template that one run compiled is read by the next, a tenth of a small run.

The isolated process that writes the certificate compiles the templates, so what starts it is told where they are kept.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_KEEPS = (
    "import jinja2; from pytest_ckpt.report import html; "
    "html._environment().bytecode_cache = jinja2.FileSystemBytecodeCache({directory!r}); "
)
# Before this, the process has no path to the package.
_IMPORTS = "from pytest_ckpt.run.certify"


@pytest.hookimpl(tryfirst=True)  # before the certificate is written
def pytest_sessionfinish(session: pytest.Session) -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME", "none"))
    # A host with a private /tmp does not have the tests' directory, and a run must leave nothing there.
    if session.config.getoption("ckpt_target", None) and cache.is_dir():
        # Not before: what a run imports without us is a matter of tests.
        from pytest_ckpt.run import certify  # noqa: PLC0415

        directory = cache / "templates"
        directory.mkdir(exist_ok=True)
        assert _IMPORTS in certify._START
        # By name and content: a template that is changed is compiled anew.
        keeps = _KEEPS.format(directory=str(directory))
        certify._START = certify._START.replace(_IMPORTS, f"{keeps}{_IMPORTS}", 1)
