"""The results of the suite metadata: calls on the names of many empty files, by all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.facts.bounds import Count, CountFromOne, NotNegative, Positive
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.support.units import counted

NameCall = Literal["mkdir", "create", "stat", "list", "unlink", "rmdir"]
"""The kinds of calls. ``create`` opens with O_CREAT and O_EXCL, and closes; ``list`` reads the names of a directory."""

NameFaultKind = Literal["not found", "not listed", "listed twice", "still listed"]
"""The kinds of faults.

A created name is not found by stat, is not listed, or is listed twice; or a removed name is still listed.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class NamesStep:
    """One kind of call by all ranks at the same time; each rank makes its calls in sequence, on its share of the names.

    ``count`` is the number of names over all ranks. ``seconds`` is the time of the slowest rank.
    """

    call: NameCall
    count: CountFromOne
    seconds: Positive
    slowest_rank: Count

    @property
    def rate(self) -> str:
        """The names per second of all ranks together, as text."""
        return f"{self.count / self.seconds:,.0f}/s"


@dataclass(frozen=True, kw_only=True, slots=True)
class NameFault:
    """A fault that one rank found with ``count`` names; ``name`` is the path of the first one."""

    kind: NameFaultKind
    rank: Count
    host: str
    name: str
    count: CountFromOne


@dataclass(frozen=True, kw_only=True, slots=True)
class Metadata:
    """The results of the suite metadata: ``files`` empty files in ``directories`` were created, looked up, listed and
    removed.

    ``by_other_hosts``: every rank looked up and listed names that another host had created; False: at least one host
    looked up its own names. ``names_dropped``: before each step, the kernels dropped their cached names and attributes;
    False: at least one kernel did not; None: it was not tried. ``late`` is the number of names that another host saw
    only in a later look, within the time that STALE allows.

    After these steps, one rank removed directories that all ranks had filled with ``checkpoint_files`` files each
    (list, unlink, rmdir). ``removal_seconds`` are the seconds for each directory. ``failure`` is the first call that
    failed; the steps after it are missing.
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
