"""Sets a wrong time of day on a simulated host, by libfaketime in the processes that ssh or Slurm start.

The monotonic clock of the host and the timestamps of files remain correct.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.hosts.host import name_of
from tests.support.machine import need

_LIBRARIES = tuple(Path(f"/usr/lib/{machine}-linux-gnu/faketime/libfaketime.so.1") for machine in ("x86_64", "aarch64"))
# Files that libfaketime keeps per process, and that remain if a process is killed or ends without the C library.
LEFT = ("/dev/shm/faketime_shm_", "/dev/shm/sem.faketime_sem_")


def need_faketime() -> None:
    """Skip the test if there is no libfaketime or no gcc. On CI, fail."""
    need(_library() and shutil.which("gcc"), "needs the packages faketime and gcc")


def _library() -> Path | None:
    return next((path for path in _LIBRARIES if path.exists()), None)


class WrongClock:
    """Sets the time of day of host ``number`` ahead by ``seconds``, for processes that ssh or Slurm start.

    The methods return shell lines and commands that set or reset the time. The instance writes its files to ``home``.
    """

    def __init__(self, home: Path, number: int, seconds: int) -> None:
        shim = home / "wrong_clock.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", shim, source], check=True)
        variables = {
            "LD_PRELOAD": f"{shim} {_library()}",
            "FAKETIME": f"+{seconds}",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        said = [f"{name}={value}" for name, value in variables.items()]
        self._passwd = home / "passwd"
        self._shell = home / "login"
        exported = "".join(f'export "{each}"\n' for each in said)
        _program(self._shell, f'{exported}exec /bin/sh "$@"\n')
        told = "".join(f'echo "export {each}"\n' for each in said)
        self._prolog = home / "prolog"
        _program(self._prolog, f'[ "$(hostname)" = {name_of(number)} ] || exit 0\n{told}')

    def begin(self) -> str:
        """Return the shell line that sets the wrong time for new logins on the host."""
        line = f"root:x:0:0:root:/root:{self._shell}"
        return f"sed 's#^root:.*#{line}#' /etc/passwd > {self._passwd}; mount --bind {self._passwd} /etc/passwd"

    def end(self) -> str:
        """Return the shell line that sets the correct time for new logins on the host."""
        return "umount /etc/passwd"

    def slurm_launcher(self, launcher: str) -> str:
        """Return the srun command ``launcher`` with an option that sets the wrong time for tasks on the host."""
        return f"{launcher} --task-prolog={self._prolog}"


def _program(path: Path, lines: str) -> None:
    path.write_text(f"#!/bin/sh\n{lines}")
    path.chmod(0o755)
