"""Errors that a user can fix: the problem, the expected value, the remedy."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterable, Iterator


class UsageError(Exception):
    """A problem of the command, the machine or the target, reported before the first write (exit code 4).

    ``what`` is the problem. ``remedy`` states the expected value and what the user can do.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what}\n  {remedy}" if remedy else what)
        self.what = what
        self.remedy = remedy


class ReplacedError(Exception):
    """The files or directories of a run on its target were replaced, so they must not be measured."""


class KilledError(Exception):
    """A process that works for a rank was killed. This failure does not count against the storage."""


class Problems:
    """Collects the problems that must be fixed before a run, so that they are reported together."""

    def __init__(self) -> None:
        self.found: list[UsageError] = []

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Run a block. If the block raises a UsageError, record the error and continue after the block."""
        try:
            yield
        except UsageError as error:
            self.found.append(error)

    def refuse(self) -> None:
        """Raise the recorded problems. Several problems become one UsageError with the remedy of each."""
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            problems = (textwrap.indent(str(error), "   ").lstrip() for error in self.found)
            numbered = "\n".join(f"{number}. {text}" for number, text in enumerate(problems, 1))
            raise UsageError(
                f"{len(self.found)} things keep the run from starting:\n{numbered}", "Change each of them."
            )


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the known word that is nearest to ``word``, or an empty string.

    If ``word`` is a part of exactly one known word, that known word is used: ``llama3-70b`` for ``70b``.
    """
    import difflib  # noqa: PLC0415 - only when something is wrong

    by_lower = {name.lower(): name for name in known}
    seen = word.strip().lower()
    found = [name for name in by_lower if len(seen) > 1 and seen in name]
    if len(found) != 1:
        found = difflib.get_close_matches(seen, list(by_lower), n=1, cutoff=0.5)
    return f" (did you mean '{by_lower[found[0]]}'?)" if found else ""
