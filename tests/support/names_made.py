"""Records the checkpoint directories that the ranks of a run create."""

from __future__ import annotations

from pathlib import Path

from tests.support.front_door import in_every_rank

_CODE = """
import os

def made(path, *mode, mkdir=os.mkdir, **how):
    mkdir(path, *mode, **how)
    with open(os.environ["DIRECTORIES_MADE"], "a") as log:
        log.write(f"{os.fspath(path)}\\n")

os.mkdir = made
"""


class DirectoriesMade:
    """Records the checkpoint directories that the ranks of a run create.

    Pass ``environment`` to the run. Then ``names`` contains the directories in the order of their creation.
    """

    def __init__(self, home: Path) -> None:
        self._log = home / "directories-made"
        self.environment = in_every_rank(home, _CODE, DIRECTORIES_MADE=str(self._log))

    @property
    def names(self) -> list[str]:
        return [line for line in self._log.read_text().splitlines() if "/checkpoint-" in line]
