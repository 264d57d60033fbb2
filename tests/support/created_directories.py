"""Records the checkpoint directories that the ranks of a run create."""

from __future__ import annotations

from pathlib import Path

from tests.support.end_to_end import in_every_rank

_CODE = """
import os

def recorded_mkdir(path, *mode, mkdir=os.mkdir, **how):
    mkdir(path, *mode, **how)
    with open(os.environ["CREATED_DIRECTORIES"], "a") as log:
        log.write(f"{os.fspath(path)}\\n")

os.mkdir = recorded_mkdir
"""


class CreatedDirectories:
    """Records the checkpoint directories that the ranks of a run create.

    Pass ``environment`` to the run. After the run, ``names`` contains the directories in the order of their creation.
    """

    def __init__(self, home: Path) -> None:
        self._log = home / "created-directories"
        self.environment = in_every_rank(home, _CODE, CREATED_DIRECTORIES=str(self._log))

    @property
    def names(self) -> list[str]:
        return [line for line in self._log.read_text().splitlines() if "/checkpoint-" in line]
