"""If a host lacks the library of an engine, the run names the host before it creates a file."""

from __future__ import annotations

import pytest

from tests.support.end_to_end import SMALLEST, TORCH, Runner, in_every_rank

WITHOUT_TORCH = """
import importlib.util, sys
if "pytest_ckpt.ranks" in sys.orig_argv:
    real = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *more: None if name == "torch" else real(name, *more)
"""


@pytest.mark.thorough
def test_a_host_without_the_engine_s_library_is_named_before_the_run(runner: Runner) -> None:
    run = runner.run(*SMALLEST, TORCH, environment=in_every_rank(runner.home, WITHOUT_TORCH))
    assert run.code == 4, run.text
    text = " ".join(run.text.split())
    assert "Libraries of --ckpt-engine are not installed on every host: " in text
    assert ": torch." in text
    assert not run.report.exists()
    assert run.left_on_target == []
