"""ACME's tests in addition to its requirements."""

from __future__ import annotations

from pathlib import Path

from pytest_ckpt.vendors import Settings


def test_the_run_has_a_directory_of_its_own(ckpt_target: Path, ckpt_settings: Settings) -> None:
    """An additional test can use the fixtures; if it fails, the run fails."""
    assert ckpt_target.parent == Path(ckpt_settings.target or "").expanduser().absolute()
