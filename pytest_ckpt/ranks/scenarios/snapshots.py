"""Snapshots: one is taken in the middle of a save, and its clone must hold no commit of that save, or a whole one.

Each is compared with a save before it in which none is taken. What the clone shows as committed is loaded from the
clone and compared: the checkpoint from before in any case, that of the save where it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pytest_ckpt.facts.commands import PAIRS, Snapshots, SnapshotTrial
from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.ranks.scenarios.with_commands import RunWithCommands

if TYPE_CHECKING:
    from pytest_ckpt.facts.commands import CommandRun
    from pytest_ckpt.ranks.scenarios.operations_that_may_fail import Tried
    from pytest_ckpt.targets.protocol import Store
    from pytest_ckpt.targets.protocol_of_paths import StoreOfPaths


class SnapshotRun(RunWithCommands):
    """Runs one task; rank 0 tells all that is known after each snapshot."""

    def _measure(self) -> bool:
        """Save with and without a snapshot in turns."""
        # The first save after the start finds nothing to replace: none is compared with it.
        self._hold(self._save())
        trials: list[SnapshotTrial] = []
        not_run = ""
        while len(trials) < PAIRS and not not_run:
            trials.append(self._pair())
            bad = next((run for run in (trials[-1].taken, trials[-1].removed) if run and not run.is_good), None)
            not_run = bad.sentence if bad else ""
            found = Snapshots(
                command="",
                remove_command="",
                trials=tuple(trials),
                integrity=self._try.compared.integrity,
                not_run=not_run,
            )
            self._do.send(PatternMeasured(subject=self._task.subject, name=self._name, found=found))
        return not not_run

    def _pair(self) -> SnapshotTrial:
        """Save alone, save with a snapshot, and look at what the snapshot holds."""
        share = self._share()
        while True:
            alone = self._hold(self._save())
            before = self._whole
            later = self._later("snapshot", share * alone.operation.seconds)
            beside = self._save(later)
            asked = later.finish() if later else None
            if self._is_any(seen=asked is not None):
                break
            # It was over before its moment: another pair, and sooner.
            self._hold(beside)
            share /= 2
        taken = self._heard(asked)
        is_before = asked is not None and asked.heard_at is not None and asked.heard_at < beside.written
        is_before_commit = self._is_any(seen=is_before)
        is_committed, lost, not_judged, removed = False, "", "", None
        if not beside.failed:
            lost = self._load_whole().operation.error
        if taken.is_good:
            store, not_judged = self._clone(taken)
            if store:
                is_committed, wrong = self._look(store, before, beside)
                lost = lost or wrong
            removed = self._run_command("remove") if taken.output else None
        return SnapshotTrial(
            alone=alone.operation,
            beside=beside.operation,
            moment_seconds=later.seconds_into if later else 0.0,
            taken=taken,
            is_before_commit=is_before_commit,
            is_committed=is_committed,
            lost=lost,
            not_judged=not_judged,
            removed=removed,
        )

    def _clone(self, taken: CommandRun) -> tuple[Store | None, str]:
        """Return the run's area as the clone shows it, or why it cannot be looked at, the same on all ranks."""
        with self._activity.in_phase("open"):
            clone, why = cast("StoreOfPaths", self._store).clone(taken.output)
        whys = self._group.gather(f"{why} (on {self._group.host})" if why else "")
        shared: str = self._group.share(next(filter(None, whys), "") if self._leads else "")
        if shared:
            return None, f"What the snapshot command printed, {taken.output!r}, {shared}."
        return clone, ""

    def _look(self, clone: Store, before: int, beside: Tried) -> tuple[bool, str]:
        """Return whether the clone shows the save as committed, and what is wrong with what it shows so."""
        # Where the save failed it is under the number that is free, and what was before it is still the whole one.
        number = self._free if beside.failed else self._whole
        is_committed = self._try.is_committed(number, clone)
        found = self._try.load(before, self._next("load"), clone=clone).operation.error
        wrong = f"the checkpoint from before the snapshot, from its clone: {found}" if found else ""
        if is_committed:
            found = self._try.load(number, self._next("load"), clone=clone).operation.error
            wrong = wrong or (f"the checkpoint that the clone shows as committed: {found}" if found else "")
        return is_committed, wrong
