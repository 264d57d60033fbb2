"""Upgrade: saves and loads in turns while a command restarts or upgrades the storage, which must serve meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.facts.commands import Upgrade
from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.ranks.scenarios.with_commands import RunWithCommands

if TYPE_CHECKING:
    from pytest_ckpt.facts.commands import TriedOperation
    from pytest_ckpt.ranks.process.commands import Asked


class UpgradeRun(RunWithCommands):
    """Runs one task; rank 0 tells at the end what was found."""

    def _measure(self) -> bool:
        """Save and load undisturbed, then beside the command until it has returned, or an operation has failed."""
        saved, loaded = self._hold(self._save()), self._hold(self._load_whole())
        share, moment = self._share(), 0.0
        listed: list[TriedOperation] = []
        asked: Asked | None = None
        while True:
            is_save = len(listed) % 2 == 0
            later = None if asked else self._later("upgrade", share * saved.operation.seconds)
            tried = self._save(later) if is_save else self._load_whole(later)
            if later and (asked := later.finish()):
                moment = later.seconds_into
            if not self._is_any(seen=asked is not None):
                # The save was over before its moment: another one, and sooner.
                self._hold(tried)
                self._hold(self._load_whole())
                share /= 2
                continue
            listed.append(tried.operation)
            has_ended = self._is_any(seen=asked is not None and asked.heard_at is not None)
            if tried.failed or (has_ended and not is_save):
                break
        run = self._heard(asked)
        lost = self._load_whole().operation.error if listed[-1].error else ""
        compared = self._try.compared
        found = Upgrade(
            command="",
            undisturbed=(saved.operation, loaded.operation),
            moment_seconds=moment,
            operations=tuple(listed),
            run=run,
            lost=lost,
            integrity=compared.integrity,
            resident_fraction=compared.resident,
            is_declared_cold=self._cache.is_declared_cold,
        )
        self._do.send(PatternMeasured(subject=self._task.subject, name=self._name, found=found))
        return run.is_good and not lost
