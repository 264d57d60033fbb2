"""Launch contexts for tests: the target is a real directory; the launcher command does not exist."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.targets import TARGETS
from pytest_ckpt.launching.launch_context import LaunchContext
from pytest_ckpt.launching.launcher import Launcher
from pytest_ckpt.sizing.plan import plan_run
from pytest_ckpt.targets.posix.target import PosixTarget


def synthetic_context(home: Path, options: Mapping[str, str]) -> LaunchContext:
    """Return the launch context of a run with these options.

    Creates the directories ``target`` and ``run`` in ``home``.
    """
    (home / "target").mkdir()
    (home / "run").mkdir()
    settings = resolve({**options, "ckpt_target": str(home / "target")}, {})
    target = PosixTarget(str(home / "target"))
    return LaunchContext(
        run_id="made-up",
        seed=1,
        settings=settings,
        plan=plan_run(settings, target.check()),
        directory=home / "run",
        spec=TARGETS[""],
        target=target.check(),
        launcher=Launcher(template=("no-such-launcher",), version="none", hosts=()),
        area=target.create_area("made-up"),
    )
