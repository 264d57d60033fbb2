"""The components of a heterogeneous job of Slurm: srun starts one world of ranks over all of them, each named apart."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from pytest_ckpt.support.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIZE, _NODES = "SLURM_HET_SIZE", "SLURM_JOB_NODELIST_HET_GROUP_{}"
_SECONDS = 60


def components_of(environment: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Return the hosts of each component of the job that this process is in; nothing where its job has none.

    Raises UsageError where Slurm does not say which hosts they are.
    """
    size = environment.get(_SIZE, "")
    lists = [environment.get(_NODES.format(number), "") for number in range(int(size) if size.isdecimal() else 0)]
    return tuple(_hosts_of(nodes) for nodes in lists)


def _hosts_of(nodes: str) -> tuple[str, ...]:
    """Return the names of a list of hosts as Slurm writes it, such as ``n[1-3]``."""
    try:
        words = ["scontrol", "show", "hostnames", nodes]
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unknown(nodes, str(error)) from error
    if done.returncode:
        raise _unknown(nodes, done.stderr.strip())
    return tuple(done.stdout.split())


def _unknown(nodes: str, why: str) -> UsageError:
    return UsageError(
        f"Which hosts a component of this job of Slurm has ({nodes or 'none is named'}) is not known: {why}",
        f"'scontrol show hostnames {nodes}' must print them on this host.",
    )
