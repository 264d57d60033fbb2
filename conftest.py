"""Makes pytest load the plugin in a checkout in which it is not installed."""

import pytest


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Load the plugin from this checkout. If it is installed, pytest has already loaded it, and this has no effect."""
    pluginmanager.import_plugin("pytest_ckpt.plugin.session_hooks")
