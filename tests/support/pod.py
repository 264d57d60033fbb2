"""Run the pods of a Kubernetes manifest on this machine: containers made from namespaces.

Each pod has its own host name, network and boot id. A pod runs the command of its manifest, with the mounts of its
manifest. The root file system is read-only, and the user has no capabilities. All pods share the directories of
persistent volume claims; other mounts are private. The image consists of this machine's programs and the Python
environment of the tests.

``python -m tests.support.pod`` is the first process of the lab's namespaces.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.support import CHECKOUT
from tests.support.file_systems.mounting import client, create_directory, run, wait_for
from tests.support.machine import patience, unmount_inherited
from tests.support.namespaces import plug_in

USER = 1000
PROGRAMS = ("bindfs", "sshd", "ssh", "ssh-keygen", "ip", "unshare", "setpriv", "chroot")
_BRIDGE = "pods"
_LAB_SECONDS = 300.0
_OF_SYSTEM = ("usr", "bin", "sbin", "lib", "lib64", "dev")
_OF_ETC = ("ssl", "ssh", "ld.so.cache", "nsswitch.conf", "alternatives", "localtime", "os-release", "debian_version")
_MEBIBYTES = {"Mi": 1, "Gi": 1024}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pod:
    """A pod: its host names, its template, and additional files and environment variables."""

    name: str
    other_names: tuple[str, ...] = ()
    template: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The exit code of the first pod, and the output of all pods."""

    code: int
    text: str


def run_pods(home: Path, pods: Sequence[Pod], config: Mapping[str, str], keys: str) -> Ended:
    """Start all pods, wait until the first pod ends, and end the other pods.

    The first pod starts last. Returns the exit code of the first pod, and the output of all pods. ``config`` contains
    the files of the config map, as {name: text}. ``keys`` is the directory in each pod for a copy of the same ssh keys.
    """
    asked = {"pods": [asdict(pod) for pod in pods], "config": dict(config), "keys": keys}
    (home / "asked.json").write_text(json.dumps(asked))
    words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork"]
    words += ["--mount-proc", "--kill-child=KILL", sys.executable, "-m", "tests.support.pod", str(home)]
    path = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    with (home / "lab.log").open("wb") as log:
        done = subprocess.run(
            words,
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": path, "PYTHONPATH": str(CHECKOUT), "HOME": "/root"},
            timeout=patience(_LAB_SECONDS),
            check=False,
        )
    text = (home / "lab.log").read_text(errors="replace")
    logs = "\n".join(f"{log.name}: {log.read_text(errors='replace')}" for log in sorted(home.glob("pods/*/log")))
    return Ended(code=done.returncode, text=f"{text}\n{logs}")


def _address(number: int) -> str:
    return f"10.98.0.{10 + number}"


def _mount_image(root: Path) -> None:
    """Mount a root file system in memory that contains the programs of this machine."""
    run("mount", "-t", "tmpfs", "image", create_directory(root))
    for name in _OF_SYSTEM:
        there = Path("/", name)
        if there.is_symlink():
            (root / name).symlink_to(there.readlink())
        elif there.is_dir():
            run("mount", "--rbind", there, create_directory(root / name))
    for name in _OF_ETC:
        there = Path("/etc", name)
        if there.is_dir():
            run("mount", "--bind", there, create_directory(root / "etc" / name))
        elif there.exists():
            create_directory(root / "etc")
            (root / "etc" / name).write_bytes(there.read_bytes())
    (root / "etc" / "passwd").write_text(f"root:x:0:0::/root:/bin/sh\nckpt:x:{USER}:{USER}::/home/ckpt:/bin/sh\n")
    (root / "etc" / "group").write_text(f"root:x:0:\nckpt:x:{USER}:\n")
    for directory in ("home/ckpt", "run", "var/empty", "proc", "sys"):
        create_directory(root / directory)
    run("mount", "-t", "proc", "proc", root / "proc")
    run("mount", "--rbind", "/sys", root / "sys")


def _mount_environment(root: Path) -> None:
    """Mount the checkout and the Python environment of the tests.

    Call this function after all other mounts, because a later mount at a parent directory would hide both directories.
    """
    for directory in (CHECKOUT, Path(sys.prefix), Path(sys.base_prefix)):
        if not directory.is_relative_to("/usr"):
            run("mount", "--bind", directory, create_directory(root / directory.relative_to("/")))


def _mount_volumes(home: Path, root: Path, asked: Mapping[str, Any], pod: Mapping[str, Any]) -> None:
    """Mount the volumes of the pod's template; write the ssh keys and the pod's additional files."""
    spec = pod["template"]["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    (container,) = spec["containers"]
    for mount in container["volumeMounts"]:
        volume, point = volumes[mount["name"]], create_directory(root / mount["mountPath"].lstrip("/"))
        if "emptyDir" in volume:
            size = _mebibytes(str((volume["emptyDir"] or {}).get("sizeLimit", "512Mi")))
            run("mount", "-t", "tmpfs", "-o", f"size={size}m,mode=1777", "empty", point)
        elif "persistentVolumeClaim" in volume:
            run(
                "mount",
                "--bind",
                create_directory(home / "shared" / volume["persistentVolumeClaim"]["claimName"]),
                point,
            )
        elif "configMap" in volume:
            for name, text in asked["config"].items():
                (point / name).write_text(text)
    keys = create_directory(root / asked["keys"].lstrip("/"))
    for name in ("id_rsa", "id_rsa.pub", "authorized_keys"):
        (keys / name).write_bytes((home / "keys" / name).read_bytes())
    for name, text in pod["files"].items():
        file = root / name.lstrip("/")
        create_directory(file.parent)
        file.write_text(text)


def _mebibytes(text: str) -> int:
    found = re.fullmatch(r"([0-9]+)(Mi|Gi)", text)
    assert found, text
    return int(found[1]) * _MEBIBYTES[found[2]]


def _be_pod(home: Path, number: int) -> None:
    """Create the root file system of a pod, change the root to it, drop privileges, and run the pod's command."""
    asked = json.loads((home / "asked.json").read_text())
    pod = asked["pods"][number]
    (container,) = pod["template"]["spec"]["containers"]
    place = create_directory(home / "pods" / pod["name"])
    run("hostname", pod["name"])
    (place / "boot_id").write_text(f"{uuid.uuid4()}\n")
    root = place / "root"
    _mount_image(root)
    (root / "etc" / "hosts").write_text((home / "hosts").read_text())
    _mount_volumes(home, root, asked, pod)
    _mount_environment(root)
    run("mount", "--bind", place / "boot_id", root / "proc/sys/kernel/random/boot_id")
    run("mount", "-o", "remount,bind,ro", root)
    run("ip", "link", "set", "lo", "up")
    wait_for(lambda: "eth0:" in Path("/proc/self/net/dev").read_text(), "eth0 is plugged in", None, place / "log")
    run("ip", "address", "add", f"{_address(number)}/24", "dev", "eth0")
    run("ip", "link", "set", "eth0", "up")
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin",
        "HOME": "/home/ckpt",
    }
    environment |= {e["name"]: e["value"] for e in container.get("env", ())} | pod["environment"]
    (place / "ready").touch()
    who = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--bounding-set=-all", "--no-new-privs"]
    words = ["setpriv", *who, "env", "-C", container.get("workingDir", "/"), *container["command"]]
    os.execvpe("chroot", ["chroot", str(root), *words], environment)


@contextlib.contextmanager
def _started(home: Path, number: int, pod: Mapping[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    place = create_directory(home / "pods" / pod["name"])
    words = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            [*words, sys.executable, "-m", "tests.support.pod", str(home), f"--pod={number}"],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        plug_in(process, f"p{number}", _BRIDGE, place / "log", place / "ready")
        yield process
    finally:
        process.kill()
        process.wait()


def _volumes(pods: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for pod in pods:
        yield from pod["template"]["spec"]["volumes"]


def main() -> int:
    """Run the lab, or only a single pod of the lab if ``--pod`` is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--pod", type=int)
    asked = parser.parse_args()
    home: Path = asked.home
    unmount_inherited()
    if asked.pod is not None:
        _be_pod(home, asked.pod)
    pods = json.loads((home / "asked.json").read_text())["pods"]
    keys = create_directory(home / "keys")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / "id_rsa")
    (keys / "authorized_keys").write_text((keys / "id_rsa.pub").read_text())
    lines = [f"{_address(n)} {' '.join((pod['name'], *pod['other_names']))}" for n, pod in enumerate(pods)]
    (home / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", _BRIDGE, "type", "bridge")
    run("ip", "link", "set", _BRIDGE, "up")
    with contextlib.ExitStack() as stack:
        # A file system that counts as shared, as for a claim.
        claims, shared = create_directory(home / "claims"), create_directory(home / "shared")
        for claim in {v["persistentVolumeClaim"]["claimName"] for v in _volumes(pods) if "persistentVolumeClaim" in v}:
            os.chown(create_directory(claims / claim), USER, USER)
        stack.enter_context(client(shared, "bindfs", "-f", "-o", "subtype=bindfs", claims, shared))
        for number, pod in reversed(list(enumerate(pods))):
            process = stack.enter_context(_started(home, number, pod))
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
