"""How training cuts a model that a user describes: ``tp=8,pp=4,ep=1,dp=2,zero=1``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_ckpt.support.errors import nearest

# As many as there can be processes.
_MAXIMUM = 16_384
_FIELDS = {"tp": "tensor", "pp": "pipeline", "ep": "expert", "dp": "data", "zero": "zero"}
_STAGES = (1, 2, 3)
_EXAMPLE = "tp=8,pp=4,dp=2,zero=1 is expected"


@dataclass(frozen=True, kw_only=True, slots=True)
class Parallelism:
    """Ranks in each direction; ``expert`` lies within ``data``. ``zero`` is the ZeRO stage; 3 is fully sharded."""

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    data: int = 1
    zero: int = 1

    @property
    def processes(self) -> int:
        """All ranks."""
        return self.tensor * self.pipeline * self.data

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Parallelism:
        """Return it, of numbers by their short names. Raises ValueError for what is none."""
        for name, value in given.items():
            if name not in _FIELDS:
                raise ValueError(f"'{name}' is no kind of parallelism{nearest(name, _FIELDS)}; {_EXAMPLE}")
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAXIMUM:
                raise ValueError(f"{name} is {value!r:.40}; a whole number from 1 to {_MAXIMUM:,} is expected")
        if given.get("zero", 1) not in _STAGES:
            raise ValueError("zero is a ZeRO stage: 1 or 2 (the optimizer is cut), or 3 (fully sharded)")
        found = cls(**{_FIELDS[name]: value for name, value in given.items()})
        if found.processes > _MAXIMUM:
            raise ValueError(f"it has {found.processes:,} ranks; at most {_MAXIMUM:,} are expected")
        if found.data % found.expert:
            raise ValueError(f"ep={found.expert} does not divide dp={found.data}: expert lies within data parallelism")
        return found


def read_parallelism(text: str) -> Parallelism:
    """Return the parallelism that a text says. Raises ValueError for what is none."""
    given: dict[str, int] = {}
    for word in text.split(","):
        name, equals, number = word.strip().partition("=")
        if not equals or not (number.isascii() and number.isdigit()) or len(number) > 9 or name in given:
            raise ValueError(_EXAMPLE)
        given[name] = int(number)
    return Parallelism.of(given)
