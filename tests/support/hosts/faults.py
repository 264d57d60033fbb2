"""Faults that are injected into a run on several simulated hosts."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tests.support.end_to_end import read_events
from tests.support.file_systems.mounting import run

FaultKind = Literal[
    "rank", "daemon", "host", "cut", "cut for 5 s", "slow", "Ctrl-C", "TERM", "controller killed",
    "controller killed while ranks wait", "launcher", "cancelled",
]  # fmt: skip
_CUT_SECONDS = 5.0
# The programs of Open MPI, MPICH and Slurm that start ranks on a host, and those that the controller starts.
_DAEMONS = (b"prted", b"hydra_pmi_proxy", b"slurmstepd")
_LAUNCHERS = (b"mpiexec", b"prterun", b"mpiexec.hydra", b"srun")


@dataclasses.dataclass(frozen=True, kw_only=True)
class InjectedFault:
    """A fault, and the number of the host on which it is injected.

    - ``rank``, ``daemon``, ``host``: kill a rank, the launcher's daemon, or the whole host
    - ``cut``, ``cut for 5 s``, ``slow``: interrupt the host's network link, or limit its rate
    - ``Ctrl-C``, ``TERM``, ``controller killed``: send SIGINT, SIGTERM or SIGKILL to the controller
    - ``controller killed while ranks wait``: send SIGKILL to the controller while `blocked_run` blocks the run
    - ``launcher``: kill the launcher
    - ``cancelled``: cancel the Slurm job
    """

    what: FaultKind
    host: int = 2


def has_saved(report: Path) -> bool:
    """Return true if a run has reported a save."""
    return any(event["event"] == "operation" for event in read_events(report))


def first_of(on_host: Sequence[str]) -> int:
    """Return the process id of a host's first process. ``on_host`` is the prefix of commands that run on the host."""
    return int(on_host[on_host.index("--target") + 1])


def is_there(on_host: Sequence[str]) -> bool:
    """Return true if a host is still running. ``on_host`` is the prefix of commands that run on the host."""
    return Path(f"/proc/{first_of(on_host)}/ns/pid").exists() and _namespace(first_of(on_host)) != ""


def inject(fault: InjectedFault, on_hosts: Sequence[Sequence[str]], controller: subprocess.Popen[bytes]) -> None:
    """Inject the fault. For each host, ``on_hosts`` contains the prefix of commands that run on the host."""
    first, cable = first_of(on_hosts[fault.host - 1]), f"v{fault.host}"
    match fault.what:
        case "rank" | "daemon":
            is_wanted = _is_rank if fault.what == "rank" else _is_daemon
            found = [pid for pid in _processes_of_host(first) if is_wanted(pid)]
            assert found, f"there is no {fault.what} on h{fault.host}"
            os.kill(found[0], signal.SIGKILL)
        case "host":
            os.kill(first, signal.SIGKILL)
        case "cut" | "cut for 5 s":
            run("ip", "link", "set", cable, "down")
            if fault.what == "cut for 5 s":
                time.sleep(_CUT_SECONDS)
                run("ip", "link", "set", cable, "up")
        case "slow":
            run(
                "tc",
                "qdisc",
                "add",
                "dev",
                cable,
                "root",
                "tbf",
                "rate",
                "8mbit",
                "burst",
                "32kbit",
                "latency",
                "400ms",
            )
        case "launcher":
            found = [pid for pid in _processes_of_host(first_of(on_hosts[0])) if _is_launcher(pid)]
            assert found, "there is no launcher"
            for pid in found:
                # A process that another one started may end with it.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        case "cancelled":
            run(*on_hosts[0], "scancel", "--user=root")
        case "Ctrl-C":
            os.kill(_only_child(controller.pid), signal.SIGINT)
        case "TERM":
            os.kill(_only_child(controller.pid), signal.SIGTERM)
        case "controller killed" | "controller killed while ranks wait":
            os.kill(_only_child(controller.pid), signal.SIGKILL)


def _is_rank(process: int) -> bool:
    return b"pytest_ckpt.ranks" in _command_line(process) and not _is_launcher(process)


def _is_daemon(process: int) -> bool:
    """Return true if a process is a launcher's daemon. The shell that started the daemon does not count."""
    return _command_line(process).split(b"\0")[0].rpartition(b"/")[2].startswith(_DAEMONS)


def _is_launcher(process: int) -> bool:
    words = _command_line(process).split(b"\0")
    return words[0].rpartition(b"/")[2] in _LAUNCHERS and b"pytest_ckpt.ranks" in words


def _only_child(entering: int) -> int:
    """Return the id of the only child of a process that has entered a host's namespaces."""
    (child,) = Path(f"/proc/{entering}/task/{entering}/children").read_text().split()
    return int(child)


def _processes_of_host(first: int) -> list[int]:
    namespace = _namespace(first)
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _namespace(int(entry.name)) == namespace
    ]


def _namespace(process: int) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{process}/ns/pid").readlink())
    return ""


def _command_line(process: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""
