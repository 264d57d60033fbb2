"""Code in pytest's process other than pytest and this package, which could alter the records of a run."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.facts.environment import CONFTEST
from pytest_ckpt.support.resources import PACKAGE_HOME

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

RECORDERS = "pytest_ckpt_recorders"
"""Under this name a worker of pytest-xdist reports its recorders to the controller."""

# The libraries that this package is made with.
_OWN_DISTRIBUTIONS = frozenset({"pytest-ckpt", "pytest-benchmark", "pytest-xdist"})
_VARIABLES = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
_OWN_MODULES = ("_pytest.", "pytest_ckpt.", "xdist.", "pytest_benchmark.")
_CONFTEST = "conftest.py"
# In a checkout these are next to this package; pytest loads both there.
_OWN_DIRECTORIES = frozenset({PACKAGE_HOME, PACKAGE_HOME / "tests"})
# The digest of conftest.py at the top of a checkout.
_OF_A_CHECKOUT = "e3880ab67aba209ee70bf45f0e34c477843758b4e0df4f62c35ec88a574329c1"


def recorders(config: pytest.Config) -> tuple[str, ...]:
    """Return conftests, plugins and variables of this pytest that are neither its own nor this package's."""
    return tuple(dict.fromkeys((*_plugins(config), *_variables())))


def _plugins(config: pytest.Config) -> Iterator[str]:
    manager = config.pluginmanager
    distributions = {id(plugin): distribution for plugin, distribution in manager.list_plugin_distinfo()}
    for name, plugin in manager.list_name_plugin():
        file = getattr(plugin, "__file__", None)
        if plugin is None or not file:
            continue
        distribution = distributions.get(id(plugin))
        if distribution is not None:
            if (title := str(distribution.project_name)) not in _OWN_DISTRIBUTIONS:
                yield f"plugin {title} {distribution.version}"
        elif Path(file).name == _CONFTEST:
            if not _is_of_a_checkout(Path(file)):
                yield f"{CONFTEST}{file}"
        elif not str(getattr(plugin, "__name__", "")).startswith(_OWN_MODULES):
            yield f"plugin {name} ({file})"


def _is_of_a_checkout(conftest: Path) -> bool:
    """Whether a conftest is one of this project's: next to this package, or above an environment inside a checkout."""
    if conftest.parent in _OWN_DIRECTORIES:
        return True
    try:
        return sha256(conftest.read_bytes()).hexdigest() == _OF_A_CHECKOUT
    except OSError:
        return False


def _variables() -> Iterator[str]:
    for name in _VARIABLES:
        if value := os.environ.get(name):
            yield f"{name}={value}"
