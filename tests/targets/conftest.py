"""Fixtures for tests with the faulty FUSE target: one target with two mounts for each test module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.machine import need_fuse
from tests.support.targets.misbehaving import Target, misbehaving


@pytest.fixture(scope="module")
def mounted(create_home: Callable[[str], Path]) -> Iterator[Target]:
    """A target with a second mount, shared by the tests of a module."""
    need_fuse()
    with misbehaving(create_home("misbehaving"), second=True) as target:
        yield target


@pytest.fixture
def target(mounted: Target) -> Iterator[Target]:
    """Return the target, empty and without faults. The test may enable faults."""
    yield mounted
    mounted.clear()
    mounted.empty()
