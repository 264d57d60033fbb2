"""Fixtures for tests of the engine stream: a correct checkpoint, and a copy of it for each test."""

from __future__ import annotations

import pytest

from tests.support.streaming import ODD, by_torch, bytes_of, everything, load, save, streaming


@pytest.fixture(scope="module")
def expected_files(tmp_path_factory):
    """Return {file name: bytes} of a correct checkpoint."""
    directory = tmp_path_factory.mktemp("right")
    save(streaming(ODD), directory)
    assert load(by_torch(ODD), directory) == everything(ODD)
    return bytes_of(directory)


@pytest.fixture
def saved(tmp_path, expected_files):
    """Return a directory with a copy of the checkpoint, which a test may damage."""
    for name, data in expected_files.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path
