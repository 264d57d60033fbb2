"""Finds the hosts that ssh does not reach, all at once: a launcher waits minutes for one, and names none or the first.

Only what ssh itself says counts: a host that answers, and is slow to log anybody in, is left to the launcher.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.launching.remote_shell import AGENT, SSH
from pytest_ckpt.support import waits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_ckpt.launching.launcher import Launcher

REACH_SECONDS = 10.0
_TRIES = 3
# ssh's own exit code, which no command of ours on the other host ends with.
_SSH_FAILED = 255
# Within a job of these a launcher may start ranks by the scheduler, where nobody may use ssh.
_SCHEDULERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE", "FLUX_JOB_ID")


def unreached_by_ssh(launcher: Launcher, run_id: str, seconds: float = REACH_SECONDS) -> dict[str, str]:
    """Return why ssh does not reach hosts of the launcher, by their names; empty where it does, or where none is used.

    A host that never answers is named after ``seconds``; one that refuses is asked again, three times in all.
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
        missing = _asked(shell, missing, environment, left)
    return {host: why for host, why in missing.items() if not _is_here(host)}


def _ssh_of(launcher: Launcher, environment: Mapping[str, str]) -> list[str]:
    """Return the words of ssh that the launcher uses; none where it uses something else, or may."""
    says_another = any("launcher" in word or "plm" in word or "ssh" in word for word in launcher.template[1:])
    if not launcher.is_mpiexec or says_another or any(name in os.environ for name in _SCHEDULERS):
        return []
    said = os.environ.get(AGENT, SSH) if launcher.is_open_mpi else SSH
    words = shlex.split(said.split(":")[0])
    return words if words and Path(words[0]).name == SSH else []


def _asked(shell: list[str], hosts: Iterable[str], environment: Mapping[str, str], seconds: float) -> dict[str, str]:
    """Ask each host for nothing; return what ssh says of those that it did not reach."""
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={max(1, int(seconds))}"]
    asked: dict[str, subprocess.Popen[str]] = {}
    with contextlib.suppress(OSError):  # there is no ssh: the launcher says so itself
        for host in hosts:
            asked[host] = subprocess.Popen(
                [*shell, *options, host, "true"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment,
            )
    end = time.monotonic() + seconds + 1.0
    said = {host: _said(process, max(0.0, end - time.monotonic())) for host, process in asked.items()}
    return {host: why for host, why in said.items() if why}


def _said(process: subprocess.Popen[str], seconds: float) -> str:
    try:
        _, errors = waits.communicate(process, seconds=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return ""  # connected in time, or ssh would have said so
    if process.returncode != _SSH_FAILED:
        return ""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return lines[-1].removeprefix("ssh: ").rstrip(".") if lines else "ssh gives no reason"


def _is_here(host: str) -> bool:
    """Whether it is a name of this host, where a launcher starts ranks without ssh."""
    with contextlib.suppress(OSError):
        for family, kind, protocol, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as own:
                own.bind(address)  # only this host's addresses can be taken
                return True
    return False
