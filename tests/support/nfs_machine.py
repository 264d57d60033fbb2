"""Boot an NFS server with two clients in one process, and run the checks.

Run it with ``python -m tests.support.nfs_machine``. Needs Debian's user-mode-linux, nfs-kernel-server, kmod, iproute2,
e2fsprogs and gcc. It needs no network, virtualisation or mounts on this host. It prints its results as lines of JSON,
and leaves no files.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support import CHECKOUT

GUEST = Path(__file__).with_name("nfs_guest.py")
_REGISTERS = Path(__file__).with_name("nfs_large_registers.c")
KERNEL = "linux.uml"
NEEDED = (
    KERNEL,
    "setpriv",
    "unshare",
    "nsenter",
    "rpc.nfsd",
    "rpc.mountd",
    "rpc.statd",
    "rpcbind",
    "exportfs",
    "mount.nfs",
    "modprobe",
    "ip",
    "mkfs.ext4",
)

# The mount options. By default clients keep attributes of files for 3 to 60 s, of directories for 30 to 60 s: nfs(5).
CONFIGURATIONS = {
    "4.2": "vers=4.2",
    "4.2-actimeo=1": "vers=4.2,actimeo=1",
    "3": "vers=3",
}
_MEMORY_MIB = 1024
_DISK_MIB = 4096
_SMALL_DISK_MIB = 64
_POLL_SECONDS = 0.1


def missing() -> list[str]:
    """Return the required programs that are not installed."""
    return [program for program in NEEDED if not shutil.which(program, path=_environment(Path())["PATH"])]


def boot_messages(
    configurations: Sequence[str],
    checks: Sequence[str],
    *,
    share: float = 0.05,
    patience: float = 30.0,
    check_seconds: float = 60.0,
    deadline: float = 240.0,
    checkout: Path = CHECKOUT,
) -> Iterator[dict[str, Any]]:
    """Boot the machine, run the checks with each configuration, and yield the machine's messages as they arrive.

    ``share`` is the share of each check's trials that are performed. ``check_seconds`` is the timeout of one check.
    After ``deadline`` seconds the machine is killed, and the last message reports this. The field ``kind`` of a message
    is machine, mounts, check, error or end.
    """
    with tempfile.TemporaryDirectory(prefix="pytest-ckpt-nfs-") as home:
        job = {
            "configurations": {name: CONFIGURATIONS[name] for name in configurations},
            "checks": list(checks),
            "share": share,
            "patience": patience,
            "check_seconds": check_seconds,
            "deadline": deadline,
            "checkout": str(checkout),
        }
        out = Path(home, "out")
        out.mkdir()
        (out / "job.json").write_text(json.dumps(job))
        (out / "lines").touch()
        disks = [_disk(Path(home, "disk"), _DISK_MIB), _disk(Path(home, "small-disk"), _SMALL_DISK_MIB)]
        with Path(home, "console").open("wb") as console, _booted(Path(home), out, disks, console) as machine:
            yield from _lines(machine, out / "lines", deadline, Path(home, "console"))


def _lines(machine: subprocess.Popen[bytes], path: Path, deadline: float, console: Path) -> Iterator[dict[str, Any]]:
    until, ended, unread = time.monotonic() + deadline, False, ""
    with path.open() as file:
        while not ended:
            # After a panic it loops and never ends.
            gone, panicked = machine.poll() is not None, b"Kernel panic" in console.read_bytes()
            unread += file.read()
            *whole, unread = unread.split("\n")
            for line in whole:
                document = json.loads(line)
                ended = ended or document["kind"] == "end"
                yield document
            if not ended and (gone or panicked or time.monotonic() > until):
                why = f"it ended with exit code {machine.returncode}" if gone else f"no end after {deadline:g} s"
                why = "its kernel panicked" if panicked else why
                yield {"kind": "error", "text": f"{why}; its console:\n{console.read_text(errors='replace')[-4000:]}"}
                return
            if not ended:
                time.sleep(_POLL_SECONDS)


def _disk(path: Path, mebibytes: int) -> Path:
    with path.open("wb") as file:
        file.truncate(mebibytes << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-b", "4096", str(path)], check=True, env=_environment(path.parent))
    return path


def _with_large_registers(home: Path) -> dict[str, str]:
    """Return the environment variable that preloads a library; return {} if this host has no C compiler.

    The library is required on processors with more registers than the kernel supports.
    """
    if not (compiler := shutil.which("cc")):
        return {}
    library = home / "registers.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(_REGISTERS)], check=True)
    return {"LD_PRELOAD": str(library)}


@contextlib.contextmanager
def _booted(home: Path, out: Path, disks: list[Path], console: Any) -> Iterator[subprocess.Popen[bytes]]:
    # The guest's processes are processes of this host. The tracing kernel would leave them behind when it is killed, so
    # they are in a separate namespace that ends with it, and it ends with this process.
    words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child=KILL"]
    words += [KERNEL, f"mem={_MEMORY_MIB}M", "quiet"]
    words += ["root=none", "rootfstype=hostfs", "rootflags=/", "ro"]
    words += [f"ubd{letter}={disk}" for letter, disk in zip("ab", disks, strict=True)]
    words += ["con=null", "con0=null,fd:1", f"uml_dir={home}", "umid=machine"]
    # The kernel's command line has no quoting, so it cannot contain a path with a space.
    init = home / "init"
    init.write_text(f"#!/bin/sh\nexec {shlex.join([sys.executable, str(GUEST), str(out)])}\n")
    init.chmod(0o755)
    words.append(f"init={init}")
    machine = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=console,
        stderr=subprocess.STDOUT,
        env=_environment(home) | _with_large_registers(home),
    )
    try:
        yield machine
    finally:
        machine.kill()
        machine.wait()


def _environment(home: Path) -> dict[str, str]:
    # Its memory is a file, by default in /dev/shm, which may be too small in a container.
    directory = Path("/dev/shm")
    has_room = directory.is_dir() and shutil.disk_usage(directory).free > 2 * _MEMORY_MIB << 20
    path = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    return {"PATH": path, "TMPDIR": str(directory if has_room else home)}


def main() -> int:
    """Print the messages of the machine as JSON lines. Return 1 if there was an error or no final message."""
    from pytest_ckpt.facts.checks import checks_for  # noqa: PLC0415 - found from the checkout that this file lies in

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="which checks, all by default")
    parser.add_argument("--configuration", action="append", choices=sorted(CONFIGURATIONS), help="default: all")
    parser.add_argument("--share", type=float, default=0.05, help="part of the full effort")
    parser.add_argument("--deadline", type=float, default=900.0, help="seconds after which the machine is killed")
    parser.add_argument("--checkout", type=Path, default=CHECKOUT)
    asked = parser.parse_args()
    checks = asked.checks or [check.name for check in checks_for("posix") if check.needs != "power cut"]
    kinds = []
    for line in boot_messages(
        asked.configuration or list(CONFIGURATIONS),
        checks,
        share=asked.share,
        deadline=asked.deadline,
        checkout=asked.checkout,
    ):
        kinds.append(line["kind"])
        print(json.dumps(line), flush=True)
    return 0 if kinds[-1:] == ["end"] and "error" not in kinds else 1


if __name__ == "__main__":
    sys.exit(main())
