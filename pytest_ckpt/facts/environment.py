"""The environment of a run: hosts and their networks, target, versions, launcher, plugins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pytest_ckpt.facts.bounds import Count, Positive, Text
from pytest_ckpt.facts.targets import TargetFacts

STREAM_SECONDS = 2.0
"""The duration of the network streams between hosts, in seconds, for each of two directions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Streams:
    """Parameters of the TCP streams that measure the network between hosts.

    ``token`` is a secret in hexadecimal digits, ``ports`` the range of permitted listening ports.
    """

    token: str
    seconds: float = STREAM_SECONDS
    ports: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HostNetwork:
    """The rates of one host's network, in bytes a second. If a rate is None, ``unavailable_reason`` is the reason.

    - ``basis``: ``streams`` if TCP streams measured the rates, ``stated`` if the user gave the rates. The streams
      connect the hosts in a ring. All hosts send and receive at the same time.
    - ``over``: the addresses that the streams used.
    """

    basis: Literal["streams", "stated"]
    sends_bytes_per_second: Positive | None = None
    receives_bytes_per_second: Positive | None = None
    over: str = ""
    unavailable_reason: str = ""


CLOCK_AHEAD = "clock_ahead_seconds"
"""The name of a host fact: the number of seconds by which the host's time of day is ahead of rank 0's host."""
CONFTEST = "conftest "
"""The first word of an entry of `Environment.recorders` that describes a conftest; the conftest's file name follows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """A host that runs ranks.

    - ``memory_available_bytes``: the available memory of the host, or less if the control group of the process allows
      less.
    - ``client``: the host as a client of the target, by its kernel: mount options, links, tuned values. Unreadable
      facts are missing.
    - ``network``: the rates of the host's network, if the rates were measured or stated.
    """

    host: str
    ranks: tuple[Count, ...]
    cpu: str
    cores: Count
    memory_bytes: Count
    memory_available_bytes: Count
    kernel: str
    os: str
    python: str
    target_is_reached: bool
    client: dict[str, str] = field(default_factory=dict)
    network: HostNetwork | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginFacts:
    """A plugin that takes part in a run.

    ``hooks`` are the hooks that the plugin implements. ``facts`` are the plugin's facts about the environment.
    """

    name: Text
    version: str
    hooks: tuple[str, ...]
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name and version of the plugin."""
        return f"{self.name} {self.version}".rstrip()


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """The environment of a run.

    - ``versions``: {package: version} of the software.
    - ``second_client``: a description of the second client; empty without one.
    - ``recorders``: code in pytest's process that could have altered the records: conftest files, other plugins,
      variables.
    """

    hosts: tuple[HostFacts, ...]
    target: TargetFacts
    versions: dict[str, str]
    launcher: str
    second_client: str = ""
    plugins: tuple[PluginFacts, ...] = ()
    recorders: tuple[str, ...] = ()
