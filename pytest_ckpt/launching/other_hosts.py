"""Ends what is left of a run on its other hosts: nothing may be removed, or measured, while ranks there may write."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from pytest_ckpt.facts.settings import HostSlots
from pytest_ckpt.launching.scratch import ScratchFolder
from pytest_ckpt.support import waits
from pytest_ckpt.support.processes import SWEEP, end_launch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_ckpt.launching.launcher import Launcher

# A host that is busy takes its time to start what is asked of it.
_SHORTEST_SECONDS, _LONGEST_SECONDS = 30.0, 90.0


def sweep_seconds(launcher: Launcher, deadline_seconds: float) -> float:
    """Return how long a host may take to say that nothing of the run is left there: as a rank that does not move.

    A scheduler that has lost a host lets others wait, too: what it starts has the longest time.
    """
    if not launcher.is_mpiexec:
        return _LONGEST_SECONDS
    return min(max(deadline_seconds, _SHORTEST_SECONDS), _LONGEST_SECONDS)


def ended_badly(run_folder: Path) -> bool:
    """Whether a launch of the run did not end by itself: then ranks of it may go on where nobody sees them.

    A launcher that has lost a host may say that all went well: Open MPI does.
    """
    for launch in (run_folder / "launches").glob("[0-9]*"):
        try:
            ended = json.loads((launch / "exit.json").read_text())
            if ended["exit_code"] != 0 or not ended["is_whole"]:
                return True
        except (OSError, ValueError, KeyError):
            return True
    return False


def end_on_other_hosts(launcher: Launcher, hosts: Sequence[str], run_id: str, seconds: float) -> str:
    """End the run's processes on these hosts; return why some may go on, empty where every host says that none does."""
    processes = {}
    # One that does not end is killed, and removes nothing itself.
    scratch = ScratchFolder() if launcher.needs_scratch else None
    for host in hosts:
        there = dataclasses.replace(launcher, hosts=(HostSlots(name=host, slots=1),))
        processes[host] = subprocess.Popen(
            there.command(1, "pytest_ckpt.launching.host_sweep", calls_back=False),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=there.environment(run_id + SWEEP, scratch.path if scratch else ""),
            start_new_session=True,
        )
    # Beside each other: while one is waited for that never answers, the others have their time, too.
    with ThreadPoolExecutor(max_workers=max(1, len(processes))) as pool:
        answers = [pool.submit(_answer, host, process, seconds) for host, process in processes.items()]
        while wait(answers, waits.LOOK_SECONDS).not_done:
            waits.look()
        whys = [answer.result() for answer in answers]
    for process in processes.values():
        end_launch(process, run_id + SWEEP)
        if process.stdout:
            process.stdout.close()
    if scratch:
        scratch.remove()
    return "; ".join(filter(None, whys))


def _answer(host: str, process: subprocess.Popen[bytes], seconds: float) -> str:
    with contextlib.suppress(subprocess.TimeoutExpired):
        output, _ = process.communicate(timeout=seconds)
        for line in output.splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                stuck = json.loads(line)["stuck"]
                pids = ", ".join(map(str, stuck))
                return f"processes {pids} on {host} are blocked in the kernel and may still write" if stuck else ""
    return f"{host} does not say that no process of the run is left there, so it may still write"
