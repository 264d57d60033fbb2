"""``python -m pytest`` for the examples of documentation pages, without plugins that only tests install.

Without this module, every start would import these plugins. Command-line options could also disable the plugins, but
the output would show these options. The load and speed of this machine do not change verdicts, because a page shows one
outcome.
"""

from __future__ import annotations

import sys

import pytest

from tests.support import cached_templates, ignored_host_load

_OF_TESTS = ("hypothesispytest", "anyio")


class _Blocks:
    """A pytest plugin that blocks plugins of tests. It must be registered before the plugins of the environment."""

    def pytest_plugin_registered(self, manager: pytest.PytestPluginManager) -> None:
        for name in _OF_TESTS:
            manager.set_blocked(name)


if __name__ == "__main__":
    sys.argv[0] = pytest.__file__.replace("__init__", "__main__")
    sys.exit(pytest.main(plugins=[_Blocks(), cached_templates, ignored_host_load]))
