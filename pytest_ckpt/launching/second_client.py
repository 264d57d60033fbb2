"""The second client of the storage: another mount on this host, or another host."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.client import Client
from pytest_ckpt.conformance.context import NotRun
from pytest_ckpt.facts.settings import HostSlots
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.processes import BOOT_ID, boot_id
from pytest_ckpt.targets.posix.second_mount import check_same_target, check_second_mount, unlike_target
from pytest_ckpt.targets.posix.storage_stack import mount_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.targets import AreaRef, TargetFacts
    from pytest_ckpt.launching.launcher import Launcher


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondClient:
    """A second client of the target. ``directory`` is the path of the target on this client.

    ``command`` starts the agent: a program on the client that performs file calls. It is empty if the client is a mount
    of this host. The agent connects to one of ``ports``; if ``ports`` is None, any port is allowed. ``unlike`` is the
    reason why results of this client do not apply to the target; it is empty if the results apply.
    """

    directory: str
    command: tuple[str, ...] = ()
    description: str = ""
    ports: tuple[int, int] | None = None
    unlike: str = ""


def find_second_client(
    settings: Settings, target: TargetFacts, area: AreaRef, launcher: Launcher
) -> SecondClient | None:
    """Return the second client that the settings name; None if they name none or the target has no paths.

    Raises UsageError if a second mount does not show the run's directory ``area``, or if the second mount and the first
    mount share caches. Also raises UsageError if the launcher started the agent of another host on this host.
    """
    if "paths" not in target.capabilities:
        return None
    if settings.second_mount:
        mount = check_second_mount(settings.second_mount, target.location)
        check_same_target(mount, target.location, area)
        mounted = mount_of(mount)
        described = (
            f"{mount}, another mount on this host ({mounted.file_system} of {mounted.source}, {mounted.options})"
        )
        return SecondClient(
            directory=str(mount), description=described, unlike=unlike_target("the second mount", mount, target)
        )
    names = list(dict.fromkeys(h.name for h in settings.hosts))
    if len(names) < 2:
        return None
    command = agent_on(names[1], launcher, area.run_id)
    # If it does not answer, the checks that need it report the reason.
    if is_elsewhere(command, launcher.ports) is False:
        raise UsageError(
            f"The second client, {names[1]} of --ckpt-hosts, was started on this host, whose caches it would share.",
            "Name another host, or pass the host to the launcher: --ckpt-launcher='srun --nodelist={ranks} …'.",
        )
    return SecondClient(
        directory=target.location, command=command, description=f"host {names[1]}", ports=launcher.ports
    )


def agent_on(host: str, launcher: Launcher, run_id: str) -> tuple[str, ...]:
    """Return the command that starts the second client's agent on a host."""
    there = dataclasses.replace(launcher, hosts=(HostSlots(name=host, slots=1),))
    wanted = there.environment(run_id, scratch="")
    changed = [f"{name}={value}" for name, value in wanted.items() if os.environ.get(name) != value]
    return ("env", *changed, *there.command(1, "pytest_ckpt.conformance.agent"))


def is_elsewhere(command: Sequence[str], ports: tuple[int, int] | None = None) -> bool | None:
    """Return whether ``command`` starts the agent on another host; None if the agent does not answer.

    A launcher whose command names no host may start the agent on this host. The agent connects to one of ``ports``; if
    ``ports`` is None, any port is allowed.
    """
    client = Client(command, ports=ports)
    try:
        return client.read(str(BOOT_ID)).decode(errors="replace").strip() != boot_id()
    except (NotRun, OSError):
        return None
    finally:
        client.close()
