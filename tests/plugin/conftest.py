"""Fixtures for tests of hooks: runs with a vendor's plugin."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.end_to_end import Run, Runner, temporary_runner
from tests.support.vendor_directory import QUICK, SUITE, put_example


@pytest.fixture
def run_with(runner: Runner) -> Callable[..., Run]:
    """Return a function that runs the built-in suites together with a vendor's directory.

    The first argument of the function is the text of the conftest in that directory.
    """

    def run(conftest: str, *options: str, **how: object) -> Run:
        directory = runner.home / "vendor"
        directory.mkdir(exist_ok=True)
        (directory / "conftest.py").write_text(textwrap.dedent(conftest))
        return runner.run(*QUICK, "--pyargs", "pytest_ckpt.suites", "vendor", *options, **how)

    return run


@pytest.fixture(scope="session")
def acme(create_home: Callable[[str], Path]) -> Run:
    """A run of the built-in suites and of the example suite of the vendor Acme."""
    with temporary_runner(create_home("acme")) as opened:
        put_example(opened.home)
        return opened.run(*QUICK, "--junitxml=pytest.xml", "--pyargs", "pytest_ckpt.suites", SUITE)
