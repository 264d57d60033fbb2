"""From the reference of an engine to the engine; its module and its libraries are imported here, in a rank."""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ckpt.ranks.engines.protocol import Engine

Maker = Callable[..., "Engine"]
"""Called with shard, content, group, activity and options, by name."""


@functools.cache
def engine_maker(reference: str) -> Maker:
    """Return the function that ``module:function`` names. Raises ImportError or AttributeError where there is none."""
    module, _, name = reference.partition(":")
    maker: Maker = operator.attrgetter(name)(importlib.import_module(module))
    return maker
