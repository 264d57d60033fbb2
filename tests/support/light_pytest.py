"""pytest as the examples of the pages start it: as ``python -m pytest``, without the plugins that only tests install.

Otherwise every start would import these plugins, and the run would print the options that disable them.
"""

from __future__ import annotations

import sys

import pytest

from tests.support import kept_templates

_OF_TESTS = ("hypothesispytest", "anyio")


class _Blocks:
    """A pytest plugin that blocks the plugins of tests. It is registered before the plugins of the environment."""

    def pytest_plugin_registered(self, manager: pytest.PytestPluginManager) -> None:
        for name in _OF_TESTS:
            manager.set_blocked(name)


if __name__ == "__main__":
    sys.argv[0] = pytest.__file__.replace("__init__", "__main__")
    sys.exit(pytest.main(plugins=[_Blocks(), kept_templates]))
