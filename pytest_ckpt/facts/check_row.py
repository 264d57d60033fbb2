"""What is known of one check of behaviour: one row of the tables of checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Room = Literal["posix", "objects"]
Need = Literal["", "second client", "power cut", "small folder"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One subject of one requirement.

    ``code`` is ``module:function`` below the ``checks`` of its ``room`` in ``pytest_ckpt.conformance``: ``posix`` for
    mounted file systems, ``objects`` for object stores; a function of (the room's context, Findings).
    ``needs`` is what a run must have been given for it; ``relies`` says which software counts on it; ``how`` what is
    done, in one sentence for the documentation. ``limit`` is the default limit of the figure that the check measures,
    in ``unit``.
    """

    requirement: str
    subject: str
    code: str
    relies: str
    how: str
    room: Room = "posix"
    needs: Need = ""
    limit: float | None = None
    unit: str = ""

    @property
    def name(self) -> str:
        """How the check is called on a command line and in files."""
        return f"{self.requirement}.{self.subject}"

    @property
    def is_timed(self) -> bool:
        """Whether other work beside it would change its figure."""
        return self.limit is not None and self.needs == ""
