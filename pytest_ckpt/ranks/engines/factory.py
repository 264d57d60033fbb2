"""Creates the engine that a task names, and loaders of several shards. Imports only the named engine's module."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pytest_ckpt.ranks.content import Content, content_seed
from pytest_ckpt.ranks.engines.protocol import Clock, Comparison, Loader, expect
from pytest_ckpt.sizing.content_places import USUAL_TENSOR_BITS, tensor_bits
from pytest_ckpt.sizing.models import dtypes
from pytest_ckpt.support.references import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions, Task
    from pytest_ckpt.sizing.models import RankLayout
    from pytest_ckpt.targets.protocol import CommittedCheckpoint


class ShardsInTurn:
    """A loader of several shards, one after the other. A shard is the files of one rank.

    ``makers`` contains one function for each shard, which creates the shard's loader. If ``makers`` is empty, this rank
    loads nothing. The loader of the next shard is created outside the timed part, after the previous loader has freed
    its memory.
    """

    def __init__(self, makers: Sequence[Callable[[], Loader]]) -> None:
        self._makers = makers
        self._loader: Loader | None = None
        self._checkpoint: int | None = None
        # Every step of all shards: the shard, and the step's number within it.
        self._steps = [(shard, step) for shard in range(len(makers)) for step in range(self._turn_to(shard))]
        self._turn_to(0)
        self._done: int | None = None

    def load_steps(self) -> int:
        """Return the total number of load steps of all shards."""
        return len(self._steps)

    def expect(self, checkpoint: int) -> None:
        """Announce the checkpoint of the next load to the current loader and to each later loader."""
        self._checkpoint = checkpoint
        if self._loader is not None:
            expect(self._loader, checkpoint)

    def load(self, committed: CommittedCheckpoint, step: int, clock: Clock) -> int:
        """Read the data of load step ``step``, which is a step of one shard. Return the number of tensor bytes read.

        If this rank has no such step, because other ranks load more shards, return 0.
        """
        self._done = step if step < len(self._steps) else None
        if self._done is None or self._loader is None:
            return 0
        return self._loader.load(committed, self._steps[step][1], clock)

    def verify(self, checkpoint: int) -> Comparison:
        """Compare the data of the last step with the expected content.

        If the last step completed a shard, create the loader of the next shard.
        """
        if self._done is None or self._loader is None:
            return Comparison(bytes_checked=0, fault_count=0, faults=())
        check = self._loader.verify(checkpoint)
        following = (self._done + 1) % len(self._steps)
        if self._steps[following][0] != self._steps[self._done][0]:
            self._turn_to(self._steps[following][0])
        return check

    def release(self) -> None:
        """Free the current loader."""
        self._turn_to(len(self._makers))

    def _turn_to(self, shard: int) -> int:
        """Replace the current loader by the loader of shard number ``shard``.

        Return the loader's number of steps; 0 if there is no such shard.
        """
        if self._loader is not None:
            self._loader.release()
        self._loader = None
        if shard >= len(self._makers):
            return 0
        self._loader = self._makers[shard]()
        if self._checkpoint is not None:
            expect(self._loader, self._checkpoint)
        return self._loader.load_steps()


Maker = Callable[..., "Engine"]
"""The type of a function that creates an engine; it takes shard, content, group, activity and options as keywords."""


def engine_maker(reference: str) -> Maker:
    """Import and return the function that ``reference`` names as ``module:function``.

    Raises ImportError or AttributeError if the function does not exist.
    """
    return cast("Maker", load(reference))


def content_of(task: Task, shard: RankLayout, *, constant: bool = False, aside: str = "") -> Content:
    """Return the content of a shard's files.

    If ``aside`` is not empty, the content differs from the subject's usual content. If ``constant``, all pages are
    equal. If the task has a codec, the content compresses like a training state.
    """
    return Content(
        content_seed(task.seed, f"{task.subject}/{aside}" if aside else str(task.subject)),
        compressible=task.compressible,
        constant=constant,
        tensors=dtypes(shard.files) if task.codec else (),
        tensor_bits=tensor_bits(shard.whole.most_tensors) if shard.whole else USUAL_TENSOR_BITS,
    )


def create_engine(
    task: Task,
    shard: RankLayout,
    content: Content,
    group: Group,
    activity: Activity,
    options: EngineOptions,
    *,
    plain: bool = False,
) -> Engine:
    """Create and return the engine of a shard.

    If the task has a codec, the engine compresses its files. If ``plain``, the engine never compresses.
    """
    engine: Engine = engine_maker(task.make)(
        shard=shard, content=content, group=group, activity=activity, options=options
    )
    if plain or not task.codec:
        return engine
    from pytest_ckpt.ranks.engines.compressed import CompressedEngine  # noqa: PLC0415 - needs the codec's library

    return CompressedEngine(engine, task.codec)
