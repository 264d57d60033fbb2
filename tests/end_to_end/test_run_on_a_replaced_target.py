"""Other storage is mounted over the directory of a run. The run detects this and does not judge that storage."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.end_to_end import TINY, Sabotage


@contextmanager
def covered(directory: Path, by: Path) -> Iterator[None]:
    """Copy the directory to ``by``, which is on other storage, and mount the copy over the directory.

    The mount exists during a ``with`` block.
    """
    # Checks may remove files of the directory while it is copied.
    with contextlib.suppress(shutil.Error, FileNotFoundError):
        shutil.copytree(directory, by)
    subprocess.run(["mount", "--bind", str(by), str(directory)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
def test_storage_mounted_over_the_directory_of_the_run_is_not_measured(runner, mount, kind):
    target, other = mount("ext4", 96), mount(kind, 96)
    sabotage = Sabotage(runner.home, "pause", rank=1)
    started = runner.start(*TINY, "--ckpt-engine=stream", target=target, environment=sabotage.environment)
    sabotage.wait_until_blocked(started)
    with covered(started.run_directory, other / "copy"):
        sabotage.release()
        run = started.finish()
    assert run.code == 8, run.text
    because = run.verdict("SAVE")["because"]
    assert "met another directory" in because, because
    assert f"({kind} of " in because.partition("now it is")[2], because
    assert run.verdict("SAVE")["outcome"] == run.verdict("LOAD")["outcome"] == "not run"
    # A run removes only its own files. The directory below the mount is named.
    assert run.document["left_behind"]


@pytest.mark.thorough
def test_checks_do_not_look_at_what_is_mounted_over_the_runs_directory(runner, mount):
    target, other = mount("ext4", 96), mount("tmpfs", 96)
    started = runner.start(*TINY, "--ckpt-gate-table=posix-local", "--ckpt-suite=conformance", target=target)
    made = started.report / "observations"
    started.until(lambda: made.exists() and len([*made.iterdir()]) > 2, "some checks were made")
    with covered(started.run_directory, other / "copy"):
        run = started.finish()
    assert run.code == 8, run.text
    replaced = [o for o in run.document["observations"] if o["not_run"].startswith("the target was replaced: ")]
    assert len(replaced) > 10
    assert not [v for v in run.document["requirements"] if v["outcome"] == "failed"]
