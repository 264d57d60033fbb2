"""From a task to the engine of a shard; its module and its libraries are imported here, in a rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pytest_ckpt.ranks.content import Content, content_seed
from pytest_ckpt.sizing.content_places import USUAL_TENSOR_BITS, tensor_bits
from pytest_ckpt.sizing.models import dtypes
from pytest_ckpt.support.references import load

if TYPE_CHECKING:
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions, Task
    from pytest_ckpt.sizing.models import RankLayout

Maker = Callable[..., "Engine"]
"""Called with shard, content, group, activity and options, by name."""


def engine_maker(reference: str) -> Maker:
    """Return the function that ``module:function`` names. Raises ImportError or AttributeError where there is none."""
    return cast("Maker", load(reference))


def content_of(task: Task, shard: RankLayout, *, constant: bool = False, aside: str = "") -> Content:
    """Return the content of a shard; ``aside`` gives it another one than the subject's.

    What is to pass a codec compresses as a training state does.
    """
    return Content(
        content_seed(task.seed, f"{task.subject}/{aside}" if aside else str(task.subject)),
        compressible=task.compressible,
        constant=constant,
        tensors=dtypes(shard.files) if task.codec else (),
        tensor_bits=tensor_bits(shard.whole.most_tensors) if shard.whole else USUAL_TENSOR_BITS,
    )


def made_engine(
    task: Task,
    shard: RankLayout,
    content: Content,
    group: Group,
    activity: Activity,
    options: EngineOptions,
    *,
    plain: bool = False,
) -> Engine:
    """Return the engine of a shard, behind the task's codec where it has one; ``plain``: never behind it."""
    engine: Engine = engine_maker(task.make)(
        shard=shard, content=content, group=group, activity=activity, options=options
    )
    if plain or not task.codec:
        return engine
    from pytest_ckpt.ranks.engines.compressed import CompressedEngine  # noqa: PLC0415 - needs the codec's library

    return CompressedEngine(engine, task.codec)
