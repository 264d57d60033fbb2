"""From the reference of an engine to what makes it; its module and its libraries are imported here, in a rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pytest_ckpt.support.references import load

if TYPE_CHECKING:
    from pytest_ckpt.ranks.engines.protocol import Engine

Maker = Callable[..., "Engine"]
"""Called with shard, content, group, activity and options, by name."""


def engine_maker(reference: str) -> Maker:
    """Return the function that ``module:function`` names. Raises ImportError or AttributeError where there is none."""
    return cast("Maker", load(reference))
