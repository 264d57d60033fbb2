"""Failover: a component of the storage is broken at random moments of saves and loads, and mended after each.

A launch of its own, after all others: the storage may rebuild for long, and nothing else is to be measured then. Rank 0
asks the controller for the commands. For each moment: operations one after the other, until the break command has
returned; the mend command; a save while the storage rebuilds. Every checkpoint that was committed is loaded, and every
byte of it compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.facts.commands import BREAKS, Failover, FailoverTrial
from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.ranks.scenarios.with_commands import RunWithCommands

if TYPE_CHECKING:
    from pytest_ckpt.facts.commands import CommandRun, TriedKind, TriedOperation
    from pytest_ckpt.ranks.process.commands import Asked, AskLater


class FailoverRun(RunWithCommands):
    """Runs one task; rank 0 tells all that is known after each moment."""

    def _measure(self) -> bool:
        """Save and load undisturbed, then with something broken."""
        saved, loaded = self._hold(self._save()), self._hold(self._load_whole())
        self._undisturbed = (saved.operation, loaded.operation)
        self._trials: list[FailoverTrial] = []
        not_run = ""
        for kind in BREAKS:
            not_run = self._broken(kind, (saved if kind == "save" else loaded).operation.seconds)
            self._tell(not_run)
            if not_run:
                break
        return not not_run

    def _broken(self, kind: TriedKind, usual_seconds: float) -> str:
        """Break something in one operation of a kind, mend it and save; return why there is no use in going on."""
        share = self._share()
        listed: list[TriedOperation] = []
        asked: Asked | None = None
        later: AskLater | None = None
        moment = 0.0
        pending = False
        while True:
            later = None if asked else self._later("break", share * usual_seconds)
            tried = self._save(later) if kind == "save" else self._load_whole(later)
            if later and (asked := later.finish()):
                moment = later.seconds_into
            is_asked = bool(self._group.share(asked is not None))
            if not is_asked and not tried.failed:
                # It was over before its moment: another one, and sooner.
                share /= 2
                self._after(kind)
                continue
            listed.append(tried.operation)
            pending = tried.failed or (kind == "save" and self._load_whole().failed)
            is_in_it = asked is not None and asked.heard_at is not None and asked.heard_at <= tried.ended
            if tried.failed or pending or self._group.share(is_in_it):
                break
        if not is_asked:
            # Nothing was broken: an error is no way to fail that a failover would excuse.
            self._hold(tried)
        broke = self._heard(asked)
        mended = self._run_command("mend")
        not_run = "" if broke.is_good else broke.sentence
        not_run = not_run or ("" if mended.is_good else mended.sentence)
        if not mended.is_good:
            self._add(kind, moment, broke, listed, mended)
            return not_run
        in_error = kind == "save" and tried.failed and self._try.is_committed(self._free)
        # First the save, while the storage rebuilds; then what was committed before, where nobody could look at it yet.
        before = self._whole
        after = self._save().operation
        lost = self._try.load(before, self._next("load")).operation.error if pending else ""
        if not after.error and not lost:
            lost = self._load_whole().operation.error
        self._add(kind, moment, broke, listed, mended, after=after, in_error=in_error, lost=lost)
        return not_run

    def _after(self, kind: TriedKind) -> None:
        """Look at what an undisturbed save left, as at every other."""
        if kind == "save":
            self._hold(self._load_whole())

    def _add(
        self,
        kind: TriedKind,
        moment: float,
        broke: CommandRun,
        stated: list[TriedOperation],
        mended: CommandRun,
        *,
        after: TriedOperation | None = None,
        in_error: bool = False,
        lost: str = "",
    ) -> None:
        self._trials.append(
            FailoverTrial(
                kind=kind,
                moment_seconds=moment,
                broke=broke,
                operations=tuple(stated),
                mended=mended,
                after=after,
                committed_in_error=in_error,
                lost=lost,
            )
        )

    def _tell(self, not_run: str) -> None:
        compared = self._try.compared
        found = Failover(
            break_command="",
            mend_command="",
            undisturbed=self._undisturbed,
            trials=tuple(self._trials),
            integrity=compared.integrity,
            resident_fraction=compared.resident,
            is_declared_cold=self._cache.is_declared_cold,
            not_run=not_run,
        )
        self._do.send(PatternMeasured(subject=self._task.subject, name=self._name, found=found))
