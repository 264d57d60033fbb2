"""Which plugins implement our hooks, and how each is named."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.plugin import hookspecs

if TYPE_CHECKING:
    import pytest

PREFIX = "pytest_ckpt_"
HOOKS = tuple(name for name in vars(hookspecs) if name.startswith(PREFIX))
TWINS = {
    "pytest_ckpt_drop_caches": "ckpt_drop_caches",
    "pytest_ckpt_power_cut": "ckpt_power_cut",
    "pytest_ckpt_fault_command": "ckpt_fault_command",
    "pytest_ckpt_repair_command": "ckpt_repair_command",
    "pytest_ckpt_launch_command": "ckpt_launcher",
}
"""Hooks whose decision an option can also make, with the option's name in ini files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VendorPlugin:
    """A plugin by name; ``implements`` maps hooks to pluggy's records of its functions."""

    name: str
    version: str
    implements: dict[str, Any]

    @property
    def label(self) -> str:
        """Name and version, as errors show them."""
        return f"{self.name} {self.version}".rstrip()


def own_hooks(manager: pytest.PytestPluginManager, plugin: object) -> list[Any]:
    """Return the hooks with our prefix that a plugin implements, known or not."""
    return [h for h in manager.get_hookcallers(plugin) or () if h.name.startswith(PREFIX)]


def plugin_name(config: pytest.Config, plugin: object, registered: str) -> str:
    """Return the name by which reports and errors call a plugin."""
    if registered.isdigit():
        return type(plugin).__qualname__
    place = Path(registered)
    return str(place.relative_to(config.rootpath)) if place.is_relative_to(config.rootpath) else registered


def identify(config: pytest.Config, plugin: object, registered: str) -> VendorPlugin:
    """Return a plugin with its name, its version and the hooks of pytest-ckpt that it implements."""
    distributions = config.pluginmanager.list_plugin_distinfo()
    versions = [str(d.version) for known, d in distributions if known is plugin]
    version = versions[0] if versions else str(getattr(plugin, "__version__", ""))
    return VendorPlugin(name=plugin_name(config, plugin, registered), version=version, implements={})


def told_apart(plugins: Iterable[VendorPlugin]) -> tuple[VendorPlugin, ...]:
    """Return the plugins with names that no two share."""
    named: dict[str, VendorPlugin] = {}
    for plugin in plugins:
        name, number = plugin.name, 1
        while name in named:
            number += 1
            name = f"{plugin.name} ({number})"
        named[name] = dataclasses.replace(plugin, name=name)
    return tuple(named.values())
