"""What a power cut must not take, what it may take, and what it takes for certain."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from pytest_ckpt.conformance.content import random_bytes
from pytest_ckpt.conformance.posix.checkpoints import (
    Calls,
    Wrong,
    missing,
    names_in,
    sync_folder,
    write_durably,
    wrong_bytes,
)
from pytest_ckpt.conformance.reading import read_file
from pytest_ckpt.support.own_names import own_name
from pytest_ckpt.support.units import counted, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

Loss = Literal["bytes written over others", "bytes of a new file", "a new folder"]
LOSSES: tuple[Loss, ...] = get_args(Loss)

FILE_BYTES = 100_000
"""How much there is in a file that no checkpoint holds."""


_SECTOR_BYTES = 512


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
class Reported:
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


class Canary:
    """Bytes and names that were never made durable. A power cut takes some of them, or it was none.

    Nobody knows their names beforehand, and they lie among files that are durable: a command that only removes files
    would have to guess which.
    """

    def __init__(self, folder: Path, seed: int, calls: Calls) -> None:
        self._old, self._new = (random_bytes(FILE_BYTES, seed, "canary", word) for word in ("old", "new"))
        self._overwritten, self._created, self._folder = (folder / own_name() for _ in range(3))
        write_durably(self._overwritten, self._old, calls)
        sync_folder(folder, calls)
        # From here on nothing is made durable any more.
        write_durably(self._overwritten, self._new, calls, flags=0, sync=False)
        write_durably(self._created, self._new, calls, sync=False)
        self._folder.mkdir()

    def wrong(self, calls: Calls) -> Wrong | None:
        """Return what is wrong with the file whose bytes were written over: its name and its length are durable.

        Each piece of it is as it was before or after; a command that removes what was never fsynced removes it, too.
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
        """Return what of it is gone."""
        gone = {
            "bytes written over others": wrong_bytes(self._overwritten, self._new, calls) is not None,
            "bytes of a new file": wrong_bytes(self._created, self._new, calls) is not None,
            "a new folder": not self._folder.is_dir(),
        }
        return tuple(loss for loss in LOSSES if gone[loss])


@dataclass(slots=True)
class Evidence:
    """What shows that the power was cut, over all cuts: what they took, and how long nothing answered."""

    losses: Counter[Loss] = field(default_factory=Counter)
    outage_seconds: list[float] = field(default_factory=list)

    def add(self, losses: Sequence[Loss], outage_seconds: float) -> None:
        """Add one cut: what of its canary is gone, and the seconds from its command to the target's first answer."""
        self.losses.update(losses)
        self.outage_seconds.append(outage_seconds)

    def describe(self) -> str:
        """Say it in one sentence."""
        cuts = len(self.outage_seconds)
        gone = ", ".join(f"{loss} in {self.losses[loss]}" for loss in LOSSES)
        least, most = (format_seconds(seconds) for seconds in (min(self.outage_seconds), max(self.outage_seconds)))
        lasted = least if least == most else f"{least} to {most}"
        return (
            f"Of {counted(cuts, 'cut')}, what was written and never fsynced was gone: {gone}; from the command to the "
            f"first answer of the target: {lasted}"
        )


def largest_share(trials: int) -> float:
    """Return the largest share of losses that ``trials`` without one leave possible, with 95 % confidence.

    With a larger share s, no loss in k trials has a probability of (1 - s)^k, which is then below 5 %.
    """
    return 1.0 - math.pow(0.05, 1 / trials)


# The number of cuts after which at most 5 % of cuts may lose something.
CUTS_FOR_FIVE_PERCENT = 59
