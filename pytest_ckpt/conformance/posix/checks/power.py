"""What was acknowledged outlives a power cut of the target."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import random_bytes
from pytest_ckpt.conformance.not_run import NotRun
from pytest_ckpt.conformance.posix.checkpoints import (
    Calls,
    Checkpoint,
    Wrong,
    missing,
    names_in,
    saved_right,
    sync_folder,
    write_durably,
    wrong_bytes,
)
from pytest_ckpt.support.units import counted, format_seconds
from pytest_ckpt.targets.owner import OWNER

if TYPE_CHECKING:
    from pytest_ckpt.conformance.context import Book, CheckContext

_SAVES_OF_A_CUT = 3
_FILE_BYTES = 100_000
_TELL_SECONDS = 5.0
_POLL_SECONDS = 0.25
# An array may check its disks before it answers again.
COMMAND_SECONDS = 1800.0
BACK_SECONDS = 600.0
# For what is mounted but not quite there yet.
_SETTLE_SECONDS = 5.0


def power_cut(context: CheckContext, book: Book) -> None:
    """Save, note what was acknowledged in a place that keeps its power, cut the power, look for all of it."""
    if not context.power_cut:
        raise NotRun("there is no command that cuts the target's power (--ckpt-power-cut)")
    if context.witness.stat().st_dev == context.folder.stat().st_dev:
        raise NotRun(f"the witness of acknowledged saves, {context.witness}, is on the target itself")
    if Path.cwd().stat().st_dev == context.folder.stat().st_dev:
        # Whoever works in a file system keeps it from being unmounted.
        os.chdir("/")
    calls = Calls(context.tell)
    witness = Witness(context.witness / f"acknowledged-{os.getpid()}.jsonl")
    reported = _Reported()
    root = _sync_up_to_the_mount(context.folder, calls)
    # What goes wrong without a power cut is not to be blamed on one. Only this one checkpoint is read before a cut:
    # reading past the caches writes back what an fsync has left out.
    probe = Checkpoint(number=1, seed=context.seed)
    probe.save(context.folder, calls)
    if not saved_right(book, probe, context.folder, calls, "before any power cut"):
        return
    cuts = context.power_cuts
    losses = 0
    for cut in range(1, cuts + 1):
        folder = context.folder / f"cut-{cut}"
        folder.mkdir()
        sync_folder(context.folder, calls)
        _save_and_overwrite(folder, context.seed, cut, witness, calls)
        reported.prepare(folder, calls)
        canary = _Canary(folder, context.seed, calls)
        if not (_cut(context, book, cut) and _is_back(context, book, cut, root)):
            return
        book.trials += 1
        if not canary.vanished(calls):
            book.wrong(
                "the power cut did not cut",
                where=f"{folder}, cut {cut} of {cuts}",
                seen="what was written and never fsynced before the command is still there, all of it: "
                "a new file, bytes written over others, a new folder",
                expected=f"gone, as volatile memory is: that '{shlex.join(context.power_cut)}' takes the power within "
                "seconds, lets nobody unmount or sync before, and returns when all is up again",
            )
            return
        losses += _look_for(witness, book, cut, cuts, calls)
        reported.look(folder, calls)
    if not losses:
        bound = f"with 95 % confidence at most {min(1.0, 3 / cuts):.0%} of power cuts lose anything (3/k)"
        book.facts["power cuts"] = f"{cuts}, {counted(witness.count, 'acknowledged file')}, none lost: {bound}"
    book.facts |= reported.facts()


class Witness:
    """A file elsewhere that holds every acknowledged file: its path, how its bytes are made, their digest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.count = 0

    def acknowledge(self, files: dict[Path, tuple[int, tuple[object, ...]]]) -> None:
        """Note {path: (bytes, what its content is made from)}; when this returns it is durable."""
        with self._path.open("a") as out:
            for path, (length, words) in files.items():
                digest = blake2b(random_bytes(length, *words)).hexdigest()
                line = {"path": str(path), "bytes": length, "words": list(map(str, words)), "blake2b": digest}
                out.write(json.dumps(line) + "\n")
            out.flush()
            os.fsync(out.fileno())
        self.count += len(files)

    def wrongs(self, calls: Calls) -> list[Wrong]:
        """Return what is wrong with what was acknowledged; of a folder that is gone, only the folder."""
        found: list[Wrong] = []
        gone: set[Path] = set()
        for line in self._path.read_text().splitlines():
            noted = json.loads(line)
            path, data = Path(noted["path"]), random_bytes(noted["bytes"], *noted["words"])
            assert blake2b(data).hexdigest() == noted["blake2b"]
            if path.parent in gone:
                continue
            wrong = wrong_bytes(path, data, calls)
            if wrong and wrong.is_name and not path.parent.is_dir():
                gone.add(path.parent)
                wrong = missing(path.parent)
            if wrong:
                found.append(wrong)
        return found


@dataclass(slots=True)
class _Reported:
    """Names that no fsync of a folder has made durable: many file systems keep them, none has to."""

    trials: int = 0
    created: int = 0
    renamed: int = 0

    def prepare(self, folder: Path, calls: Calls) -> None:
        """Make them: a file that was fsynced itself, and a rename."""
        write_durably(folder / "renamed-not-yet", b"renamed", calls)
        sync_folder(folder, calls)
        write_durably(folder / "created", b"created", calls)
        (folder / "renamed-not-yet").rename(folder / "renamed")

    def look(self, folder: Path, calls: Calls) -> None:
        """Count what is there after the cut."""
        self.trials += 1
        calls("list", folder)
        names = names_in(folder) if folder.is_dir() else []
        self.created += "created" in names
        self.renamed += "renamed" in names

    def facts(self) -> dict[str, str]:
        """Return what the report says of it."""
        return {
            "name of an fsynced file without fsync of its folder": f"survived {self.created} of {self.trials} cuts",
            "rename without fsync of the folder": f"survived {self.renamed} of {self.trials} cuts",
        }


class _Canary:
    """Bytes and names that were never made durable. A power cut takes some of them, or it was none."""

    def __init__(self, folder: Path, seed: int, calls: Calls) -> None:
        self._folder = folder / "canary"
        self._old = random_bytes(_FILE_BYTES, seed, "canary", "old")
        self._new = random_bytes(_FILE_BYTES, seed, "canary", "new")
        self._folder.mkdir()
        write_durably(self._folder / "overwritten", self._old, calls)
        sync_folder(self._folder, calls)
        sync_folder(folder, calls)
        # From here on nothing is made durable any more.
        write_durably(self._folder / "overwritten", self._new, calls, flags=0, sync=False)
        write_durably(self._folder / "created", self._new, calls, sync=False)
        (self._folder / "folder").mkdir()

    def vanished(self, calls: Calls) -> bool:
        """Return whether any of it is gone."""
        files = [self._folder / "overwritten", self._folder / "created"]
        return any(wrong_bytes(file, self._new, calls) for file in files) or not (self._folder / "folder").is_dir()


def _save_and_overwrite(folder: Path, seed: int, cut: int, witness: Witness, calls: Calls) -> None:
    """Save checkpoints as ranks do; beside them, rewrite a durable file in place, and replace one by rename."""
    for number in range(_SAVES_OF_A_CUT):
        checkpoint = Checkpoint(number=cut * _SAVES_OF_A_CUT + number, seed=seed)
        checkpoint.save(folder, calls)
        contents = {folder / checkpoint.name / name: made for name, made in checkpoint.made_from().items()}
        witness.acknowledge({path: (checkpoint.file_bytes, words) for path, words in contents.items()})
    for name in ("in-place", "replaced"):
        write_durably(folder / name, random_bytes(_FILE_BYTES, seed, folder.name, name, "old"), calls)
    sync_folder(folder, calls)
    words = (seed, folder.name, "in-place", "new")
    write_durably(folder / "in-place", random_bytes(_FILE_BYTES, *words), calls, flags=0)
    witness.acknowledge({folder / "in-place": (_FILE_BYTES, words)})
    words = (seed, folder.name, "replaced", "new")
    write_durably(folder / "replacement", random_bytes(_FILE_BYTES, *words), calls)
    (folder / "replacement").replace(folder / "replaced")
    sync_folder(folder, calls)
    witness.acknowledge({folder / "replaced": (_FILE_BYTES, words)})


def _look_for(witness: Witness, book: Book, cut: int, cuts: int, calls: Calls) -> int:
    wrongs = witness.wrongs(calls)
    for wrong in wrongs:
        what, how = ("name", "fsync of its folder") if wrong.is_name else ("bytes", "fsync of the file")
        book.wrong(
            f"acknowledged {what} lost in a power cut",
            where=f"{wrong.where}, after cut {cut} of {cuts}",
            seen=wrong.seen,
            expected=f"what it was when {how} had returned without error",
        )
    return len(wrongs)


def _cut(context: CheckContext, book: Book, cut: int) -> bool:
    """Have the power cut; return whether the command says that it was."""
    command = shlex.join(context.power_cut)
    log = context.witness / f"power-cut-{cut}.log"
    began = time.monotonic()
    failure = ""
    with log.open("wb") as said:
        context.tell("power cut", command)
        try:
            # In a session of its own: whoever ends this check must not end a cut half-way.
            process = subprocess.Popen(
                context.power_cut, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
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
        book.wrong(
            "the power cut command failed",
            where=f"cut {cut}: {command}",
            seen=f"{failure}: {last}",
            expected="exit code 0 when the target has lost its power and is back",
        )
    return not failure


def _is_back(context: CheckContext, book: Book, cut: int, root: Path) -> bool:
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
            book.facts["back after"] = f"{format_seconds(time.monotonic() - began)} (cut {cut})"
            return True
        now = time.monotonic()
        mounted_since = (mounted_since or now) if is_missing else None
        if mounted_since and now - mounted_since > _SETTLE_SECONDS:
            book.wrong(
                "acknowledged name lost in a power cut",
                where=f"{context.folder}, after cut {cut}",
                seen=f"gone with all in it; {root} is mounted",
                expected="what it was when fsync of it and of the folders above it had returned without error",
            )
            return False
        if now - began > BACK_SECONDS:
            book.wrong(
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
