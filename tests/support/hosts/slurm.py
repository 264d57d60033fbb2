"""Slurm on the simulated hosts.

The first host runs the controller, and each host runs a daemon. All hosts share one munge daemon.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.file_systems.mounting import create_directory, daemon, missing, wait_for
from tests.support.hosts.host import address_of, name_of

_NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sbatch")
# Slurm's plugin opens it by this name, which only the development package provides.
_PMIX = (Path("/usr/lib/x86_64-linux-gnu/libpmix.so"), Path("/usr/lib/aarch64-linux-gnu/libpmix.so"))
_SLOTS = 8


def need_slurm() -> None:
    if gone := missing(_NEEDED):
        pytest.skip(f"there is no {', '.join(gone)}")
    if not any(path.exists() for path in _PMIX):
        pytest.skip("there is no libpmix.so (package libpmix-dev), and srun needs it")


@contextlib.contextmanager
def slurm(home: Path, on_hosts: Sequence[Sequence[str]]) -> Iterator[None]:
    """Run Slurm until the block ends.

    For each host, ``on_hosts`` contains the prefix of commands that run on the host.
    """
    directory = create_directory(home / "slurm")
    config, socket = directory / "slurm.conf", directory / "munge.socket"
    config.write_text(_configuration(directory, socket, len(on_hosts)))
    key = directory / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    munged = ("munged", "--foreground", "--force", f"--socket={socket}", f"--key-file={key}")
    munged += (f"--pid-file={directory / 'munge.pid'}", f"--seed-file={directory / 'munge.seed'}")
    os.environ["SLURM_CONF"] = str(config)
    with daemon(directory / "munge.log", *munged, ready=socket.is_socket), contextlib.ExitStack() as stack:
        log = directory / "slurmctld.log"
        controller = stack.enter_context(daemon(log, *on_hosts[0], "slurmctld", "-D", "-c", ready=lambda: True))
        for number, on_host in enumerate(on_hosts, 1):
            words = (*on_host, "slurmd", "-D", "-N", name_of(number))
            stack.enter_context(daemon(directory / f"slurmd-{number}.log", *words, ready=lambda: True))
        wait_for(lambda: _idle(on_hosts[0]) == len(on_hosts), "all nodes of Slurm are idle", controller, log)
        yield


def _idle(on_first: Sequence[str]) -> int:
    words = [*on_first, "sinfo", "--noheader", "--Node", "--format=%T"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return len(re.findall(r"^idle$", done.stdout, re.MULTILINE))


def _configuration(directory: Path, socket: Path, hosts: int) -> str:
    """Return Slurm's configuration. Files that belong to one host are in /run, which is private to each host."""
    nodes = [
        f"NodeName={name_of(number)} NodeAddr={address_of(number)} CPUs={_SLOTS} State=UNKNOWN"
        for number in range(1, hosts + 1)
    ]
    lines = [
        "ClusterName=lab",
        f"SlurmctldHost={name_of(1)}({address_of(1)})",
        "SlurmUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={socket}",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SwitchType=switch/none",
        "SlurmdParameters=config_overrides",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        f"StateSaveLocation={create_directory(directory / 'state')}",
        "SlurmdSpoolDir=/run/slurmd",
        "SlurmdPidFile=/run/slurmd.pid",
        "SlurmctldPidFile=/run/slurmctld.pid",
        "TmpFS=/tmp",
        "KillWait=2",
        "ReturnToService=2",
        *nodes,
        f"PartitionName=all Nodes={name_of(1)}{''.join(f',{name_of(n)}' for n in range(2, hosts + 1))} Default=YES "
        "OverSubscribe=FORCE:8 State=UP",
    ]
    return "\n".join(lines) + "\n"
