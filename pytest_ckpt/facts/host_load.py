"""The CPU load of the ranks' hosts during a measurement, and the limits above which a host is busy with other work."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ckpt.facts.bounds import CountFromOne, NotNegative, Positive, Share

OWN_OPERATIONS = "operations"
"""The span name of a subject's own saves and loads."""

DATA_PAIRS = "data"
"""The span name of the saves and loads with unique and with constant data. Other spans have the name of a pattern."""

MAXIMUM_STEAL = 0.05
"""A host is busy if a hypervisor took at least this share of the processors' time for other virtual machines.

This program chose the value. The smallest limit of a ratio of times is 1.05, and a larger loss of processor time may
lengthen a time by more than that.
"""

MINIMUM_IDLE = 0.10
MAXIMUM_OTHERS = 0.25
"""A host is also busy if its processors were idle for less than the share `MINIMUM_IDLE` of their time, and other
processes and other virtual machines used at least the share `MAXIMUM_OTHERS`.

This program chose both values. Other work delays ranks only if no processors are idle, and if it uses processors
itself.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostLoad:
    """The use of one host's processors for ``seconds``, as shares of the time of all its ``cores``.

    - ``span``: the part of the measurement: `OWN_OPERATIONS`, `DATA_PAIRS` or the name of a pattern.
    - ``of``: the operation with the highest load in the span. If the load of the whole span was higher, ``of`` is the
      whole span. The shares and ``seconds`` are for ``of``.
    - ``idle_share``: idle time, including waits for storage.
    - ``others_share``: the time of the kernel and of all processes except the ranks and their children. A storage
      client in user space is included.
    - ``steal_share``: time that a hypervisor gave to other virtual machines.
    - ``load_average``: the highest one-minute load average of the span. This value is only reported, because it also
      counts processes that wait for storage.
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
        """Whether other work may have delayed the ranks on this host."""
        is_full = self.idle_share < MINIMUM_IDLE
        return self.steal_share >= MAXIMUM_STEAL or (is_full and self.taken_share >= MAXIMUM_OTHERS)

    @property
    def taken_share(self) -> float:
        """The share of the processors' time that the kernel, other processes and other virtual machines used."""
        return self.others_share + self.steal_share
