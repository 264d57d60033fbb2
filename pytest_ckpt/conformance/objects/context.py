"""The context of a check of an object store: two clients, each with connections of its own, and the effort."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.objects.session import Session

if TYPE_CHECKING:
    from pytest_ckpt.conformance.posix.client import Client


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectContext:
    """A check's surroundings.

    ``here`` is this process's client, ``other`` one in another process; ``third`` starts one more, that a check may
    end. ``share`` is the part of the full effort, 1 in an acceptance run.
    """

    here: Session
    other: Client
    third: Callable[[], Client]
    seed: int
    share: float

    def count(self, full: int, *, minimum: int = 1) -> int:
        """Return how many of ``full`` trials this run makes."""
        return max(minimum, round(full * self.share))
