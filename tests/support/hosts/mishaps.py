"""What may happen to a run on several hosts of the lab, while it saves."""

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

from tests.support.file_systems.serving import run
from tests.support.front_door import read_events

What = Literal[
    "rank", "daemon", "host", "cut", "cut for 5 s", "slow", "Ctrl-C", "TERM", "controller killed",
    "controller killed while ranks wait", "launcher", "cancelled",
]  # fmt: skip
_CUT_SECONDS = 5.0
# Of Open MPI, MPICH and Slurm: what starts ranks on a host, and what the controller starts.
_DAEMONS = (b"prted", b"hydra_pmi_proxy", b"slurmstepd")
_LAUNCHERS = (b"mpiexec", b"prterun", b"mpiexec.hydra", b"srun")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mishap:
    """What happens, to which host: its rank or the launcher's daemon is killed, or all of it at once; its cable is cut.

    ``slow`` leaves the cable a little. Ctrl-C and what follows are the controller's; ``launcher`` is what it started,
    and Slurm's jobs are ``cancelled``.
    """

    what: What
    host: int = 2


def has_saved(report: Path) -> bool:
    """Return whether a run has told of a save."""
    return any(event["event"] == "operation" for event in read_events(report))


def first_of(on_host: Sequence[str]) -> int:
    """Return the first process of a host, from the words that do something on it."""
    return int(on_host[on_host.index("--target") + 1])


def is_there(on_host: Sequence[str]) -> bool:
    """Return whether a host has not been killed."""
    return Path(f"/proc/{first_of(on_host)}/ns/pid").exists() and _namespace(first_of(on_host)) != ""


def happen(mishap: Mishap, on_hosts: Sequence[Sequence[str]], controller: subprocess.Popen[bytes]) -> None:
    """Let it happen."""
    first, cable = first_of(on_hosts[mishap.host - 1]), f"v{mishap.host}"
    match mishap.what:
        case "rank" | "daemon":
            is_wanted = _is_rank if mishap.what == "rank" else _is_daemon
            found = [pid for pid in _of_host(first) if is_wanted(pid)]
            assert found, f"there is no {mishap.what} on h{mishap.host}"
            os.kill(found[0], signal.SIGKILL)
        case "host":
            os.kill(first, signal.SIGKILL)
        case "cut" | "cut for 5 s":
            run("ip", "link", "set", cable, "down")
            if mishap.what == "cut for 5 s":
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
            found = [pid for pid in _of_host(first_of(on_hosts[0])) if _is_launcher(pid)]
            assert found, "there is no launcher"
            for pid in found:
                # One that another one started may end with it.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        case "cancelled":
            run(*on_hosts[0], "scancel", "--user=root")
        case "Ctrl-C":
            os.kill(_behind(controller.pid), signal.SIGINT)
        case "TERM":
            os.kill(_behind(controller.pid), signal.SIGTERM)
        case "controller killed" | "controller killed while ranks wait":
            os.kill(_behind(controller.pid), signal.SIGKILL)


def _is_rank(process: int) -> bool:
    return b"pytest_ckpt.ranks" in _words(process) and not _is_launcher(process)


def _is_daemon(process: int) -> bool:
    """Return whether it is a daemon itself: the shell that starts one names it, too."""
    return _words(process).split(b"\0")[0].rpartition(b"/")[2].startswith(_DAEMONS)


def _is_launcher(process: int) -> bool:
    words = _words(process).split(b"\0")
    return words[0].rpartition(b"/")[2] in _LAUNCHERS and b"pytest_ckpt.ranks" in words


def _behind(entering: int) -> int:
    """Return the process that was started on a host by one that entered it."""
    (child,) = Path(f"/proc/{entering}/task/{entering}/children").read_text().split()
    return int(child)


def _of_host(first: int) -> list[int]:
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


def _words(process: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""
