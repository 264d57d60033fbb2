"""What a power cut must not take, what it may take, and what it takes for certain."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

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

FILE_BYTES = 100_000
"""How much there is in a file that no checkpoint holds."""


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
    """Bytes and names that were never made durable. A power cut takes some of them, or it was none."""

    def __init__(self, folder: Path, seed: int, calls: Calls) -> None:
        self._folder = folder / "canary"
        self._old = random_bytes(FILE_BYTES, seed, "canary", "old")
        self._new = random_bytes(FILE_BYTES, seed, "canary", "new")
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
