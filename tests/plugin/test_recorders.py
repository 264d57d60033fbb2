"""A report names code that could change the records of a run, such as an operator's conftest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.plugin.verdict_collector import _is_of_a_checkout, recorders
from tests.support import CHECKOUT

if TYPE_CHECKING:
    import pytest


def test_the_conftests_of_a_checkout_are_not_an_operator_s(pytestconfig: pytest.Config) -> None:
    """A report does not name the conftest files of a clone of pytest-ckpt. Each run in the clone loads these files."""
    own = [CHECKOUT / "conftest.py", CHECKOUT / "tests" / "conftest.py"]
    loaded = [str(getattr(plugin, "__file__", "")) for _, plugin in pytestconfig.pluginmanager.list_name_plugin()]
    assert {str(file) for file in own} <= set(loaded)
    assert not {f"conftest {file}" for file in own} & set(recorders(pytestconfig))


def test_the_conftest_above_an_environment_in_a_checkout_is_not_an_operator_s(pytester: pytest.Pytester) -> None:
    """The conftest of a clone counts as part of pytest-ckpt if its content is unchanged.

    A changed conftest counts as a file of the operator. If the environment is inside the clone, as in the README, every
    run loads this conftest.
    """
    clone = pytester.mkdir("clone")
    (clone / "conftest.py").write_bytes((CHECKOUT / "conftest.py").read_bytes())
    assert _is_of_a_checkout(clone / "conftest.py")
    (clone / "conftest.py").write_text("import pytest_ckpt\n")
    assert not _is_of_a_checkout(clone / "conftest.py")
