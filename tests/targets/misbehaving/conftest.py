"""A fault that a test switches on must have done something when the test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.targets.misbehaving import FAULTS, Target


@pytest.fixture
def faulty(target) -> Iterator[Callable[..., Target]]:
    """Switch a fault on; when the test is over, it must have done something."""
    switched: list[str] = []

    def switch(name: str, **parameters) -> Target:
        switched.append(name)
        target.fault(name, **parameters)
        return target

    yield switch
    for name in switched:
        assert target.hits(name) or FAULTS[name].keeps_the_power, f"{name!r} did nothing"
