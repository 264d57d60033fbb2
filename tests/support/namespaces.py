"""Connects the network namespace of a simulated host or pod to the bridge of a test lab."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.file_systems.mounting import run, wait_for


def plug_in(process: subprocess.Popen[bytes], cable: str, bridge: str, log: Path, ready: Path) -> str:
    """Connect the network namespace of the only child of ``process`` to a bridge; return the child's process id.

    ``cable`` is the name of the new network link. The function returns when the file ``ready`` exists.
    """
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_for(lambda: children.read_text().split(), "the first process runs", process, log)
    (first,) = children.read_text().split()
    # Only after it has a separate network namespace, because the link would otherwise end here.
    wait_for(lambda: _network(first) != _network("self"), "it has a network", process, log)
    run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", first)
    run("ip", "link", "set", cable, "master", bridge, "up")
    wait_for(ready.exists, "it is ready", process, log)
    return first


def _network(process: str) -> str:
    return str(Path(f"/proc/{process}/ns/net").readlink())
