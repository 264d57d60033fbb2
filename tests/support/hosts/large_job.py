"""Starts ranks with a job of a given size, and prints the hosts and ranks that reported.

Run it as ``python -m tests.support.hosts.large_job HOSTS BYTES [LAUNCHER]``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pytest_ckpt.config.parsers import read_hosts
from pytest_ckpt.facts.events import Event, HostsSeen
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.launching.launch import Launch
from pytest_ckpt.launching.launcher import Launcher, find_launcher
from pytest_ckpt.ranks.process.job import Job
from pytest_ckpt.support.redaction import Redactor


def launched(launcher: Launcher, area_id: str, listener: Callable[[Event], None]) -> Failure | None:
    """Start a rank on each slot of the launcher's hosts; return the failure of the launch, or None.

    The ranks only report facts about their hosts, which ``listener`` receives. A long ``area_id`` makes the job large.
    """
    area = AreaRef(scheme="", location="/", run_id=area_id, opener="pytest_ckpt.targets.posix.store:open_store")
    job = Job(processes=sum(host.slots for host in launcher.hosts), area=area, deadline_seconds=300, tasks=())
    with tempfile.TemporaryDirectory() as directory:
        launch = Launch(launcher, "large-job", Path(directory) / "launch", Redactor.of({}, ()))
        return launch.run(job, listener)


def parse_launcher(hosts: str, *command: str) -> Launcher:
    """Return the launcher for a command line. If there is no ``command``, return mpiexec.

    ``hosts`` has the form of the option --ckpt-hosts.
    """
    return find_launcher(command[0] if command else None, read_hosts(hosts))


def main() -> None:
    hosts, count, *command = sys.argv[1:]
    seen: list[Event] = []
    failure = launched(parse_launcher(hosts, *command), "x" * int(count), seen.append)
    found = [(host.host, host.ranks) for event in seen if isinstance(event, HostsSeen) for host in event.hosts]
    print(json.dumps({"failure": failure and failure.message, "hosts": found}))


if __name__ == "__main__":
    main()
