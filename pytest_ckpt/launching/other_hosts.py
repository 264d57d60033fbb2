"""Tests whether ssh reaches the other hosts of a run, and ends processes that failed launches left on these hosts.

If ssh does not reach a host, a launcher waits for minutes and then names at most one host. Therefore ssh to all hosts
is tried in parallel before the launch. A host counts as unreached only if ssh itself fails (exit code 255). A slow
login does not count as a failure, because the launcher waits for it.

While processes on other hosts may still write, no files are removed and no measurement begins.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.facts.settings import HostSlots
from pytest_ckpt.launching.remote_shell import AGENT, SSH
from pytest_ckpt.launching.scratch import ScratchDirectory
from pytest_ckpt.support import waits
from pytest_ckpt.support.processes import SWEEP, end_launch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ckpt.launching.launcher import Launcher

REACH_SECONDS = 10.0
_TRIES = 3
# The exit code of ssh itself; our commands on the other host never use it.
_SSH_FAILED = 255
# Within a job of these schedulers a launcher may start ranks through the scheduler, on hosts that refuse ssh.
_SCHEDULERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE", "FLUX_JOB_ID")

# A busy host starts a command late.
_SHORTEST_SECONDS, _LONGEST_SECONDS = 30.0, 90.0


def unreached_by_ssh(launcher: Launcher, run_id: str, seconds: float = REACH_SECONDS) -> dict[str, str]:
    """Return {host: reason} for the launcher's hosts that ssh does not reach.

    The result is empty if the launcher does not use ssh. The test takes about ``seconds`` at most. A host that refuses
    the connection is tried three times.
    """
    environment = launcher.environment(run_id, scratch="")
    shell = _ssh_of(launcher, environment)
    if not shell:
        return {}
    end = time.monotonic() + seconds
    missing = {host.name: "" for host in launcher.hosts}
    for _ in range(_TRIES):
        if not missing or (left := end - time.monotonic()) < 1.0:
            break
        missing = _ssh_messages(shell, missing, environment, left)
    return {host: reason for host, reason in missing.items() if not _is_here(host)}


def _ssh_of(launcher: Launcher, environment: Mapping[str, str]) -> list[str]:
    """Return the ssh command that the launcher uses; empty if the launcher may use another program."""
    uses_other_launcher = any("launcher" in word or "plm" in word or "ssh" in word for word in launcher.template[1:])
    if not launcher.is_mpiexec or uses_other_launcher or any(name in os.environ for name in _SCHEDULERS):
        return []
    agent = os.environ.get(AGENT, SSH) if launcher.is_open_mpi else SSH
    words = shlex.split(agent.split(":")[0])
    return words if words and Path(words[0]).name == SSH else []


def _ssh_messages(
    shell: list[str], hosts: Iterable[str], environment: Mapping[str, str], seconds: float
) -> dict[str, str]:
    """Run an empty command on each host. Return {host: error message of ssh} for the hosts that ssh did not reach."""
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={max(1, int(seconds))}"]
    processes: dict[str, subprocess.Popen[str]] = {}
    with contextlib.suppress(OSError):  # ssh is missing: the launcher reports this itself
        for host in hosts:
            processes[host] = subprocess.Popen(
                [*shell, *options, host, "true"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment,
            )
    end = time.monotonic() + seconds + 1.0
    messages = {host: _ssh_message(process, max(0.0, end - time.monotonic())) for host, process in processes.items()}
    return {host: reason for host, reason in messages.items() if reason}


def _ssh_message(process: subprocess.Popen[str], seconds: float) -> str:
    try:
        _, errors = waits.communicate(process, seconds=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return ""  # connected in time; otherwise ssh would have printed a message
    if process.returncode != _SSH_FAILED:
        return ""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return lines[-1].removeprefix("ssh: ").rstrip(".") if lines else "ssh gives no reason"


def _is_here(host: str) -> bool:
    """Return whether ``host`` is this host. A launcher starts ranks on this host without ssh."""
    with contextlib.suppress(OSError):
        for family, kind, protocol, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.bind(address)  # only addresses of this host can be bound
                return True
    return False


def sweep_seconds(launcher: Launcher, deadline_seconds: float) -> float:
    """Return the seconds within which a host must confirm that it runs no more processes of the run.

    For mpiexec this time is ``deadline_seconds``, limited to the range from 30 s to 90 s. For other launchers it is 90
    s: if a scheduler has lost a host, the remaining hosts confirm late.
    """
    if not launcher.is_mpiexec:
        return _LONGEST_SECONDS
    return min(max(deadline_seconds, _SHORTEST_SECONDS), _LONGEST_SECONDS)


def may_have_left_processes(run_directory: Path) -> bool:
    """Return whether any launch of the run ended abnormally, in which case ranks may still run on other hosts.

    A launch ended normally if its exit code is 0 and all its ranks ended by themselves. The exit code alone is not
    sufficient: Open MPI may return 0 after it has lost a host.
    """
    for launch in (run_directory / "launches").glob("[0-9]*"):
        try:
            ended = json.loads((launch / "exit.json").read_text())
            if ended["exit_code"] != 0 or not ended["is_complete"]:
                return True
        except (OSError, ValueError, KeyError):
            return True
    return False


def end_on_other_hosts(launcher: Launcher, hosts: Sequence[str], run_id: str, seconds: float) -> str:
    """End the run's processes on ``hosts``. Return why some processes may still run, as text.

    Each host has ``seconds`` to answer. The text is empty if every host confirms that no process of the run remains.
    """
    processes = {}
    # A process that does not end is killed; it removes no files itself.
    scratch = ScratchDirectory() if launcher.needs_scratch else None
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
    # In parallel, so that a host that never answers does not use up the time of the others.
    with ThreadPoolExecutor(max_workers=max(1, len(processes))) as pool:
        answers = [pool.submit(_answer, host, process, seconds) for host, process in processes.items()]
        while wait(answers, waits.LOOK_SECONDS).not_done:
            waits.print_if_due()
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
    return f"{host} does not report whether processes of the run are left there, so it may still write"
