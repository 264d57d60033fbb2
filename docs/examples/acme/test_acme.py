"""ACME's own suite: one test for each of its requirements, and one beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.vendors import Settings


@pytest.mark.requirement("ACME-DROPPED")
def test_the_array_s_own_cache_is_emptied(subject: str, judge: Callable[[str], None]) -> None:
    """The text of a requirement is the docstring of its judge."""
    judge(subject)


@pytest.mark.requirement("ACME-WARMUP")
def test_the_first_load_is_no_slower(subject: str, judge: Callable[[str], None]) -> None:
    """A failed advisory requirement is reported and fails nothing."""
    judge(subject)


def test_the_run_has_a_folder_of_its_own(ckpt_target: Path, ckpt_settings: Settings) -> None:
    """A test without a requirement may use the fixtures too; when it fails, the run fails."""
    assert ckpt_target.parent == Path(ckpt_settings.target or "").expanduser().absolute()
