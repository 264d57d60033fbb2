"""The context of a check: its folder, effort and second client, and the collector of its observations."""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.not_run import NotRun
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.observation import Anomaly, Observation

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.conformance.posix.client import Client

# Anomalies that are kept with all their words; more are only counted.
_NAMED = 20
# So that a frequent one does not hide the others.
_NAMED_OF_A_KIND = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckContext:
    """A check's surroundings.

    ``folder`` is an empty folder of the check's own on the target; ``other`` is a second client of the same storage and
    ``other_folder`` what that client calls the folder, both None where there is none. ``share`` is the part of the full
    effort, 1 in an acceptance run. ``witness`` is a folder that is not on the target, for what must outlive it;
    None where no power is cut.
    ``power_cut`` are the words of a command that cuts the target's power and brings it back, to be done ``power_cuts``
    times. ``small_folder`` is an
    empty folder on a volume or quota of the same storage that may be filled. ``tell`` says which call is about to be
    made on which path: what a blocked check is named by. ``patience_seconds`` is how long a call may take before a
    check that watches its own processes calls it hung; ``space_seconds`` how long space that was taken or given back
    may take to show; ``race_seconds`` how long a race for one name goes on at most.
    """

    folder: Path
    witness: Path | None
    seed: int
    share: float
    tell: Callable[[str, str], None]
    other: Client | None = None
    other_folder: str | None = None
    power_cut: tuple[str, ...] = ()
    power_cuts: int = 3
    small_folder: Path | None = None
    patience_seconds: float = 30.0
    space_seconds: float = 60.0
    race_seconds: float = 600.0

    def count(self, full: int, *, minimum: int = 1) -> int:
        """Return how many of ``full`` trials this run makes."""
        return max(minimum, round(full * self.share))

    def second(self) -> tuple[Client, str]:
        """Return the second client and what it calls the folder, once it sees it. Raises NotRun where there is none."""
        if self.other is None or self.other_folder is None:
            raise NotRun("there is no second client (--ckpt-second-mount, or a second host in --ckpt-hosts)")
        if not self.other.sees(self.other_folder):
            raise OSError(
                errno.ENOENT, "a folder that this client has made is not found by the other for 10 s", self.other_folder
            )
        return self.other, self.other_folder


@dataclass(slots=True)
class Findings:
    """Takes what a check sees. ``measured`` is its figure where a limit is set for it, in ``unit``."""

    trials: int = 0
    measured: float | None = None
    unit: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    anomalies: list[Anomaly] = field(default_factory=list)
    anomaly_count: int = 0
    began: float = field(default_factory=time.monotonic)

    def wrong(self, kind: str, *, where: str, seen: str, expected: str) -> None:
        """Note something that a healthy target does not do. All four are words for a storage engineer.

        ``kind`` names the misbehaviour in a few words that the failure text starts with ("name missing during a
        rename"); ``where`` is the file and offset or the moment.
        """
        self.anomaly_count += 1
        same = sum(anomaly.kind == kind for anomaly in self.anomalies)
        if len(self.anomalies) < _NAMED and same < _NAMED_OF_A_KIND:
            self.anomalies.append(Anomaly(kind=kind, where=where, seen=seen, expected=expected))

    def plain(self) -> dict[str, Any]:
        """Return what was wrong as plain data, for a part of a check that runs on another client."""
        return {"count": self.anomaly_count, "named": [to_plain(anomaly) for anomaly in self.anomalies]}

    def take(self, plain: dict[str, Any]) -> None:
        """Note what was wrong in a part of the check that ran on another client."""
        for words in plain["named"]:
            self.wrong(words["kind"], where=words["where"], seen=words["seen"], expected=words["expected"])
        self.anomaly_count += plain["count"] - len(plain["named"])

    def observation(self, requirement: str, subject: str, *, not_run: str = "") -> Observation:
        """Return what was seen."""
        return Observation(
            requirement=requirement,
            subject=subject,
            trials=self.trials,
            seconds=time.monotonic() - self.began,
            measured=self.measured,
            unit=self.unit,
            anomaly_count=self.anomaly_count,
            anomalies=tuple(self.anomalies),
            facts=self.facts,
            not_run=not_run,
        )
