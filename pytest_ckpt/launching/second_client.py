"""The second client of the storage: another mount on this host, or another host; proven to show the same storage."""

from __future__ import annotations

import dataclasses
import os
import secrets
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.not_run import NotRun
from pytest_ckpt.conformance.posix.client import Client
from pytest_ckpt.facts.settings import HostSlots
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.posix.run_folder import PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.launching.launcher import Launcher

# One for each boot of each kernel.
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Attribute and name caches of network file systems last up to a minute.
_PATIENCE_SECONDS = 75.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondClient:
    """``folder`` is what it calls the target; ``command`` starts its agent, empty for this host."""

    folder: str
    command: tuple[str, ...] = ()
    description: str = ""


def find_second_client(settings: Settings, target: Path, run_folder: Path, launcher: Launcher) -> SecondClient | None:
    """Return the second client that the settings name, None where they name none.

    A second mount must show the run's folder, and not through the same caches. Raises UsageError.
    """
    if settings.second_mount:
        mount = Path(settings.second_mount).expanduser().absolute()
        check_second_mount(mount, target)
        _see_the_same(mount, target, run_folder)
        return SecondClient(folder=str(mount), description=f"{mount}, another mount on this host")
    names = list(dict.fromkeys(h.name for h in settings.hosts))
    if len(names) < 2:
        return None
    there = dataclasses.replace(launcher, hosts=(HostSlots(name=names[1], slots=1),))
    wanted = there.environment(run_folder.name.removeprefix(PREFIX), scratch="")
    changed = [f"{name}={value}" for name, value in wanted.items() if os.environ.get(name) != value]
    command = ("env", *changed, *there.command(1, "pytest_ckpt.conformance.posix.agent"))
    _check_is_elsewhere(names[1], command)
    return SecondClient(folder=str(target), command=command, description=f"host {names[1]}")


def _check_is_elsewhere(host: str, command: Sequence[str]) -> None:
    """Refuse a second host that is this one: a launcher that was not told where to start may start anything here."""
    client = Client(command)
    try:
        theirs = client.read(str(_BOOT_ID))
    except (NotRun, OSError):
        return  # the checks that need it say why it does not answer
    finally:
        client.close()
    if theirs == _BOOT_ID.read_bytes():
        raise UsageError(
            f"The second client, {host} of --ckpt-hosts, was started on this host, whose caches it would share.",
            "Name another host, or tell the launcher where to start: --ckpt-launcher='srun --nodelist={nodes} …'.",
        )


def check_second_mount(mount: Path, target: Path) -> None:
    """Raise UsageError when a folder cannot be a second client's view of the target. Nothing is written."""
    name = f"--ckpt-second-mount {mount}"
    if not mount.is_dir():
        raise UsageError(f"{name} is not a folder.", f"Name what the second mount calls the folder {target}.")
    if mount.resolve() == target.resolve():
        raise UsageError(f"{name} is the target itself.", "Mount the storage a second time, elsewhere.")
    here, there = target.stat(), mount.stat()
    if (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino):
        raise UsageError(
            f"{name} and the target are one mount to the kernel (same device and inode), with one cache.",
            "Mount it so that nothing is shared: for NFS with the option nosharecache, and not by mount --bind.",
        )


def _see_the_same(mount: Path, target: Path, run_folder: Path) -> None:
    """Write a random file on one side and find it on the other."""
    name = f"same-{secrets.token_hex(8)}"
    word = secrets.token_bytes(64)
    mine, theirs = run_folder / name, mount / run_folder.name / name
    with mine.open("wb") as file:
        file.write(word)
        file.flush()
        os.fsync(file.fileno())
    try:
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                if theirs.read_bytes() == word:
                    return
                seen = "other bytes in it"
            except OSError as error:
                seen = error.strerror or str(error)
                # A folder that is not there at all is another storage; caches hide single files.
                if not any(mount.glob("pytest-ckpt-*")) and time.monotonic() > end - _PATIENCE_SECONDS + 3:
                    break
            if time.monotonic() > end:
                break
            time.sleep(_POLL_SECONDS)
    finally:
        mine.unlink()
    raise UsageError(
        f"--ckpt-second-mount {mount} is not the same storage as {target}: a file written below the target "
        f"was not found there ({seen}).",
        f"Name the very folder that the first mount calls {shlex.quote(str(target))}.",
    )
