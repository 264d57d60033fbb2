"""Resized jobs: N ranks save a checkpoint; then 2N ranks and N/2 ranks load it with the engine's library.

Each of these three jobs is a separate launch. The launch of N ranks saves the checkpoint and leaves it on the target.
Each other launch loads the checkpoint several times, without cached data, and compares every byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.measurement import Resized
from pytest_ckpt.ranks.engines.factory import content_of, create_engine
from pytest_ckpt.ranks.operations import Operations
from pytest_ckpt.ranks.process.host_cache import HostCache
from pytest_ckpt.ranks.scenarios.restore_patterns import repeated_loads
from pytest_ckpt.ranks.strategies.sync import SyncStrategy
from pytest_ckpt.sizing.files import names_to_read
from pytest_ckpt.sizing.patterns import PATTERNS
from pytest_ckpt.sizing.resharding import resharded
from pytest_ckpt.support.references import load
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ckpt.facts.subject import Pattern
    from pytest_ckpt.ranks.engines.protocol import Loader
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.controller import Controller
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import Files
    from pytest_ckpt.ranks.process.job import Job, Task
    from pytest_ckpt.targets.protocol import Store


class ResizedRun:
    """The work of the ranks in one launch of pattern ``resized``: save the checkpoint, or load it several times."""

    def __init__(
        self, group: Group, activity: Activity, task: Task, job: Job, name: Pattern, controller: Controller
    ) -> None:
        del controller
        assert task.resized
        self._group, self._activity, self._task, self._job = group, activity, task, job
        self._name, self._resized = name, task.resized
        self._store: Store = load(job.area.opener)(job.area)
        self._layout = task.layout()
        # A rank beyond the ranks that saved has no files of its own.
        self._shard = self._layout.rank(min(group.rank, self._layout.processes - 1))
        self._content = content_of(task, self._shard, aside=name)
        self._do = Operations(group, activity, task.subject, self._shard, self._store, rule=task.files)
        self._tensors = resharded(self._layout, group.size)
        self._checkpoint = task.operations + PATTERNS[name].first

    def run(self) -> None:
        """Save the checkpoint, or load it several times and report the results."""
        self._activity.begin(self._do.all("prepare", self._name))
        self._do.across_hosts.prepare()
        if self._resized.size:
            self._load()
        else:
            self._save()
        self._group.wait()

    def _save(self) -> None:
        task, do = self._task, self._do
        engine = create_engine(task, self._shard, self._content, self._group, self._activity, self._job.options)
        strategy = SyncStrategy(engine=engine, store=self._store, group=self._group, activity=self._activity)
        saved = do.save(strategy, self._checkpoint, role=self._name, at=do.one(self._name, "save", 1))
        engine.release()
        if saved:
            do.step(self._name, 1, saved.seconds)

    def _load(self) -> None:
        task, do, group = self._task, self._do, self._group
        with do.stage("prepare", do.all("prepare", self._name)):
            cache = HostCache(group, self._activity, self._store, task.subject.slug, task.drop_caches)
            make: Callable[..., Loader] = load(self._resized.make)
            loader = make(
                shards=self._layout,
                content=self._content,
                group=group,
                activity=self._activity,
                options=self._job.options,
            )
        pattern = repeated_loads(
            loader,
            do=do,
            cache=cache,
            checkpoint=self._checkpoint,
            scenario=self._name,
            names=self._names(),
            drop=lambda files: self._drop(cache, files),
            reads=self._described(),
            bytes_each=self._layout.bytes,
        )
        resized = Resized(
            saved_by=self._layout.processes,
            halved=pattern if self._resized.size == "halved" else None,
            doubled=pattern if self._resized.size == "doubled" else None,
        )
        do.send(PatternMeasured(subject=task.subject, name=self._name, found=resized))

    def _drop(self, cache: HostCache, files: Sequence[Files]) -> None:
        """Wait until this rank sees the files that it will read next, and drop them from the caches."""
        self._do.await_files(files)
        with self._do.stage("drop caches", self._do.all("drop caches", self._name)):
            if self._task.drop_caches != "never":
                cache.drop(self._task.drop_caches, files)

    def _names(self) -> tuple[str, ...]:
        """Return the names of the files that contain this rank's parts of tensors."""
        savers = dict.fromkeys(part.rank for tensor in self._tensors for part in tensor.parts_of(self._group.rank))
        names = (name for rank in savers for name in names_to_read(self._layout.rank(rank), self._task.files))
        return tuple(dict.fromkeys((*names, *self._task.files.shared)))

    def _described(self) -> str:
        ranks, saved_by = self._group.size, self._layout.processes
        parts = max(len(list(tensor.parts_of(rank))) for tensor in self._tensors for rank in range(ranks))
        each = "half of a saved part" if ranks > saved_by else f"up to {counted(parts, 'saved part')}"
        return (
            f"saved by {counted(saved_by, 'rank')}, loaded by {counted(ranks, 'rank')} with the library of engine "
            f"{self._task.engine}: each gets {each} of a tensor"
        )
