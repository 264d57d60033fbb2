"""What a run was made with: hosts, target, versions, launcher, plugins."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_ckpt.facts.network import HostNetwork
from pytest_ckpt.facts.targets import TargetFacts

CLOCK_AHEAD = "clock_ahead_seconds"
"""The fact of a host, of several, that tells its time of day beside that of rank 0's host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """What a host of ranks is. ``memory_available_bytes`` counts the limit of the memory cgroup.

    ``client`` are facts of it as a client of the target, by name, as its kernel tells them: options of the mount,
    links, tuned values. What could not be read is not there. ``network`` is how fast its network is, where that was
    measured or stated.
    """

    host: str
    ranks: tuple[int, ...]
    cpu: str
    cores: int
    memory_bytes: int
    memory_available_bytes: int
    kernel: str
    os: str
    python: str
    target_is_reached: bool
    client: dict[str, str] = field(default_factory=dict)
    network: HostNetwork | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginFacts:
    """A plugin that takes part in a run, the hooks that it implements, and what it told of the environment."""

    name: str
    version: str
    hooks: tuple[str, ...]
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}".rstrip()


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """What a run was made with. ``second_client`` describes it, and is empty where there is none.

    ``versions`` go by the name of a package. ``recorders`` are what ran in pytest's process besides pytest and this
    package, and could have altered what was recorded: conftests, other plugins, variables.
    """

    hosts: tuple[HostFacts, ...]
    target: TargetFacts
    versions: dict[str, str]
    launcher: str
    second_client: str = ""
    plugins: tuple[PluginFacts, ...] = ()
    recorders: tuple[str, ...] = ()
