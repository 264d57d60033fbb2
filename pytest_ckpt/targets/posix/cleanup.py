"""Removes a run's files from the target within a time limit, even if the target hangs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_ckpt.facts.targets import Names
from pytest_ckpt.targets.child import NoAnswerError, RefusedError, call_in_time
from pytest_ckpt.targets.posix.names import is_of_a_checkpoint
from pytest_ckpt.targets.posix.run_folder import remove

REMOVE = "pytest_ckpt.targets.posix.cleanup:remove_as_asked"


def remove_in_time(
    folder: Path, identity: Sequence[int], names: Names, seconds: float, *, keep_folder: bool = False
) -> list[str]:
    """Remove a run's folder from another process, so that a target that does not answer cannot hold this one.

    Return what was left, one sentence each. With ``keep_folder`` only what is in it is removed.
    """
    asked = {
        "folder": str(folder),
        "identity": list(identity),
        "checkpoints": {subject: sorted(files) for subject, files in names.files.items()},
        "beside": {subject: sorted(files) for subject, files in names.beside.items()},
        "folders": sorted(names.folders),
        "keep_folder": keep_folder,
    }
    try:
        left: list[str] = call_in_time(REMOVE, asked, seconds)
    except NoAnswerError:
        return [f"{folder} stays: the target did not answer for {seconds:g} s"]
    except RefusedError:
        return [f"{folder} was not removed"]
    return left


def remove_as_asked(asked: Mapping[str, Any]) -> list[str]:
    """Do what `remove_in_time` asks, in its process."""
    folder = Path(asked["folder"])
    names = {f"{name}/" for name in asked["folders"]}
    names |= {f"{subject}/{file}" for subject, files in asked["beside"].items() for file in files}
    for subject, files in asked["checkpoints"].items():
        names |= {f"{subject}/{checkpoint}/{file}" for checkpoint in _checkpoints(folder / subject) for file in files}
        # An empty folder of a subject has no file that would name it.
        names.add(f"{subject}/{_NO_FILE}")
    return remove(folder, asked["identity"], names, keep_folder=asked["keep_folder"])


_NO_FILE = "."


def _checkpoints(folder: Path) -> Iterator[str]:
    """Yield what the names of a subject's checkpoints are; nothing is followed or opened to find out."""
    entries: Iterable[str] = ()
    with contextlib.suppress(OSError):
        entries = [entry.name for entry in folder.iterdir()]
    yield from filter(is_of_a_checkpoint, entries)
