"""One simulated host. ``python -m tests.support.hosts.host`` is the first process of the host's namespaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

from pytest_ckpt.facts.codec import from_plain
from tests.support import CHECKOUT
from tests.support.file_systems.mounting import ADDRESS, create_directory, is_mounted, run, wait_for
from tests.support.hosts.mpich import mpich_directory
from tests.support.hosts.open_mpi_4 import open_mpi_4_directory
from tests.support.hosts.storage import Storage, fuse_client

READY = "ready"
PRIVATE_DIRECTORIES = ("/tmp", "/dev/shm", "/run")


def name_of(number: int) -> str:
    return f"h{number}"


def address_of(number: int) -> str:
    return f"10.99.0.{100 + number}"


def _mount_private_directories(keep: tuple[Path, ...]) -> None:
    """Mount an empty private directory over each of `PRIVATE_DIRECTORIES`, in which programs store session files.

    The paths in ``keep`` stay accessible.
    """
    opened = {path: os.open(path, os.O_PATH) for path in keep}
    for directory in PRIVATE_DIRECTORIES:
        run("mount", "-t", "tmpfs", "-o", "mode=1777", "private", directory)
    for path, descriptor in opened.items():
        if path.is_relative_to("/tmp"):
            # The name now refers to another directory, so the kernel must follow the descriptor.
            run("mount", "--no-canonicalize", "--rbind", f"/proc/{os.getpid()}/fd/{descriptor}", create_directory(path))
        os.close(descriptor)
    create_directory(Path("/run/sshd"))


def _be_another_machine(directory: Path, home: Path, number: int) -> None:
    """Give this host its own name, boot id and host table."""
    run("hostname", name_of(number))
    boot = directory / "boot_id"
    boot.write_text(f"{uuid.uuid4()}\n")
    run("mount", "--bind", boot, "/proc/sys/kernel/random/boot_id")
    run("mount", "--bind", home / "etc_hosts", "/etc/hosts")


def _join_network(number: int, log: Path) -> None:
    run("ip", "link", "set", "lo", "up")
    wait_for(lambda: any(line.split(":")[0].strip() == "eth0" for line in _devices()), "eth0 is plugged in", None, log)
    run("ip", "address", "add", f"{address_of(number)}/24", "dev", "eth0")
    run("ip", "link", "set", "eth0", "up")


def _devices() -> list[str]:
    return Path("/proc/self/net/dev").read_text().splitlines()


def _start(directory: Path, home: Path, number: int, storage: Storage) -> None:
    keys, config, log = home / "ssh", directory / "sshd_config", directory / "log"
    config.write_text(
        f"Port 22\nListenAddress {address_of(number)}\nHostKey {keys / 'host'}\nPidFile none\nStrictModes no\n"
        f"AuthorizedKeysFile {keys / 'user.pub'}\nUsePAM no\nPermitRootLogin yes\nAcceptEnv *\nMaxStartups 200\n"
    )
    subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL)
    point = home / "array"
    if storage.is_fuse:
        run("mount", "--bind", fuse_client(home, number), point)
        return
    options = ",".join(filter(None, ("mfsproxy=127.0.0.1,mfsnice=0", storage.mounted)))
    subprocess.Popen(["mfsmount", "-f", "-H", ADDRESS, "-o", options, str(point)])
    wait_for(lambda: is_mounted(point) and os.statvfs(point).f_bavail, "the storage is mounted", None, log)
    if number == 1:
        # Removed files would be kept for a day; new directories inherit this setting from their parent.
        run("mfssettrashtime", "0", point)


def main() -> None:
    """Set up the host, then wait until this process is killed."""
    home, number = Path(sys.argv[1]), int(sys.argv[2])
    storage = from_plain(Storage, json.loads(sys.argv[3]))
    directory = home / "hosts" / name_of(number)
    _mount_private_directories(
        (CHECKOUT, Path(sys.prefix), home, *filter(None, [mpich_directory(), open_mpi_4_directory()]))
    )
    _be_another_machine(directory, home, number)
    _join_network(number, directory / "log")
    _start(directory, home, number, storage)
    (directory / READY).touch()
    # Orphaned processes become children of this process, as on every host.
    while True:
        os.wait()


if __name__ == "__main__":
    main()
