"""The input and output of a check: its context (directories, clients, limits), and its findings."""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.observation import Anomaly, Observation
from pytest_ckpt.support.units import counted, format_seconds
from pytest_ckpt.targets.posix.commit import BY_RENAME, Commit
from pytest_ckpt.targets.posix.names import RENAME_REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_ckpt.conformance.client import Client


class NotRun(Exception):  # noqa: N818 - it is no error
    """A prerequisite of a check is missing, so the check is not run. The text is the reason in the report."""


# The number of anomalies that are kept with their full text; more are only counted.
_NAMED = 20
# A limit per kind, so that a frequent kind does not hide the others.
_NAMED_OF_A_KIND = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """The effort of a check, and the seed of its random numbers.

    ``share`` is the share of the full effort. In an acceptance run, ``share`` is 1.
    """

    seed: int
    share: float

    def count(self, full: int, *, minimum: int = 1) -> int:
        """Return the number of trials of this run, from the number ``full`` at full effort."""
        return max(minimum, round(full * self.share))


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckContext(Effort):
    """The context of a check on a file system: its directories, clients, commands and time limits.

    Directories: ``directory`` is an empty directory on the target. ``witness`` is a directory outside the target, for
    records that must survive a power cut; None without a power cut. ``small_directory`` is an empty directory on a
    small volume or quota of the same storage. The check may fill this volume or quota.

    Second client: ``other`` is a second client of the same storage. ``other_directory`` is the path of ``directory`` on
    the second client. Without a second client, both are None.

    Commands: ``power_cut`` cuts the target's power and restores it. It is run ``power_cuts`` times. ``report_call`` is
    called with each call and its path before the call is made, so that a blocked call can be reported. ``commit`` is
    the method by which saves on this storage are committed.

    Limits: a call of a worker process is reported as hung after ``patience_seconds``. A change of free space must be
    visible within ``space_seconds``. A race for one name lasts at most ``race_seconds``.
    """

    directory: Path
    witness: Path | None
    report_call: Callable[[str, str], None]
    other: Client | None = None
    other_directory: str | None = None
    power_cut: tuple[str, ...] = ()
    power_cuts: int = 3
    small_directory: Path | None = None
    patience_seconds: float = 30.0
    space_seconds: float = 60.0
    race_seconds: float = 600.0
    commit: Commit = BY_RENAME

    def note_commit(self, findings: Findings) -> None:
        """Record how saves are committed, if not by the rename of a directory."""
        if self.commit is not BY_RENAME:
            findings.facts["commit"] = f"by a {self.commit.sign}: the target refuses to rename a directory"

    def rename_file(self, old: Path, new: Path, findings: Findings) -> bool:
        """Rename the file ``old`` to ``new``; an existing file is replaced. Return whether the target permits this.

        A target that refuses to rename directories may also refuse to rename files. Only COMMIT.file requires that
        files can be renamed. In other checks, the refusal is therefore recorded as a fact, and ``old`` is removed.
        Raises OSError for all other errors, and if a target that can rename directories refuses to rename a file.
        """
        self.report_call("rename", str(new))
        try:
            old.replace(new)
        except OSError as error:
            if self.commit is BY_RENAME or error.errno not in RENAME_REFUSED:
                raise
            findings.facts["rename of a file"] = f"refused ({error.strerror}) and not tried further: see COMMIT.file"
            old.unlink()
            return False
        return True

    def second(self) -> tuple[Client, str]:
        """Return the second client, and the path of the check's directory on this client.

        Raises NotRun without a second client. Raises OSError if the second client does not see the directory in time.
        """
        if self.other is None or self.other_directory is None:
            raise NotRun("no second client (--ckpt-second-mount, or a second host in --ckpt-hosts)")
        if not self.other.sees(self.other_directory):
            raise OSError(
                errno.ENOENT,
                "the other client did not see a directory within 10 s after this client created it",
                self.other_directory,
            )
        return self.other, self.other_directory


@dataclass(slots=True)
class Findings:
    """The findings of a check: its number of trials, facts and anomalies.

    If the check has a limit, ``measured`` is the value to compare with the limit, in ``unit``.
    """

    trials: int = 0
    measured: float | None = None
    unit: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    anomalies: list[Anomaly] = field(default_factory=list)
    anomaly_count: int = 0
    began: float = field(default_factory=time.monotonic)

    def wrong(self, kind: str, *, where: str, seen: str, expected: str) -> None:
        """Record an anomaly: an event that does not occur on a healthy target. The texts are for a storage engineer.

        ``kind`` names the fault briefly and begins the failure text, such as "name missing during a rename". ``where``
        is the file and the offset, or the time. ``seen`` and ``expected`` are the observed and the correct result.
        """
        self.anomaly_count += 1
        same = sum(anomaly.kind == kind for anomaly in self.anomalies)
        if len(self.anomalies) < _NAMED and same < _NAMED_OF_A_KIND:
            self.anomalies.append(Anomaly(kind=kind, where=where, seen=seen, expected=expected))

    def plain(self) -> dict[str, Any]:
        """Return the anomalies as plain types. The second client sends its anomalies to the check in this form."""
        return {"count": self.anomaly_count, "named": [to_plain(anomaly) for anomaly in self.anomalies]}

    def add_plain(self, plain: dict[str, Any]) -> None:
        """Add the anomalies of the second client. ``plain`` has the form that `plain` returns."""
        for words in plain["named"]:
            self.wrong(words["kind"], where=words["where"], seen=words["seen"], expected=words["expected"])
        self.anomaly_count += plain["count"] - len(plain["named"])

    def observation(self, requirement: str, subject: str, *, not_run: str = "", errno: str = "") -> Observation:
        """Return these findings as an observation, the form that the report stores.

        ``not_run`` is the reason if the check was not performed. ``errno`` is the name of the error that ended the
        check.
        """
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
            errno=errno,
        )


@dataclass(slots=True, kw_only=True)
class ObservedRace:
    """A race: this process changes a name repeatedly, while another process (the watcher) reads the name repeatedly.

    The race ends after ``wanted`` changes and ``wanted`` reads, or after a timeout. A timeout is needed because on some
    storage, a change of a name in use takes seconds. After a timeout, the findings are valid if there were at least
    ``minimum`` changes and ``minimum`` reads. ``change`` and ``query`` are the words for one change and one read in
    messages.
    """

    context: CheckContext
    change: str
    query: str
    wanted: int
    minimum: int
    changes: int = 0
    observations: int = 0
    _began: float = field(default_factory=time.monotonic)

    def may_continue(self, findings: Findings) -> bool:
        """Return whether more changes or reads are needed.

        Raises NotRun after the timeout if there were fewer than ``minimum`` changes or reads, and no anomaly.
        """
        if not self._is_over:
            return self.changes < self.wanted or (self.observations < self.wanted and not findings.anomaly_count)
        if min(self.changes, self.observations) < self.minimum and not findings.anomaly_count:
            seconds = time.monotonic() - self._began
            raise NotRun(
                f"{counted(self.changes, self.change)} and {counted(self.observations, self.query)} were made in "
                f"{format_seconds(seconds)}, and {self.minimum:,} of each are needed: while the name was in use, "
                f"each {self.change} took {format_seconds(seconds / self.changes)} on average"
            )
        return False

    def some(self, at_most: int, call: str, path: str) -> Iterator[int]:
        """Yield the numbers of the next changes: at most ``at_most`` numbers, and none after the timeout.

        The caller makes one change for each number. ``call`` and ``path`` are reported before each change.
        """
        for _ in range(at_most):
            self.context.report_call(call, path)
            self.changes += 1
            yield self.changes
            if self._is_over:
                return

    @property
    def _is_over(self) -> bool:
        return self.changes > 0 and time.monotonic() - self._began > self.context.race_seconds
