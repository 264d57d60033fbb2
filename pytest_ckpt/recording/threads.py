"""Which thread belongs to which rank: the processes that write, and the children that they begot. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pytest_ckpt.recording.strace_log import BIRTHS

if TYPE_CHECKING:
    from pytest_ckpt.recording.strace_log import TracedCall


class Threads:
    """The processes of a job, from the calls that began them. ``births`` are those of threads, but for first ones."""

    def __init__(self, calls: Iterable[TracedCall]) -> None:
        self._process: dict[int, int] = {}
        self._parent: dict[int, int] = {}
        self._order: list[int] = []
        self.births: dict[int, float] = {}
        for call in calls:
            self._note(call.thread)
            if call.name in BIRTHS and call.returned:
                child = call.returned
                self._note(child)
                if "CLONE_THREAD" in call.arguments:
                    self._process[child] = call.thread
                    self.births[child] = call.began
                else:
                    self._parent[child] = call.thread

    def process(self, thread: int) -> int:
        """Return the process of a thread, by its first thread."""
        while (above := self._process.get(thread, thread)) != thread:
            thread = above
        return thread

    def ranks(self, writers: Iterable[int], others: Iterable[int] = ()) -> dict[int, int]:
        """Return the rank of each thread that writes; ranks are numbered in the order in which they began.

        A process that a writing process began works for its rank. ``others`` have a rank, too, where they are threads
        of such a process, or of one that it began. Where one rank writes by itself and by processes that it began, its
        sibling that only began some is a rank as well.
        """
        processes = {self.process(thread) for thread in writers}
        processes |= self._silent_siblings(processes)
        top = {process: self._topmost(process, processes) for process in processes}
        numbers: Sequence[int] = sorted(set(top.values()), key=self._order.index)
        found = {thread: numbers.index(top[self.process(thread)]) for thread in set(writers)}
        for thread in set(others) - set(found):
            above = self._topmost(self.process(thread), processes)
            if above in processes:
                found[thread] = numbers.index(top[above])
        return found

    def _silent_siblings(self, writers: set[int]) -> set[int]:
        with_children = {self._topmost(process, writers) for process in writers} & {
            above for process in writers for above in self._above(process)
        }
        begun_by = {above for process in with_children for above in self._above(process)[:1]}
        return {above for process in writers for above in self._above(process) if begun_by & {*self._above(above)[:1]}}

    def _above(self, process: int) -> list[int]:
        """Return the processes that began this one, the nearest first."""
        found = []
        while process in self._parent:
            process = self.process(self._parent[process])
            found.append(process)
        return found

    def _topmost(self, process: int, among: set[int]) -> int:
        return next((above for above in reversed(self._above(process)) if above in among), process)

    def _note(self, thread: int) -> None:
        if thread not in self._process:
            self._process[thread] = thread
            self._order.append(thread)
