"""Metadata: all ranks create, look up, list and remove many empty files; then one rank removes old checkpoints.

Ranks look up and list names that another host created, because a client may answer from memory for names that it
created itself. An error of the target ends the scenario and is part of its result. The run continues, because no
required verdict depends on this scenario.
"""

from __future__ import annotations

import errno
import time
from collections import Counter
from typing import TYPE_CHECKING, cast

from pytest_ckpt.facts.across_hosts import VISIBLE_WITHIN_SECONDS
from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.many_names import Metadata, NameFault, NamesStep
from pytest_ckpt.sizing.many_names import NO_PATHS, REMOVALS, counterparts, old_checkpoint, top_directory
from pytest_ckpt.sizing.record import MAXIMUM_FAULTS
from pytest_ckpt.support.processes import boot_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_ckpt.facts.many_names import NameCall, NameFaultKind
    from pytest_ckpt.ranks.operations import Operations
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import HostCache
    from pytest_ckpt.ranks.scenarios.context import ScenarioContext
    from pytest_ckpt.sizing.many_names import ManyNames
    from pytest_ckpt.targets.protocol import NamesDirectory, StoreOfPaths

_POLL_SECONDS = 0.05
_SHORTEST_SECONDS = 1e-9


class ManyNamesScenario:
    """Performs the steps of the scenario in the directory ``tree``. After the first failed call, all ranks stop."""

    def __init__(
        self,
        group: Group,
        activity: Activity,
        do: Operations,
        cache: HostCache,
        *,
        tree: NamesDirectory,
        names: ManyNames,
    ) -> None:
        self._group, self._activity, self._do, self._cache = group, activity, do, cache
        self._tree, self._names = tree, names
        hosts: list[tuple[str, str]] = group.share(group.gather((boot_id(), group.host)))
        self._other = counterparts(hosts)[group.rank]
        # Containers of one kernel may look up names through one client, even if their host names differ.
        self._is_other_host = hosts[self._other][0] != hosts[group.rank][0]
        self._parts = 0
        self._missing: list[str] = []
        self._left_out_seconds = 0.0
        self._faults: list[NameFault] = []
        self._late = 0
        self._steps: list[NamesStep] = []
        self._removal_seconds: list[float] = []
        self._failure: Failure | None = None

    def measure(self) -> None:
        """Perform all steps until a call fails. Rank 0 reports the results."""
        if self._many() and self._old_checkpoints():
            self._by_rank_0("rmdir", self._tree.remove_directory)
        group, names = self._group, self._names
        results = group.gather((self._is_other_host, self._cache.names_dropped, self._late))
        faults = [fault for of_rank in group.gather(self._faults) for fault in of_rank]
        if group.rank:
            return
        dropped = [of_rank[1] for of_rank in results]
        found = Metadata(
            files=names.files,
            directories=names.directories,
            by_other_hosts=all(of_rank[0] for of_rank in results),
            names_dropped=None if None in dropped else all(dropped),
            steps=tuple(self._steps),
            late=sum(of_rank[2] for of_rank in results),
            fault_count=sum(fault.count for fault in faults),
            faults=tuple(faults[:MAXIMUM_FAULTS]),
            checkpoint_files=names.checkpoint_files,
            removal_seconds=tuple(self._removal_seconds),
            failure=self._failure,
        )
        self._do.send(PatternMeasured(subject=self._do.subject, name="metadata", found=found))

    def _many(self) -> bool:
        """Create, look up, list and remove the files. Return whether every call succeeded."""
        names, tree, rank, ranks = self._names, self._tree, self._group.rank, self._group.size
        made = [names.directory(number) for number in names.directories_of(rank, ranks)]
        own = [names.path(file) for file in names.files_of(rank, ranks)]
        return (
            self._by_rank_0("mkdir", self._create_groups)
            and self._timed("mkdir", names.directories, lambda: self._each(tree.make_directory, made))
            and self._timed("create", names.files, lambda: self._each(tree.create, own))
            and self._timed("stat", names.files, lambda: self._look_up(names.files_of(self._other, ranks)))
            and self._together("stat", lambda: self._retry_missing("not found", self._missing_names))
            and self._timed("list", names.files, lambda: self._list(names.directories_of(self._other, ranks)))
            and self._together("list", lambda: self._retry_missing("not listed", self._not_listed))
            and self._timed("unlink", names.files, lambda: self._each(tree.unlink, own))
            and self._together("list", lambda: self._check_removed(made))
            and self._timed("rmdir", names.directories, lambda: self._each(tree.remove_directory, made))
            and self._by_rank_0("rmdir", lambda: self._each(tree.remove_directory, names.groups))
        )

    def _old_checkpoints(self) -> bool:
        """Create the files of old checkpoints on all ranks, and remove them on rank 0.

        Return whether every call succeeded. In jobs, one rank removes an old checkpoint (shutil.rmtree). The removing
        rank must see all files. So rank 0 first waits until it sees the names that other hosts created.
        """
        old = [old_checkpoint(number) for number in range(REMOVALS)]
        own = self._names.old_files_of(self._group.rank, self._group.size)
        all_files = [f"{directory}/{name}" for directory in old for name in self._names.old_files_of(0, 1)]
        return (
            self._by_rank_0("mkdir", lambda: self._each(self._tree.make_directory, old))
            and self._together("create", lambda: self._each(self._tree.create, [f"{d}/{n}" for d in old for n in own]))
            and self._by_rank_0("list", lambda: self._await_listed(all_files))
            and all(self._removed(directory) for directory in old)
        )

    def _removed(self, directory: str) -> bool:
        """On rank 0, remove ``directory`` as a job removes an old checkpoint, and record the time. Other ranks wait.

        Return whether every call succeeded.
        """
        self._cache.forget_names()
        is_done = self._by_rank_0("unlink", lambda: self._remove(directory))
        if is_done and self._group.rank == 0:
            self._removal_seconds.append(self._seconds[0])
            self._do.step("metadata", len(self._steps) + len(self._removal_seconds), self._seconds[0])
        return is_done

    def _create_groups(self) -> None:
        self._tree.make_directory("")
        self._each(self._tree.make_directory, self._names.groups)

    def _look_up(self, files: Iterable[int]) -> None:
        self._missing = self._missing_names([self._names.path(file) for file in files])

    def _list(self, directories: Iterable[int]) -> None:
        self._missing = []
        for number in directories:
            directory = self._names.directory(number)
            listed = self._listed(directory)
            began = time.perf_counter()
            counts = Counter(listed)
            self._missing += [f"{directory}/{name}" for name in self._names.names_in(number) if name not in counts]
            self._fault("listed twice", [f"{directory}/{name}" for name, count in counts.items() if count > 1])
            self._left_out_seconds += time.perf_counter() - began

    def _check_removed(self, directories: Iterable[str]) -> None:
        self._fault("still listed", [f"{each}/{name}" for each in directories for name in self._listed(each)])

    def _await_listed(self, paths: list[str]) -> None:
        self._missing = self._not_listed(paths)
        self._retry_missing("not listed", self._not_listed)

    def _retry_missing(self, kind: NameFaultKind, still_missing: Callable[[list[str]], list[str]]) -> None:
        """Look for missing names repeatedly, because names that another host created may appear late.

        ``still_missing`` returns those of the given names that are still missing. The time limit is the limit of
        requirement STALE. At the limit, names that are still missing are recorded as faults of kind ``kind``.
        """
        missing, end = self._missing, time.monotonic() + VISIBLE_WITHIN_SECONDS
        while missing and self._group.spans_hosts and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
            missing = still_missing(missing)
        self._late += len(self._missing) - len(missing)
        self._fault(kind, missing)

    def _missing_names(self, paths: Iterable[str]) -> list[str]:
        missing = []
        for path in paths:
            self._activity.file = path
            if not self._tree.has_name(path):
                missing.append(path)
            self._activity.bytes_done += 1
        return missing

    def _not_listed(self, paths: Iterable[str]) -> list[str]:
        of_directory: dict[str, list[str]] = {}
        for path in paths:
            directory, _, name = path.rpartition("/")
            of_directory.setdefault(directory, []).append(name)
        missing = []
        for directory, names in of_directory.items():
            listed = set(self._listed(directory))
            missing += [f"{directory}/{name}" for name in names if name not in listed]
        return missing

    def _listed(self, directory: str) -> list[str]:
        self._activity.file = directory
        names = []
        for name in self._tree.names(directory):
            names.append(name)
            self._activity.bytes_done += 1
        return names

    def _remove(self, directory: str) -> None:
        self._each(self._tree.unlink, [f"{directory}/{name}" for name in self._listed(directory)])
        self._each(self._tree.remove_directory, [directory])

    def _each(self, call: Callable[[str], None], paths: Iterable[str]) -> None:
        for path in paths:
            self._activity.file = path
            call(path)
            # A sign of life for the watchdog.
            self._activity.bytes_done += 1

    def _fault(self, kind: NameFaultKind, paths: list[str]) -> None:
        if paths:
            rank, host = self._group.rank, self._group.host
            self._faults.append(NameFault(kind=kind, rank=rank, host=host, name=paths[0], count=len(paths)))

    def _timed(self, call: NameCall, count: int, work: Callable[[], None]) -> bool:
        """Drop cached names, let all ranks perform ``work``, and record the time. Return whether every call succeeded.

        ``count`` is the number of names that all ranks together use in this step.
        """
        self._cache.forget_names()
        is_done = self._together(call, work)
        if is_done and self._group.rank == 0:
            seconds = max(*self._seconds, _SHORTEST_SECONDS)
            slowest = max(range(self._group.size), key=self._seconds.__getitem__)
            self._steps.append(NamesStep(call=call, count=count, seconds=seconds, slowest_rank=slowest))
            self._do.step("metadata", len(self._steps), seconds)
        return is_done

    def _by_rank_0(self, call: NameCall, work: Callable[[], None]) -> bool:
        """Let rank 0 perform ``work`` while the other ranks wait. Return whether every call succeeded."""
        return self._together(call, work if self._group.rank == 0 else lambda: None)

    def _together(self, call: NameCall, work: Callable[[], None]) -> bool:
        """Let all ranks perform ``work`` concurrently. Return whether every call succeeded.

        After this call, rank 0 knows the seconds of each rank.
        """
        self._parts += 1
        at, failure, self._left_out_seconds = self._do.one("metadata", "", self._parts), None, 0.0
        with self._do.stage("probes", at):
            self._group.start_together()
            start = time.perf_counter()
            try:
                with self._activity.in_phase(call):
                    work()
            except OSError as error:
                file = self._activity.file
                self._activity.forgive()
                failure = Failure(
                    kind="error",
                    message=error.strerror or str(error),
                    rank=self._group.rank,
                    host=self._group.host,
                    operation=at,
                    phase=call,
                    file=file,
                    errno=errno.errorcode.get(error.errno or 0, ""),
                )
            seconds = time.perf_counter() - start - self._left_out_seconds
            self._seconds: list[float] = self._group.gather(seconds)
            failures = [of_rank for of_rank in self._group.gather(failure) if of_rank]
        self._failure = self._group.share(failures[0] if failures else None)
        return self._failure is None


def measure(at: ScenarioContext) -> None:
    """Run this scenario in a directory of the run's area.

    If an error ends the scenario before the directory is removed, the directory is removed at the end of the run.
    """
    names, do = at.task.metadata, at.do
    assert names
    if "paths" not in at.store.capabilities:
        do.send(PatternMeasured(subject=do.subject, name="metadata", not_run=NO_PATHS))
        return
    tree = cast("StoreOfPaths", at.store).names_directory(top_directory(do.subject.slug))
    ManyNamesScenario(at.group, at.activity, do, at.cache, tree=tree, names=names).measure()
