"""Lets a checkout run without being installed."""

import pytest


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Load the plugin from this checkout; where it is installed, this is the same module and nothing happens."""
    pluginmanager.import_plugin("pytest_ckpt.plugin.session_hooks")
