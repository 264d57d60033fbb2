"""Ranks of MPICH on other hosts than the controller, started by hydra over ssh."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.front_door import TINY, Run
from tests.support.hosts.lab import Step, need_hosts, on_hosts
from tests.support.hosts.mpich import python_of_mpich


@pytest.mark.thorough
def test_ranks_of_mpich_run_on_other_hosts_than_the_controller(make_home: Callable[[str], Path]) -> None:
    need_hosts()
    home = make_home("hosts")
    python = python_of_mpich(home)
    target = home / "array" / "of-mpich"
    options = (
        *TINY,
        "--ckpt-hosts=h2:1,h3:1",
        "--ckpt-engine=stream",
        "--ckpt-gates=speed-only",
        f"--ckpt-target={target}",
    )
    door = (str(python), "-m", "pytest", "-p", "pytest_ckpt.plugin.session_hooks", *options)
    words = ("sh", "-euc", 'mkdir "$1"; shift; exec "$@"', "sh", str(target), *door)
    left = Step(words=("ls", "-A", str(target)))
    done, after = on_hosts(home, 3, Step(words=words, environment={"PYTHONPATH": f"{home}"}), left)
    folder = Path(done.home)
    run = Run(code=done.code, text=done.text, home=folder, target=target, report=folder / "ckpt-report")
    assert run.code == 0, run.text
    assert run.measurement()["hosts"] == ["h2", "h3"]
    assert "hydra" in run.document["environment"]["launcher"].lower()
    assert (after.code, after.text) == (0, "")
    assert (done.secrets > 0, done.shown) == (True, ())
