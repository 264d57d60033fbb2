"""A fixture that enables faults, and checks at the end of a test that each fault had an effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.targets.misbehaving import FAULTS, Target


@pytest.fixture
def faulty(target) -> Iterator[Callable[..., Target]]:
    """Return a function that enables a fault and returns the target.

    At the end of the test, each enabled fault must have had an effect, except a fault that ignores power cuts.
    """
    switched: list[str] = []

    def switch(name: str, **parameters) -> Target:
        switched.append(name)
        target.fault(name, **parameters)
        return target

    yield switch
    for name in switched:
        assert target.hits(name) or FAULTS[name].ignores_power_cut, f"{name!r} did nothing"
