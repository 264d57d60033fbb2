"""Namespaces that get a network: the first process of a host, or of a pod, on the bridge of its lab."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.file_systems.serving import run, until


def plug_in(process: subprocess.Popen[bytes], cable: str, bridge: str, log: Path, ready: Path) -> str:
    """Give the network of the first process below ``process`` a cable to the bridge; return its number when ready."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    until(lambda: children.read_text().split(), "the first process runs", process, log)
    (first,) = children.read_text().split()
    # Not before it has a network of its own, or the cable would end here.
    until(lambda: _network(first) != _network("self"), "it has a network", process, log)
    run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", first)
    run("ip", "link", "set", cable, "master", bridge, "up")
    until(ready.exists, "it is ready", process, log)
    return first


def _network(process: str) -> str:
    return str(Path(f"/proc/{process}/ns/net").readlink())
