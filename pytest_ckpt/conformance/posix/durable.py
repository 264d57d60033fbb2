"""DURABLE: acknowledged saves survive the death of the process that saved, and a power cut of the target.

Before a power cut, the check writes three groups of data. Durable data must survive. Names whose directory was not
fsynced may survive; the check only counts them. Data that were never fsynced (the canary) prove by their loss that the
power was cut.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from pytest_ckpt.analysis.acceptance import largest_share, trials_for
from pytest_ckpt.conformance.content import random_bytes, read_file
from pytest_ckpt.conformance.context import NotRun
from pytest_ckpt.conformance.posix.checkpoints import (
    Calls,
    Checkpoint,
    CheckpointFault,
    missing,
    names_in,
    saved_right,
    sync_directory,
    write_durably,
    wrong_bytes,
)
from pytest_ckpt.conformance.workers import all_have_sent, gather, working
from pytest_ckpt.facts.observation import EVIDENCE_OF_CUTS, POWER_CUTS
from pytest_ckpt.support.own_names import own_name
from pytest_ckpt.support.units import counted, format_percent, format_seconds
from pytest_ckpt.targets.owner import OWNER
from pytest_ckpt.targets.posix.storage_stack import mount_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_ckpt.conformance.context import CheckContext, Findings
    from pytest_ckpt.conformance.workers import Worker, WorkerChannel

_KILLS = 60
_TIMED_SAVES = 5
# Each kill comes at a random time within the first two saves of a process.
_SAVES_UNTIL_KILLED = 2.0


def rank_killed(context: CheckContext, findings: Findings) -> None:
    """Repeatedly kill a process during a save, and check the remaining checkpoints."""
    calls = Calls(context.report_call)
    chance = random.Random(context.seed)
    kept, seconds = _first_checkpoints(context, calls)
    # Errors that occur without a kill must not be attributed to a kill.
    if not saved_right(findings, kept, context.directory, calls, "before any process was killed"):
        return
    context.note_commit(findings)
    findings.facts["moments"] = f"0 to {_SAVES_UNTIL_KILLED:g} saves of {seconds * 1000:.3g} ms after the start of one"
    number, whole = kept.number + 1, 0
    for _ in range(context.count(_KILLS, minimum=5)):
        calls("kill in mid-save", context.directory)
        unfinished, acknowledged = _save_until_killed(
            context, findings, number, chance.uniform(0, _SAVES_UNTIL_KILLED * seconds)
        )
        if unfinished is None:
            return
        findings.trials += 1
        for checkpoint in [kept, *acknowledged]:
            for wrong in checkpoint.wrongs(context.directory, calls):
                findings.wrong(
                    "an acknowledged checkpoint is damaged by the death of a process",
                    where=f"{wrong.where}, after the process that saved {unfinished.name} was killed",
                    seen=wrong.seen,
                    expected=wrong.expected,
                )
        kept = [kept, *acknowledged][-1]
        # The commit is the last step of a save before the acknowledgement; after it, all files must exist.
        if unfinished.is_committed(context.directory):
            wrongs = unfinished.wrongs(context.directory, calls)
            for wrong in wrongs:
                findings.wrong(
                    f"a broken checkpoint has its {context.commit.sign}",
                    where=f"{wrong.where}, after the process that saved it was killed",
                    seen=wrong.seen,
                    expected=f"no {context.commit.evidence_of(Path(unfinished.name))}, or all of it: {wrong.expected}",
                )
            whole += not wrongs
        _remove_except(context.directory, kept)
        number = unfinished.number + 1
    findings.facts["interrupted saves"] = (
        f"{findings.trials}, of which {whole} already had the {context.commit.sign} and were whole"
    )


def _first_checkpoints(context: CheckContext, calls: Calls) -> tuple[Checkpoint, float]:
    """Save a few checkpoints and keep only the last one. Return (this checkpoint, the median save time in seconds)."""
    seconds = []
    for number in range(1, _TIMED_SAVES + 1):
        checkpoint = Checkpoint(number=number, seed=context.seed, commit=context.commit)
        began = time.monotonic()
        checkpoint.save(context.directory, calls)
        seconds.append(time.monotonic() - began)
    _remove_except(context.directory, checkpoint)
    return checkpoint, statistics.median(seconds)


def _save_until_killed(
    context: CheckContext, findings: Findings, first: int, seconds: float
) -> tuple[Checkpoint | None, list[Checkpoint]]:
    """Start a process that saves checkpoints from number ``first`` on, and kill the process after ``seconds``.

    Return (the interrupted checkpoint, the acknowledged checkpoints). If a call failed, return (None, an empty list).
    """

    def checkpoint(number: int) -> Checkpoint:
        return Checkpoint(number=number, seed=context.seed, commit=context.commit)

    def saves(talk: WorkerChannel) -> None:
        number = first
        while True:
            talk.send(f"begins {number}")
            checkpoint(number).save(context.directory, talk.at)
            talk.send(f"has saved {number}")
            number += 1

    with working([saves]) as workers:
        worker = workers[0]
        if all_have_sent(workers, f"begins {first}", context.report_call):
            time.sleep(seconds)
        worker.kill()
        # If the kernel does not release the process, this check blocks, and its last message names the call.
        (end,) = gather(workers, context.report_call)
    if end.error:
        findings.wrong("a call failed", where=end.where, seen=f"{end.error} in {end.call}", expected="no error")
        return None, []
    number = first
    while worker.has_sent(f"has saved {number}"):
        number += 1
    return checkpoint(number), [checkpoint(n) for n in range(first, number)]


def _remove_except(directory: Path, kept: Checkpoint) -> None:
    for name in names_in(directory):
        if name != kept.name:
            shutil.rmtree(directory / name, ignore_errors=True)


Loss = Literal["bytes written over others", "bytes of a new file", "a new directory"]
LOSSES: tuple[Loss, ...] = get_args(Loss)

FILE_BYTES = 100_000
"""The size of a file outside of checkpoints."""


_SECTOR_BYTES = 512


class WriteWitness:
    """A list of all acknowledged files, which is stored outside the target.

    Each line contains the path of a file and the digest of its bytes. A line also contains the text of the file, or its
    length and the words from which its random bytes are generated.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.count = 0

    def acknowledge(self, files: Mapping[Path, bytes | tuple[int, tuple[object, ...]]]) -> None:
        """Record acknowledged files. The record is durable when this method returns.

        ``files`` is {path: text} or {path: (length, words from which the random bytes are generated)}.
        """
        with self._path.open("a") as out:
            for path, content in files.items():
                source: dict[str, object]
                if isinstance(content, bytes):
                    data, source = content, {"text": content.decode()}
                else:
                    length, words = content
                    data, source = random_bytes(length, *words), {"bytes": length, "words": list(map(str, words))}
                line = {"path": str(path), **source, "blake2b": blake2b(data).hexdigest()}
                out.write(json.dumps(line) + "\n")
            out.flush()
            os.fsync(out.fileno())
        self.count += len(files)

    def wrongs(self, calls: Calls) -> list[CheckpointFault]:
        """Compare all acknowledged files with the target, and return their faults.

        If a directory is missing, one fault of the directory replaces the faults of its files.
        """
        found: list[CheckpointFault] = []
        absent: set[Path] = set()
        for line in self._path.read_text().splitlines():
            noted = json.loads(line)
            path = Path(noted["path"])
            data = noted["text"].encode() if "text" in noted else random_bytes(noted["bytes"], *noted["words"])
            assert blake2b(data).hexdigest() == noted["blake2b"]
            if path.parent in absent:
                continue
            wrong = wrong_bytes(path, data, calls)
            if wrong and wrong.is_name and not path.parent.is_dir():
                absent.add(path.parent)
                wrong = missing(path.parent)
            if wrong:
                found.append(wrong)
        return found


@dataclass(slots=True)
class UnsyncedNames:
    """Names that were not made durable by fsync of their directory, and how many of these names survived power cuts.

    Many file systems keep such names, but this is not required. ``trials`` is the number of power cuts, ``renames`` the
    number of renamed files. ``created`` and ``renamed`` count the new and the renamed files that survived.
    """

    trials: int = 0
    created: int = 0
    renamed: int = 0
    renames: int = 0

    def prepare(self, context: CheckContext, findings: Findings, directory: Path, calls: Calls) -> None:
        """Create two unsynced names: a new file with fsynced content, and a renamed file."""
        write_durably(directory / "renamed-not-yet", b"renamed", calls)
        sync_directory(directory, calls)
        write_durably(directory / "created", b"created", calls)
        self.renames += context.rename_file(directory / "renamed-not-yet", directory / "renamed", findings)

    def count_names(self, directory: Path, calls: Calls) -> None:
        """Count the names that exist after the power cut."""
        self.trials += 1
        calls("list", directory)
        names = names_in(directory) if directory.is_dir() else []
        self.created += "created" in names
        self.renamed += "renamed" in names

    def facts(self) -> dict[str, str]:
        """Return the counts for the report."""
        created = f"survived {self.created} of {self.trials} cuts"
        return {
            "name of an fsynced file without fsync of its directory": created,
            "rename without fsync of the directory": f"survived {self.renamed} of {self.renames} cuts",
        }


class Canary:
    """The canary of a power cut: bytes and names that were never fsynced. A real power cut destroys some of them.

    The names are random and mixed with durable files. A false power-cut command that only removes files cannot know
    which files to remove.
    """

    def __init__(self, directory: Path, seed: int, calls: Calls) -> None:
        self._old, self._new = (random_bytes(FILE_BYTES, seed, "canary", word) for word in ("old", "new"))
        self._overwritten, self._created, self._directory = (directory / own_name() for _ in range(3))
        write_durably(self._overwritten, self._old, calls)
        sync_directory(directory, calls)
        # From here on no data are made durable.
        write_durably(self._overwritten, self._new, calls, flags=0, sync=False)
        write_durably(self._created, self._new, calls, sync=False)
        self._directory.mkdir()

    def wrong(self, calls: Calls) -> CheckpointFault | None:
        """Return the fault of the file that was overwritten without fsync; None if a power cut explains its content.

        The name and the length of the file are durable. Each sector of 512 bytes must contain either its old or its new
        bytes. A missing file is a fault, because a real power cut does not remove a durable name.
        """
        found = wrong_bytes(self._overwritten, self._new, calls)
        if not found or found.is_name:
            return found
        data = read_file(self._overwritten)
        pieces = range(0, FILE_BYTES, _SECTOR_BYTES)
        is_mixed = len(data) == FILE_BYTES and all(
            data[at : at + _SECTOR_BYTES] in (self._old[at : at + _SECTOR_BYTES], self._new[at : at + _SECTOR_BYTES])
            for at in pieces
        )
        return None if is_mixed else found

    def lost(self, calls: Calls) -> tuple[Loss, ...]:
        """Return the kinds of canary data that the power cut destroyed."""
        absent = {
            "bytes written over others": wrong_bytes(self._overwritten, self._new, calls) is not None,
            "bytes of a new file": wrong_bytes(self._created, self._new, calls) is not None,
            "a new directory": not self._directory.is_dir(),
        }
        return tuple(loss for loss in LOSSES if absent[loss])


@dataclass(frozen=True, kw_only=True, slots=True)
class CutEvidence:
    """The evidence of one power cut.

    ``losses`` are the kinds of canary data (never fsynced) that were lost; they are the strongest evidence. ``restart``
    describes the restart of the server, from the output of the command; empty without a restart. During the cut,
    another process may write repeatedly: ``gap_seconds`` is the longest time without a successful write, or 0 without
    this process. ``back_seconds`` is the time from the start of the command to the first answer of the target.
    """

    losses: tuple[Loss, ...]
    back_seconds: float
    restart: str = ""
    gap_seconds: float = 0.0

    @property
    def is_proof(self) -> bool:
        """Whether the evidence proves a power cut: the canary lost data, or the server restarted."""
        return bool(self.losses or self.restart)

    @property
    def is_outage(self) -> bool:
        """Whether no write succeeded for at least ``OUTAGE_SECONDS``."""
        return self.gap_seconds >= OUTAGE_SECONDS


def describe_evidence(cuts: Sequence[CutEvidence]) -> str:
    """Return a text on the evidence of all power cuts. Each cut is described by its strongest evidence."""
    lost = Counter(loss for cut in cuts for loss in cut.losses)
    restarts = [cut.restart for cut in cuts if cut.restart and not cut.losses]
    outages = [cut.gap_seconds for cut in cuts if cut.is_outage and not cut.is_proof]
    declared = sum(not cut.is_proof and not cut.is_outage for cut in cuts)
    parts = []
    if lost:
        absent = ", ".join(f"{loss} in {lost[loss]}" for loss in LOSSES)
        parts.append(f"Of {counted(len(cuts), 'cut')}, data that were never fsynced were gone: {absent}")
    if restarts:
        parts.append(f"the command printed a restart of the server in {len(restarts)}: {restarts[0]}")
    if outages:
        parts.append(
            f"in {len(outages)} only an outage was seen: for up to {format_seconds(max(outages))} no write succeeded"
        )
    if declared:
        parts.append(
            f"{counted(declared, 'cut')} declared by the operator: nothing was gone, no restart was printed, and no "
            "outage was seen"
        )
    back = [cut.back_seconds for cut in cuts]
    least, most = (format_seconds(seconds) for seconds in (min(back), max(back)))
    lasted = least if least == most else f"{least} to {most}"
    return "; ".join([*parts, f"from the command to the first answer of the target: {lasted}"])


_PRINTED = re.compile(r"^\s*(boot-id|uptime)[ =:]+(\S+)\s*$", re.MULTILINE)


def restart_in(text: str) -> str:
    """Return a text on the server's restart, from the output of a power-cut command; empty without a restart.

    A command can print ``boot-id ID`` or ``uptime SECONDS`` of the server before and after the cut. Other lines are
    ignored.
    """
    printed: dict[str, list[str]] = {}
    for name, value in _PRINTED.findall(text):
        printed.setdefault(name, []).append(value)
    for name, (first, *_, last) in ((name, values) for name, values in printed.items() if len(values) > 1):
        if name == "boot-id" and first != last:
            return f"boot-id {first:.40} before it, {last:.40} after it"
        with contextlib.suppress(ValueError):
            if name == "uptime" and float(last) < float(first):
                return f"uptime {float(first):g} s before it, {float(last):g} s after it"
    return ""


def write_until_stop(path: Path, talk: WorkerChannel) -> float:
    """Write and fsync a small file repeatedly until the check resumes this worker.

    Return the longest time without a successful write, in seconds.
    """
    longest, last = 0.0, time.monotonic()
    while not talk.may_continue():
        with contextlib.suppress(OSError):
            talk.at("write", path)
            with path.open("wb") as file:
                file.write(b"probe")
                file.flush()
                os.fsync(file.fileno())
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        time.sleep(_WRITE_AGAIN_SECONDS)
    return max(longest, time.monotonic() - last)


_SAVES_OF_A_CUT = 3
# The report states how many cuts would detect a loss that occurs in these shares of cuts.
_SHARES_OF_LOSSES = (0.05, 0.01)
_TELL_SECONDS = 5.0
_POLL_SECONDS = 0.25
# An array may check its disks before it answers again.
COMMAND_SECONDS = 1800.0
BACK_SECONDS = 600.0
OUTAGE_SECONDS = 5.0
"""From this time on, a pause without a successful write counts as an outage. We chose this value."""

_WRITE_AGAIN_SECONDS = 0.05
# Wait for a target that is mounted but not yet fully available.
_SETTLE_SECONDS = 5.0


def power_cut(context: CheckContext, findings: Findings) -> None:
    """Save, record the acknowledged files outside the target, cut the target's power, and check all recorded files."""
    if not context.power_cut or not context.witness:
        raise NotRun("no command that cuts the target's power (--ckpt-actions [power_cut] command)")
    if context.witness.stat().st_dev == context.directory.stat().st_dev:
        raise NotRun(f"the witness of acknowledged saves, {context.witness}, is on the target itself")
    if Path.cwd().stat().st_dev == context.directory.stat().st_dev:
        # A process whose current directory is in a file system prevents its unmount.
        os.chdir("/")
    calls = Calls(context.report_call)
    witness = WriteWitness(context.witness / f"acknowledged-{os.getpid()}.jsonl")
    reported, evidence = UnsyncedNames(), list[CutEvidence]()
    root = _sync_up_to_the_mount(context.directory, calls)
    # A network file system's client may have sent all data at close, and sends again what its server lost.
    shows_losses = mount_of(context.directory.resolve()).is_local
    # Errors without a power cut must not be attributed to one. Only this checkpoint is read before a cut, because an
    # uncached read writes back data that an fsync has left out.
    probe = Checkpoint(number=1, seed=context.seed, commit=context.commit)
    probe.save(context.directory, calls)
    if not saved_right(findings, probe, context.directory, calls, "before any power cut"):
        return
    context.note_commit(findings)
    cuts = context.power_cuts
    losses = 0
    for cut in range(1, cuts + 1):
        directory = context.directory / f"cut-{cut}"
        directory.mkdir()
        sync_directory(context.directory, calls)
        _save_and_overwrite(context, findings, directory, cut, witness, calls)
        reported.prepare(context, findings, directory, calls)
        canary = Canary(directory, context.seed, calls)
        log = context.witness / f"power-cut-{cut}.log"
        # On a local file system, a process that uses it may keep a command from unmounting it.
        probes = () if shows_losses else (partial(write_until_stop, context.directory / own_name()),)
        with working(probes) as writers:
            began = time.monotonic()
            if not (_cut(context, log, findings, cut) and _is_back(context, findings, cut, root)):
                return
            back_seconds = time.monotonic() - began
            gap_seconds = _longest_gap(writers, context.report_call)
        findings.trials += 1
        lost = canary.lost(calls)
        if not lost and shows_losses:
            findings.wrong(
                "the power cut did not cut",
                where=f"{directory}, cut {cut} of {cuts}",
                seen="all data that were never fsynced before the command are still "
                "there: a new file, bytes written over others, a new directory",
                expected=f"gone, like volatile memory. Check that '{shlex.join(context.power_cut)}' cuts the power "
                "within seconds, does not unmount or sync before, and returns when all is up again",
            )
            return
        evidence.append(
            CutEvidence(
                losses=lost,
                restart=restart_in(log.read_text(errors="replace")),
                gap_seconds=gap_seconds,
                back_seconds=back_seconds,
            )
        )
        overwritten = canary.wrong(calls)
        wrongs = [*([overwritten] if overwritten else []), *witness.wrongs(calls)]
        losses += len(wrongs)
        _record_faults(wrongs, findings, cut, cuts)
        reported.count_names(directory, calls)
    if not losses:
        bound = f"with 95 % confidence at most {format_percent(largest_share(cuts))} of power cuts lose anything"
        more = ((trials_for(1 - share), share) for share in _SHARES_OF_LOSSES)
        if would := [f"{needed} cuts would show {format_percent(share)}" for needed, share in more if cuts < needed]:
            bound += f" ({', '.join(would)})"
        if not all(each.is_proof for each in evidence):
            bound = f"if the power was cut each time, {bound}"
        findings.facts[POWER_CUTS] = f"{cuts}, {counted(witness.count, 'acknowledged file')}, none lost: {bound}"
    findings.facts |= {EVIDENCE_OF_CUTS: describe_evidence(evidence)} | reported.facts()


def _longest_gap(writers: Sequence[Worker], report_call: Callable[[str, str], None]) -> float:
    """Stop the processes of `write_until_stop`. Return the longest time without a successful write, in seconds."""
    for writer in writers:
        writer.resume()
    ends = gather(writers, report_call, patience_seconds=BACK_SECONDS)
    return max((end.hung or float(end.result or 0.0) for end in ends), default=0.0)


def _save_and_overwrite(
    context: CheckContext, findings: Findings, directory: Path, cut: int, witness: WriteWitness, calls: Calls
) -> None:
    """Save checkpoints like ranks do. Then rewrite a durable file in place, and replace another file by rename.

    Each file is recorded in ``witness`` when it is durable.
    """
    seed = context.seed
    for number in range(_SAVES_OF_A_CUT):
        checkpoint = Checkpoint(number=cut * _SAVES_OF_A_CUT + number, seed=seed, commit=context.commit)
        checkpoint.save(directory, calls)
        final = directory / checkpoint.name
        data = {final / name: (checkpoint.file_bytes, made) for name, made in checkpoint.seed_parts().items()}
        added = {final / name: text for name, text in context.commit.files_of(final).items()}
        witness.acknowledge({**data, **added})
    # Random names, so that a power-cut command cannot distinguish them from data that are not durable.
    in_place, replaced, replacement = (directory / own_name() for _ in range(3))
    for file in (in_place, replaced):
        write_durably(file, random_bytes(FILE_BYTES, seed, directory.name, file.name, "old"), calls)
    sync_directory(directory, calls)
    words = (seed, directory.name, "in place", "new")
    write_durably(in_place, random_bytes(FILE_BYTES, *words), calls, flags=0)
    witness.acknowledge({in_place: (FILE_BYTES, words)})
    words = (seed, directory.name, "replaced", "new")
    write_durably(replacement, random_bytes(FILE_BYTES, *words), calls)
    if context.rename_file(replacement, replaced, findings):
        sync_directory(directory, calls)
        witness.acknowledge({replaced: (FILE_BYTES, words)})


def _record_faults(wrongs: Sequence[CheckpointFault], findings: Findings, cut: int, cuts: int) -> None:
    for wrong in wrongs:
        what, how = ("name", "fsync of its directory") if wrong.is_name else ("bytes", "fsync of the file")
        findings.wrong(
            f"acknowledged {what} lost in a power cut",
            where=f"{wrong.where}, after cut {cut} of {cuts}",
            seen=wrong.seen,
            expected=f"its state when {how} had returned without error",
        )


def _cut(context: CheckContext, log: Path, findings: Findings, cut: int) -> bool:
    """Run the power-cut command. Return whether the command succeeded. A failure is recorded as an anomaly."""
    command = shlex.join(context.power_cut)
    began = time.monotonic()
    failure = ""
    with log.open("wb") as found:
        context.report_call("power cut", command)
        try:
            # A separate session, because a signal that ends this check must not interrupt the power cut.
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
                    context.report_call(f"power cut, for {format_seconds(time.monotonic() - began)}", command)
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
    """Wait until the target answers. Return whether the target answers and the directory of the check exists.

    If the target does not answer in time, or if the directory is missing, an anomaly is recorded.
    """
    began = time.monotonic()
    mounted_since: float | None = None
    while True:
        context.report_call("wait for the target", str(context.directory))
        try:
            names_in(context.directory)
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
                where=f"{context.directory}, after cut {cut}",
                seen=f"gone with all in it; {root} is mounted",
                expected="its state when fsync of it and of the directories above it had returned without error",
            )
            return False
        if now - began > BACK_SECONDS:
            findings.wrong(
                "the target did not come back after the power cut",
                where=f"{context.directory}, {format_seconds(now - began)} after cut {cut}",
                seen=seen,
                expected=f"that it answers within {format_seconds(BACK_SECONDS)}",
            )
            return False
        time.sleep(_POLL_SECONDS)


def _sync_up_to_the_mount(directory: Path, calls: Calls) -> Path:
    """Fsync the directory and its parents as far as permitted. Return the mount point.

    The owner file of each directory is fsynced, too. After the power cut, the clean-up recognises the directories of
    the run by this file.
    """
    while True:
        with contextlib.suppress(PermissionError):
            if (word := directory / OWNER).is_file():
                calls("fsync", word)
                with word.open("rb") as file:
                    os.fsync(file.fileno())
            sync_directory(directory, calls)
        if directory.is_mount():
            return directory
        directory = directory.parent
