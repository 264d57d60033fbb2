"""The words that files of a run are read by: values that only some words may have, and names of our own tables."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Iterator
from typing import Any, Literal

from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.facts.engines import BUILT_IN
from pytest_ckpt.facts.environment import Environment
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.options import OPTIONS
from pytest_ckpt.facts.settings import SUITES
from pytest_ckpt.facts.strategies import STRATEGIES
from pytest_ckpt.facts.verdict import Verdict


@functools.cache
def vocabulary() -> frozenset[str]:
    """Return these words; those of a run's own plan are not among them."""
    kinds = (Measurement, Observation, Verdict, Environment)
    found = {word for kind in kinds for word in _literals(kind, set())}
    found |= {engine.name for engine in BUILT_IN} | {strategy.name for strategy in STRATEGIES} | set(SUITES)
    found |= {check.name for check in CHECKS} | {option.flag for option in OPTIONS}
    found |= {str(option.default) for option in OPTIONS if option.default}
    return frozenset(found)


def strings(plain: Any) -> Iterator[str]:
    """Yield every text that is a value in plain JSON types."""
    if isinstance(plain, str):
        yield plain
    elif isinstance(plain, dict):
        for value in plain.values():
            yield from strings(value)
    elif isinstance(plain, list | tuple):
        for value in plain:
            yield from strings(value)


def _literals(hint: Any, seen: set[Any]) -> Iterator[str]:
    if typing.get_origin(hint) is Literal:
        yield from (word for word in typing.get_args(hint) if isinstance(word, str))
    elif dataclasses.is_dataclass(hint) and hint not in seen:
        seen.add(hint)
        for below in typing.get_type_hints(hint).values():
            yield from _literals(below, seen)
    else:
        for below in typing.get_args(hint):
            yield from _literals(below, seen)
