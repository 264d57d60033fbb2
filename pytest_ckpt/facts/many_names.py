"""The results of the suite metadata, in which all ranks make calls on the names of many empty files."""

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
    """One kind of call by all ranks at the same time. Each rank makes the calls for its share of the names one by one.

    ``count`` is the number of names of all ranks. ``seconds`` is the time of the slowest rank.
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
    """A fault that one rank detected in ``count`` names. ``name`` is the path of the first of these names."""

    kind: NameFaultKind
    rank: Count
    host: str
    name: str
    count: CountFromOne


@dataclass(frozen=True, kw_only=True, slots=True)
class Metadata:
    """The results of the suite metadata on ``files`` empty files in ``directories``.

    The ranks created, looked up, listed and removed the files:

    - ``by_other_hosts``: True if every rank looked up and listed names that another host had created.
    - ``names_dropped``: True if all kernels dropped their cached names and attributes before each step; None if this
      was not tried.
    - ``late``: the number of names that another host did not see in its first look, but in a later look. The
      requirement STALE limits the time for these looks.

    Then one rank removed directories that all ranks had filled (list, unlink, rmdir):

    - ``checkpoint_files``: the number of files in each directory.
    - ``removal_seconds``: the time of each removal.

    ``failure`` is the first call that failed. The steps after this call are missing.
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
