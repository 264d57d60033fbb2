"""A directory that another host has just created, but that this client's cache still reports as missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ckpt.targets.posix import checkpoint


@pytest.fixture
def forgets_after(monkeypatch):
    """Return a function ``make(count)`` that hides existing directories from the first ``count`` lookups.

    ``make`` returns the list of looked-up paths.
    """
    lstat, asked = Path.lstat, []

    def make(count):
        def remembered(path):
            asked.append(path)
            if len(asked) <= count:
                raise FileNotFoundError(2, "No such file or directory", str(path))
            return lstat(path)

        monkeypatch.setattr(Path, "lstat", remembered)
        return asked

    return make


@pytest.mark.parametrize("count", [0, 1, 5])
def test_the_creation_of_a_directory_is_repeated_until_the_client_sees_it(tmp_path, forgets_after, count):
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    asked = forgets_after(count)
    checkpoint.make_directory(directory)
    assert len(asked) == count + 1


def test_a_client_that_does_not_see_it_in_time_fails(tmp_path, forgets_after, monkeypatch):
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    forgets_after(1_000_000)
    monkeypatch.setattr(checkpoint, "VISIBLE_WITHIN_SECONDS", 0.0)
    with pytest.raises(FileNotFoundError):
        checkpoint.make_directory(directory)


def test_a_link_in_its_place_is_not_a_directory(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkpoint").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        checkpoint.make_directory(tmp_path / "checkpoint")
