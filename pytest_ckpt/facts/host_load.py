"""The load of the hosts of ranks during a measurement, and the bounds beyond which a host is busy with other work."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ckpt.facts.bounds import CountFromOne, NotNegative, Positive, Share

OWN_OPERATIONS = "operations"
"""The span of a subject's own saves and loads."""

DATA_PAIRS = "data"
"""The span of the saves and loads of unique and of constant data. Other spans are patterns."""

MAXIMUM_STEAL = 0.05
"""The share that a hypervisor may take. Chosen by this program: as much as the smallest limit of a ratio (1.05) allows.
"""

MINIMUM_IDLE = 0.10
MAXIMUM_OTHERS = 0.25
"""If less than the first share of a host's processors was idle, others may have used the second share. Both were chosen
by this program. On a host with idle processors, other work does not delay ranks; if the ranks alone use all processors,
no other work delays them.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostLoad:
    """The use of one host's processors for ``seconds``, as shares of the time of all its ``cores``.

    ``span`` is `OWN_OPERATIONS`, `DATA_PAIRS` or the name of a pattern, and ``of`` the part of it with the highest
    load: one operation, or the whole span. ``others_share`` is the use by processes that are no ranks of this run or
    their children, and by the kernel; a storage client in user space is such a process. ``steal_share`` went to other
    virtual machines, ``idle_share`` includes waits for storage. ``load_average`` is the kernel's average of one minute
    at the end, the highest of the span; it also counts processes that wait for storage, so no bound uses it.
    """

    host: str
    span: str
    of: str
    seconds: Positive
    cores: CountFromOne
    idle_share: Share
    others_share: Share
    steal_share: Share
    load_average: NotNegative

    @property
    def is_busy(self) -> bool:
        """Whether other work may have delayed the ranks of the host."""
        is_full = self.idle_share < MINIMUM_IDLE
        return self.steal_share >= MAXIMUM_STEAL or (is_full and self.taken_share >= MAXIMUM_OTHERS)

    @property
    def taken_share(self) -> float:
        """The share of the processors' time that the ranks could not have used."""
        return self.others_share + self.steal_share
