"""Fixtures for tests of the engine safetensors: a checkpoint that the engine saved."""

from __future__ import annotations

import pytest

from tests.support.safetensors_files import save


@pytest.fixture
def saved(tmp_path):
    save(tmp_path)
    return tmp_path
