"""A GlusterFS volume with three copies on this host, which exists while a command runs.

``python -m tests.support.replicated_volume HOME COMMAND …`` creates the volume, mounts it at ``HOME/volume``, runs the
command, and removes the volume. The exit code is the exit code of the command. The program must run in separate
namespaces (`ALONE`), because the program uses a fixed address and GlusterFS's fixed directories.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.file_systems.mounting import gluster, glusterd_answers
from tests.support.machine import eventually, unmount_inherited

ALONE = ("unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--propagation", "private")
PROGRAMS = ("unshare", "glusterd", "gluster", "glusterfs", "mkfs.ext4", "ip")
BREAK = ("sh", "-c", "kill -9 $(cat /run/gluster/vols/ckpt/*second*.pid)")
"""Kills the server of the second copy."""

MEND = ("gluster", "--mode=script", "volume", "start", "ckpt", "force")
"""Starts the server again, which then copies the changes that it missed."""

_ADDRESS = "10.98.7.1"
_BRICKS = ("first", "second", "third")
_BYTES = 600 << 20


def main() -> int:
    """Create the volume, run the command, and remove the volume; return the exit code of the command."""
    home, command = Path(sys.argv[1]), sys.argv[2:]
    unmount_inherited()
    _do("ip", "link", "set", "lo", "up")
    _do("ip", "address", "add", f"{_ADDRESS}/32", "dev", "lo")
    for place in ("/var/lib/glusterd", "/var/log/glusterfs", "/run/gluster"):
        Path(place).mkdir(parents=True, exist_ok=True)
        _do("mount", "-t", "tmpfs", "state", place)
    mounted = [home / name for name in _BRICKS]
    point = home / "volume"
    point.mkdir()
    try:
        for brick in mounted:
            brick.mkdir()
            image = brick.with_suffix(".image")
            with image.open("wb") as file:
                file.truncate(_BYTES)
            _do("mkfs.ext4", "-q", str(image))
            _do("mount", "-o", "loop", str(image), str(brick))
        _do("glusterd", "--log-level=WARNING")
        eventually(glusterd_answers, "glusterd answers")
        bricks = [f"{_ADDRESS}:{brick}/brick" for brick in mounted]
        for words in (("create", "ckpt", "replica", "3", *bricks, "force"), ("start", "ckpt")):
            done = gluster("volume", *words)
            if done.returncode:
                sys.exit(f"gluster volume {words[0]}: {done.stderr or done.stdout}")
        _do("glusterfs", f"--volfile-server={_ADDRESS}", "--volfile-id=/ckpt", str(point))
        (point / "target").mkdir()
        return subprocess.run(command, check=False).returncode
    finally:
        subprocess.run(["umount", "-l", str(point)], check=False)
        gluster("volume", "stop", "ckpt", "force")
        for brick in mounted:
            subprocess.run(["umount", "-l", str(brick)], check=False)


def _do(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
