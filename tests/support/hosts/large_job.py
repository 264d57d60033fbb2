"""``python -m`` this module HOSTS BYTES [LAUNCHER]: start ranks with a job of that size, and print what they answer."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pytest_ckpt.config.parsers import read_hosts
from pytest_ckpt.facts.events import Event, HostsSeen
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.launching.launch import Launch
from pytest_ckpt.launching.launcher import find_launcher
from pytest_ckpt.ranks.process.job import Job
from pytest_ckpt.support.redaction import Redactor


def main() -> None:
    """Launch once."""
    hosts, count = read_hosts(sys.argv[1]), int(sys.argv[2])
    command = sys.argv[3] if len(sys.argv) > 3 else None
    area = AreaRef(scheme="", location="/", run_id="x" * count, opener="pytest_ckpt.targets.posix.store:open_store")
    job = Job(processes=sum(host.slots for host in hosts), area=area, deadline_seconds=30, tasks=())
    seen: list[Event] = []
    with tempfile.TemporaryDirectory() as folder:
        launch = Launch(find_launcher(command, hosts), "large-job", Path(folder) / "launch", Redactor.of({}, ()))
        failure = launch.run(job, seen.append)
    found = [(host.host, host.ranks) for event in seen if isinstance(event, HostsSeen) for host in event.hosts]
    print(json.dumps({"failure": failure and failure.message, "hosts": found}))


if __name__ == "__main__":
    main()
