"""A race between one who changes a name and one who looks at it: how often, and when it is over."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.not_run import NotRun
from pytest_ckpt.support.units import counted, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.conformance.context import CheckContext, Findings


@dataclass(slots=True, kw_only=True)
class Watched:
    """A race of ``wanted`` changes under as many looks of the watcher; ``change`` and ``look`` are the words for one.

    It goes on until both were made, or until its time is over: some storage takes seconds for each change of a name
    that another client uses. What it saw then counts, if there were ``minimum`` of both.
    """

    context: CheckContext
    change: str
    look: str
    wanted: int
    minimum: int
    changes: int = 0
    looks: int = 0
    _began: float = field(default_factory=time.monotonic)

    def goes_on(self, findings: Findings) -> bool:
        """Whether more is needed. Raises NotRun when its time is over, nothing was wrong and too little was seen."""
        if not self._is_over:
            return self.changes < self.wanted or (self.looks < self.wanted and not findings.anomaly_count)
        if min(self.changes, self.looks) < self.minimum and not findings.anomaly_count:
            seconds = time.monotonic() - self._began
            raise NotRun(
                f"{counted(self.changes, self.change)} and {counted(self.looks, self.look)} were made in "
                f"{format_seconds(seconds)}, and {self.minimum:,} of each are needed: while the name was in use, "
                f"each {self.change} took {format_seconds(seconds / self.changes)} on average"
            )
        return False

    def some(self, at_most: int, call: str, path: str) -> Iterator[int]:
        """Give the numbers of the next changes, each after this call was told."""
        for _ in range(at_most):
            self.context.tell(call, path)
            self.changes += 1
            yield self.changes
            if self._is_over:
                return

    @property
    def _is_over(self) -> bool:
        return self.changes > 0 and time.monotonic() - self._began > self.context.race_seconds
