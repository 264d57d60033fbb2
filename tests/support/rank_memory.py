"""The unshared memory of each process of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psutil

_RANK = ["-P", "-m", "pytest_ckpt.ranks"]


def unshared_bytes(process: psutil.Process) -> int:
    """Return the memory that only this process uses (USS), in bytes; 0 if the process has ended."""
    with contextlib.suppress(psutil.Error):
        return int(process.memory_full_info().uss)
    return 0


def ranks_of(controller: psutil.Process) -> Iterator[psutil.Process]:
    """Yield the running ranks that a controller has started."""
    for process in controller.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[1:] == _RANK:
                yield process
