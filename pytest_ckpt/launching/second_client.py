"""The second client of the storage: another mount on this host, or another host; proven to show the same storage."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.not_run import NotRun
from pytest_ckpt.conformance.posix.client import Client
from pytest_ckpt.facts.settings import HostSlots
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.kernel_state import BOOT_ID, boot_id
from pytest_ckpt.targets.posix.second_mount import check_second_mount, see_the_same

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.targets import AreaRef, TargetFacts
    from pytest_ckpt.launching.launcher import Launcher


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondClient:
    """``folder`` is what it calls the target; ``command`` starts its agent, empty for this host."""

    folder: str
    command: tuple[str, ...] = ()
    description: str = ""


def find_second_client(
    settings: Settings, target: TargetFacts, area: AreaRef, launcher: Launcher
) -> SecondClient | None:
    """Return the second client of the checks that the settings name, None where they name none.

    A second mount must show the run's area, and not through the same caches. Raises UsageError.
    """
    if "paths" not in target.capabilities:
        return None
    if settings.second_mount:
        mount = check_second_mount(settings.second_mount, target.location)
        see_the_same(mount, target.location, area)
        return SecondClient(folder=str(mount), description=f"{mount}, another mount on this host")
    names = list(dict.fromkeys(h.name for h in settings.hosts))
    if len(names) < 2:
        return None
    there = dataclasses.replace(launcher, hosts=(HostSlots(name=names[1], slots=1),))
    wanted = there.environment(area.run_id, scratch="")
    changed = [f"{name}={value}" for name, value in wanted.items() if os.environ.get(name) != value]
    command = ("env", *changed, *there.command(1, "pytest_ckpt.conformance.posix.agent"))
    _check_is_elsewhere(names[1], command)
    return SecondClient(folder=target.location, command=command, description=f"host {names[1]}")


def _check_is_elsewhere(host: str, command: Sequence[str]) -> None:
    """Refuse a second host that is this one: a launcher that was not told where to start may start anything here."""
    client = Client(command)
    try:
        theirs = client.read(str(BOOT_ID))
    except (NotRun, OSError):
        return  # the checks that need it say why it does not answer
    finally:
        client.close()
    if theirs.decode(errors="replace").strip() == boot_id():
        raise UsageError(
            f"The second client, {host} of --ckpt-hosts, was started on this host, whose caches it would share.",
            "Name another host, or tell the launcher where to start: --ckpt-launcher='srun --nodelist={ranks} …'.",
        )
