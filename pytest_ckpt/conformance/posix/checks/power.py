"""What was acknowledged outlives a power cut of the target."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import random_bytes
from pytest_ckpt.conformance.not_run import NotRun
from pytest_ckpt.conformance.posix.checkpoints import (
    Calls,
    Checkpoint,
    Wrong,
    names_in,
    saved_right,
    sync_folder,
    write_durably,
)
from pytest_ckpt.conformance.posix.signs_of_a_cut import (
    CUTS_FOR_FIVE_PERCENT,
    FILE_BYTES,
    Canary,
    Evidence,
    Reported,
    Witness,
    largest_share,
)
from pytest_ckpt.facts.observation import EVIDENCE_OF_CUTS
from pytest_ckpt.support.own_names import own_name
from pytest_ckpt.support.units import counted, format_percent, format_seconds
from pytest_ckpt.targets.owner import OWNER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.conformance.context import CheckContext, Findings

_SAVES_OF_A_CUT = 3
_TELL_SECONDS = 5.0
_POLL_SECONDS = 0.25
# An array may check its disks before it answers again.
COMMAND_SECONDS = 1800.0
BACK_SECONDS = 600.0
# For what is mounted but not quite there yet.
_SETTLE_SECONDS = 5.0


def power_cut(context: CheckContext, findings: Findings) -> None:
    """Save, note what was acknowledged in a place that keeps its power, cut the power, look for all of it."""
    if not context.power_cut or not context.witness:
        raise NotRun("there is no command that cuts the target's power (--ckpt-power-cut)")
    if context.witness.stat().st_dev == context.folder.stat().st_dev:
        raise NotRun(f"the witness of acknowledged saves, {context.witness}, is on the target itself")
    if Path.cwd().stat().st_dev == context.folder.stat().st_dev:
        # Whoever works in a file system keeps it from being unmounted.
        os.chdir("/")
    calls = Calls(context.tell)
    witness = Witness(context.witness / f"acknowledged-{os.getpid()}.jsonl")
    reported, evidence = Reported(), Evidence()
    root = _sync_up_to_the_mount(context.folder, calls)
    # What goes wrong without a power cut is not to be blamed on one. Only this one checkpoint is read before a cut:
    # reading past the caches writes back what an fsync has left out.
    probe = Checkpoint(number=1, seed=context.seed)
    probe.save(context.folder, calls)
    if not saved_right(findings, probe, context.folder, calls, "before any power cut"):
        return
    cuts = context.power_cuts
    losses = 0
    for cut in range(1, cuts + 1):
        folder = context.folder / f"cut-{cut}"
        folder.mkdir()
        sync_folder(context.folder, calls)
        _save_and_overwrite(folder, context.seed, cut, witness, calls)
        reported.prepare(folder, calls)
        canary = Canary(folder, context.seed, calls)
        began = time.monotonic()
        if not (_cut(context, context.witness, findings, cut) and _is_back(context, findings, cut, root)):
            return
        outage_seconds = time.monotonic() - began
        findings.trials += 1
        lost = canary.lost(calls)
        if not lost:
            findings.wrong(
                "the power cut did not cut",
                where=f"{folder}, cut {cut} of {cuts}",
                seen="what was written and never fsynced before the command is still there, all of it: "
                "a new file, bytes written over others, a new folder",
                expected=f"gone, as volatile memory is: that '{shlex.join(context.power_cut)}' takes the power within "
                "seconds, lets nobody unmount or sync before, and returns when all is up again",
            )
            return
        evidence.add(lost, outage_seconds)
        overwritten = canary.wrong(calls)
        wrongs = [*([overwritten] if overwritten else []), *witness.wrongs(calls)]
        losses += len(wrongs)
        _tell(wrongs, findings, cut, cuts)
        reported.look(folder, calls)
    if not losses:
        bound = f"with 95 % confidence at most {format_percent(largest_share(cuts))} of power cuts lose anything"
        if cuts < CUTS_FOR_FIVE_PERCENT:
            bound += f" ({CUTS_FOR_FIVE_PERCENT} cuts would show 5 %)"
        findings.facts["power cuts"] = f"{cuts}, {counted(witness.count, 'acknowledged file')}, none lost: {bound}"
    findings.facts |= {EVIDENCE_OF_CUTS: evidence.describe()} | reported.facts()


def _save_and_overwrite(folder: Path, seed: int, cut: int, witness: Witness, calls: Calls) -> None:
    """Save checkpoints as ranks do; beside them, rewrite a durable file in place, and replace one by rename."""
    for number in range(_SAVES_OF_A_CUT):
        checkpoint = Checkpoint(number=cut * _SAVES_OF_A_CUT + number, seed=seed)
        checkpoint.save(folder, calls)
        contents = {folder / checkpoint.name / name: made for name, made in checkpoint.made_from().items()}
        witness.acknowledge({path: (checkpoint.file_bytes, words) for path, words in contents.items()})
    # Nothing in their names tells them from what is not durable.
    in_place, replaced, replacement = (folder / own_name() for _ in range(3))
    for file in (in_place, replaced):
        write_durably(file, random_bytes(FILE_BYTES, seed, folder.name, file.name, "old"), calls)
    sync_folder(folder, calls)
    words = (seed, folder.name, "in place", "new")
    write_durably(in_place, random_bytes(FILE_BYTES, *words), calls, flags=0)
    witness.acknowledge({in_place: (FILE_BYTES, words)})
    words = (seed, folder.name, "replaced", "new")
    write_durably(replacement, random_bytes(FILE_BYTES, *words), calls)
    replacement.replace(replaced)
    sync_folder(folder, calls)
    witness.acknowledge({replaced: (FILE_BYTES, words)})


def _tell(wrongs: Sequence[Wrong], findings: Findings, cut: int, cuts: int) -> None:
    for wrong in wrongs:
        what, how = ("name", "fsync of its folder") if wrong.is_name else ("bytes", "fsync of the file")
        findings.wrong(
            f"acknowledged {what} lost in a power cut",
            where=f"{wrong.where}, after cut {cut} of {cuts}",
            seen=wrong.seen,
            expected=f"what it was when {how} had returned without error",
        )


def _cut(context: CheckContext, logs: Path, findings: Findings, cut: int) -> bool:
    """Have the power cut; return whether the command says that it was."""
    command = shlex.join(context.power_cut)
    log = logs / f"power-cut-{cut}.log"
    began = time.monotonic()
    failure = ""
    with log.open("wb") as found:
        context.tell("power cut", command)
        try:
            # In a session of its own: whoever ends this check must not end a cut half-way.
            process = subprocess.Popen(
                context.power_cut, stdin=subprocess.DEVNULL, stdout=found, stderr=found, start_new_session=True
            )
        except OSError as error:
            failure = f"it cannot be started: {error.strerror}"
        else:
            while process.poll() is None and time.monotonic() - began < COMMAND_SECONDS:
                try:
                    process.wait(_TELL_SECONDS)
                except subprocess.TimeoutExpired:
                    context.tell(f"power cut, for {format_seconds(time.monotonic() - began)}", command)
            if process.poll() is None:
                failure = f"it has not ended after {format_seconds(COMMAND_SECONDS)}"
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            elif process.returncode:
                code = process.returncode
                failure = f"exit code {code}" if code > 0 else f"killed by signal {-code}"
    if failure:
        last = log.read_text(errors="replace").strip()[-500:] or "it said nothing"
        findings.wrong(
            "the power cut command failed",
            where=f"cut {cut}: {command}",
            seen=f"{failure}: {last}",
            expected="exit code 0 when the target has lost its power and is back",
        )
    return not failure


def _is_back(context: CheckContext, findings: Findings, cut: int, root: Path) -> bool:
    """Wait until the target answers again; return whether it does, with the check's folder."""
    began = time.monotonic()
    mounted_since: float | None = None
    while True:
        context.tell("wait for the target", str(context.folder))
        try:
            names_in(context.folder)
        except OSError as error:
            seen = f"{errno.errorcode.get(error.errno or 0, '')}: {error.strerror}"
            is_missing = error.errno == errno.ENOENT and root.is_mount()
        else:
            return True
        now = time.monotonic()
        mounted_since = (mounted_since or now) if is_missing else None
        if mounted_since and now - mounted_since > _SETTLE_SECONDS:
            findings.wrong(
                "acknowledged name lost in a power cut",
                where=f"{context.folder}, after cut {cut}",
                seen=f"gone with all in it; {root} is mounted",
                expected="what it was when fsync of it and of the folders above it had returned without error",
            )
            return False
        if now - began > BACK_SECONDS:
            findings.wrong(
                "the target did not come back after the power cut",
                where=f"{context.folder}, {format_seconds(now - began)} after cut {cut}",
                seen=seen,
                expected=f"that it answers within {format_seconds(BACK_SECONDS)}",
            )
            return False
        time.sleep(_POLL_SECONDS)


def _sync_up_to_the_mount(folder: Path, calls: Calls) -> Path:
    """Make the folder's own name durable, and those above it that can be opened; return where the target is mounted.

    So is the word that says whose folder it is: without it nobody would dare to remove the folder after the cut.
    """
    while True:
        with contextlib.suppress(PermissionError):
            if (word := folder / OWNER).is_file():
                calls("fsync", word)
                with word.open("rb") as file:
                    os.fsync(file.fileno())
            sync_folder(folder, calls)
        if folder.is_mount():
            return folder
        folder = folder.parent
