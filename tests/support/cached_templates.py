"""A pytest plugin for end-to-end runs that caches compiled templates, which saves a tenth of a small run's time.

When a separate process writes the certificate, this process compiles the templates. The plugin therefore adds the cache
to the Python code that the process executes.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_KEEPS = (
    "import jinja2; from pytest_ckpt.report import html; "
    "html._environment().bytecode_cache = jinja2.FileSystemBytecodeCache({directory!r}); "
)
# The code is inserted before this import; any earlier, the process could not import the package.
_IMPORTS = "from pytest_ckpt.run.certify"


@pytest.hookimpl(tryfirst=True)  # before the certificate is written
def pytest_sessionfinish(session: pytest.Session) -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME", "none"))
    # A host with a private /tmp does not have the tests' directory, and a run must leave nothing there.
    if session.config.getoption("ckpt_target", None) and cache.is_dir():
        # Not imported earlier, because tests check what a run imports without this plugin.
        from pytest_ckpt.run import certify  # noqa: PLC0415

        directory = cache / "templates"
        directory.mkdir(exist_ok=True)
        assert _IMPORTS in certify._START
        # Cached templates are identified by name and content, so a changed template is compiled again.
        keeps = _KEEPS.format(directory=str(directory))
        certify._START = certify._START.replace(_IMPORTS, f"{keeps}{_IMPORTS}", 1)
