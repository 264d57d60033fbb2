"""The work of a save that goes on beside a rank's own: one piece at a time, in a thread, told of in its own lane."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.strategy_results import BACKGROUND

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.strategies.protocol import RankSave


class Background:
    """Made by all ranks together. ``lane`` tells of the work; by ``group`` the threads of all ranks wait for others."""

    def __init__(self, group: Group, activity: Activity) -> None:
        self._activity = activity
        self.lane = activity.lane(BACKGROUND)
        # The ranks' threads wait for each other while the ranks do, too.
        self.group = group.duplicate(self.lane)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=BACKGROUND)
        self._in_flight: InFlight | None = None

    def wait(self) -> float:
        """Wait for the work before; return the seconds that it took. Raises what that work met."""
        start = time.perf_counter()
        if self._in_flight:
            with self._activity.wait():
                self._in_flight.wait()
        return time.perf_counter() - start

    def begin(self, work: Callable[[], RankSave], start: float) -> InFlight:
        """Begin work of a save that began at ``start``; when it is over for one rank, it is for all."""
        self.lane.begin(self._activity.operation)

        def go_on() -> RankSave:
            saved = work()
            # Nobody's save is over before the checkpoint is one: until then the next may not take its place.
            self.group.wait()
            self.lane.rest()
            return saved

        self._in_flight = InFlight(self._thread.submit(go_on), time.perf_counter() - start)
        return self._in_flight

    def release(self) -> None:
        """Wait for the work in flight, and let the thread end."""
        self._thread.shutdown()
        self._in_flight = None


class InFlight:
    """A save that goes on in a thread. ``returned`` are the seconds after which the job could go on."""

    def __init__(self, work: Future[RankSave], returned: float) -> None:
        self._work, self._returned = work, returned

    def poll(self) -> RankSave | None:
        """Return what came of it; None while it goes on. Raises what the save met."""
        return self.wait() if self._work.done() else None

    def wait(self) -> RankSave:
        """Wait for its end and return what came of it. Raises what the save met."""
        saved = self._work.result()
        return replace(saved, timing=replace(saved.timing, returned=self._returned))
