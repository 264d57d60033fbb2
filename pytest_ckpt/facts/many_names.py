"""The results of the suite metadata: calls on the names of many empty files, by all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.facts.bounds import Count, CountFromOne, NotNegative, Positive
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.support.units import counted

NameCall = Literal["mkdir", "create", "stat", "list", "unlink", "rmdir"]
"""``create``: open with O_CREAT and O_EXCL, and close. ``list``: the names of directories are read."""

NameFaultKind = Literal["not found", "not listed", "listed twice", "still listed"]
"""A created name that stat does not find, that a listing lacks, or that it has twice; a removed name in a listing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NamesStep:
    """All ranks perform one kind of call at the same time, each on its part of the names, one call after the other.

    ``count`` is the number of names over all ranks. ``seconds`` is the time of the slowest rank.
    """

    call: NameCall
    count: CountFromOne
    seconds: Positive
    slowest_rank: Count

    @property
    def rate(self) -> str:
        """The names a second of all ranks together, as text."""
        return f"{self.count / self.seconds:,.0f}/s"


@dataclass(frozen=True, kw_only=True, slots=True)
class NameFault:
    """What one rank found wrong with ``count`` names; ``name`` is the path of the first one."""

    kind: NameFaultKind
    rank: Count
    host: str
    name: str
    count: CountFromOne


@dataclass(frozen=True, kw_only=True, slots=True)
class Metadata:
    """``files`` empty files in ``directories`` were created, looked up, listed and removed.

    ``by_other_hosts``: every rank looked up and listed names that another host had created; otherwise at least one
    host looked up its own. ``names_dropped``: the kernels had dropped names and attributes before; False: some kernel
    had not; None: it was not tried. ``late`` names were seen by another host only in a later look, within the time that
    STALE allows. Then one rank removed directories with ``checkpoint_files`` files each, which all ranks had created:
    list, unlink, rmdir. ``removal_seconds`` are the seconds of each. ``failure`` is the first call that failed; the
    steps after it are missing.
    """

    files: CountFromOne
    directories: CountFromOne
    by_other_hosts: bool
    names_dropped: bool | None
    steps: tuple[NamesStep, ...]
    late: Count
    fault_count: Count
    faults: tuple[NameFault, ...]
    checkpoint_files: CountFromOne
    removal_seconds: tuple[NotNegative, ...]
    failure: Failure | None = None

    @property
    def rates(self) -> str:
        """The rate of each kind of call, as text: ``mkdir 4,000/s, create 1,250/s``."""
        return ", ".join(f"{step.call} {step.rate}" for step in self.steps)

    @property
    def extent(self) -> str:
        """The number of files and directories, as text."""
        return f"{counted(self.files, 'file')} in {counted(self.directories, 'directory', 'directories')}"
