"""The first process of the User-Mode Linux that ``nfs_machine`` boots: an NFS server, two clients, checks.

The server is this kernel's nfsd with ext4 volumes on virtual disks. With NFS 4, each client has a separate network
namespace and host name. The server therefore sees two hosts, each with a client id, a connection and delegations. A
server of NFS 3 stores no state of a client except its locks. With NFS 3, the clients are therefore two mounts of one
host without a shared cache.

This module uses only the standard library, and reads the host's files by hostfs. It writes its results as lines of JSON
into the directory given as its argument.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

MOUNTS = "/run/mnt"
EXPORT = f"{MOUNTS}/export"
OUT = Path(f"{MOUNTS}/out")
SERVER = "10.0.0.1"
_LIBC = ctypes.CDLL(None, use_errno=True)
_RB_POWER_OFF = 0x4321FEDC
_MS_BIND = 4096


def main() -> None:
    """Set up the machine and run the checks; always power off at the end."""
    try:
        os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
        mount("proc", "/proc", "proc")
        mount("sysfs", "/sys", "sysfs")
        mount("tmpfs", "/run", "tmpfs")
        make(str(OUT))
        mount("none", str(OUT), "hostfs", sys.argv[1])
        job = json.loads((OUT / "job.json").read_text())
        set_up_machine()
        set_up_server()
        write_result(kind="machine", kernel=os.uname().release, seconds=uptime())
        for name, options in job["configurations"].items():
            run_configuration(name, options, job)
    except BaseException:
        write_result(kind="error", text=traceback.format_exc())
    finally:
        write_result(kind="end", seconds=uptime())
        os.sync()
        _LIBC.reboot(_RB_POWER_OFF)


def set_up_machine() -> None:
    """Set up temporary directories, host names, kernel modules and a private network."""
    for directory in ("/var/lib/nfs", "/dev/shm"):
        make(directory)
        mount("tmpfs", directory, "tmpfs")
    for directory in (
        "/run/tmp",
        "/run/lock",
        "/run/netns",
        "/var/lib/nfs/sm",
        "/var/lib/nfs/sm.bak",
        "/var/lib/nfs/v4recovery",
    ):
        make(directory)
    for name in ("etab", "rmtab", "state"):
        Path("/var/lib/nfs", name).touch()
    # Names of clients must not be resolved by other hosts.
    Path("/run/hosts").write_text("127.0.0.1 localhost\n10.0.0.1 server\n10.0.0.2 first\n10.0.1.2 second\n")
    _mount("/run/hosts", "/etc/hosts", None, _MS_BIND, None)
    _LIBC.sethostname(b"server", 6)
    run("ip", "link", "set", "lo", "up")
    make("/run/modules/lib")
    Path("/run/modules/lib/modules").symlink_to("/usr/lib/uml/modules")
    for module in ("veth", "nfsd", "nfsv3", "nfsv4"):
        run("modprobe", "-d", "/run/modules", module)
    for number, name in enumerate(("first", "second")):
        run("ip", "netns", "add", name)
        run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "addr", "add", f"10.0.{number}.1/24", "dev", f"to-{name}")
        run("ip", "link", "set", f"to-{name}", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", name, "addr", "add", f"10.0.{number}.2/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", name, "route", "add", "default", "via", f"10.0.{number}.1")


def set_up_server() -> None:
    """Export a large and a small ext4 volume. Clients may lock and open files immediately, without a grace period."""
    for disk, directory, number in (("/dev/ubda", EXPORT, 0), ("/dev/ubdb", f"{EXPORT}/small", 2)):
        make(directory)
        mount(disk, directory, "ext4")
        run("exportfs", "-i", "-o", f"rw,sync,no_root_squash,no_subtree_check,fsid={number}", f"*:{directory}")
    run("rpcbind", "-w")
    mount("nfsd", "/proc/fs/nfsd", "nfsd")
    Path("/sys/module/lockd/parameters/nlm_timeout").write_text("3")
    Path("/sys/module/lockd/parameters/nlm_grace_period").write_text("1")
    Path("/proc/fs/nfsd/nfsv4gracetime").write_text("10")
    run("rpc.statd", "--no-notify")
    run("rpc.mountd")
    run("rpc.nfsd", "8")
    Path("/proc/fs/nfsd/v4_end_grace").write_text("Y")


def run_configuration(name: str, options: str, job: dict[str, Any]) -> None:
    """Mount the exports on two clients with the mount options ``options``, run the checks, and unmount.

    The function writes the results of the checks.
    """
    points = {"first": f"{MOUNTS}/nfs-a", "second": f"{MOUNTS}/nfs-b", "small": f"{MOUNTS}/nfs-small"}
    for client, point in points.items():
        make(point)
        root = EXPORT if options.startswith("vers=3") else ""
        export = f"{SERVER}:{root}/small" if client == "small" else f"{SERVER}:{root}/"
        command = ["mount.nfs", export, point, "-o", f"{options},nosharecache"]
        if not options.startswith("vers=3"):
            host = "second" if client == "second" else "first"
            as_host = ["unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh"]
            command = ["nsenter", f"--net=/run/netns/{host}", *as_host, *command]
        run(*command)
    mounted = [line for line in Path("/proc/mounts").read_text().splitlines() if line.split()[2].startswith("nfs")]
    write_result(kind="mounts", configuration=name, options=options, mounts=mounted)
    directory = f"{points['first']}/checks"
    make(directory)
    for check, seen in run_checks(directory, f"{points['second']}/checks", points["small"], job).items():
        words = [seen["fault"]] if "fault" in seen else ["it did not end"] if seen.get("blocked") else []
        write_result(
            kind="check", configuration=name, check=check, observation=None if words else seen, last_lines=words
        )
    for point in points.values():
        run("umount", point)


def run_checks(directory: str, second: str, small: str, job: dict[str, Any]) -> dict[str, Any]:
    """Run the checks one after another; return {check: observation}.

    Each check runs in a fork of one process, because starting Python takes seconds on this machine.
    """
    asked = {
        "room": "posix",
        "checks": job["checks"],
        "words": {
            "": [f"--directory={directory}", f"--share={job['share']}", f"--patience={job['patience']}", "--json"],
            "second client": [f"--second-directory={second}"],
            "small directory": [f"--small-directory={small}"],
        },
        "at_once": 1,
        "seconds": job["check_seconds"],
        "seconds_in_all": job["deadline"],
    }
    environment = os.environ | {"PYTHONPATH": job["checkout"], "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": "/run/tmp"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.many_checks"],
        env=environment, input=json.dumps(asked), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise OSError(f"exit code {done.returncode} of the checks: {done.stderr[-1500:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def write_result(**facts: Any) -> None:
    """Append a line of JSON with these facts to the results."""
    with (OUT / "lines").open("a") as file:
        file.write(json.dumps(facts) + "\n")


def uptime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def make(directory: str) -> None:
    Path(directory).mkdir(parents=True, exist_ok=True)


def run(*words: str) -> None:
    """Run a command. Raises OSError with the command's error output if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"exit code {done.returncode} of {' '.join(words)}: {done.stderr.strip()}")


def mount(source: str, point: str, kind: str, data: str | None = None) -> None:
    """Mount a file system by the system call. The command ``mount`` cannot be used, because it needs /proc."""
    _mount(source, point, kind, 0, data)


def _mount(source: str, point: str, kind: str | None, flags: int, data: str | None) -> None:
    encoded = [None if word is None else word.encode() for word in (source, point, kind, data)]
    if _LIBC.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]):
        error = ctypes.get_errno()
        raise OSError(error, f"mount of {source} on {point}: {os.strerror(error)}")


if __name__ == "__main__":
    main()
