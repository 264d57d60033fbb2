"""Faults that only a complete run detects, and the requirements that must fail with each fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.targets.misbehaving import FAULTS


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedRow:
    """A fault that only a complete run detects, and the requirements that must fail with it.

    If ``fault`` is empty, the target is healthy.
    """

    title: str
    fault: str
    fails: frozenset[str]
    expected_text: dict[str, str] = field(default_factory=dict)
    may_fail: frozenset[str] = frozenset()
    parameters: dict[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    # The smallest model; its limits are met at any load of the machine.
    cluster: int = 1
    # On a mount whose cache the kernel does not show, with a second client.
    without_gauge: bool = False

    @property
    def sentence(self) -> str:
        """The description of the fault."""
        return FAULTS[self.fault].sentence if self.fault else "Nothing."


EVENLY = frozenset(("STRAGGLER", "REPEAT"))  # advisory: times vary on a machine with other work

# One rank whose checkpoint has ten parts of 64 MiB.
OF_CANARIES = ("--ckpt-ranks=1", "--ckpt-scale=1/148", "--ckpt-operations=1", "--ckpt-engine=io-size=1MiB,depth=2")

# A fixed depth, because the writes of the ramp that finds the depth would meet the fault first, or fill the cache.
OF_FIXED_DEPTH = ("--ckpt-engine=depth=2",)

OF_SPEED = (
    SpeedRow(title="honest", fault="", fails=frozenset(), may_fail=EVENLY),
    SpeedRow(
        title="slow",
        fault="slow",
        parameters={"bytes_per_second": 10e6},
        cluster=256,
        fails=frozenset(("SAVE", "LOAD")),
        expected_text={"SAVE": "limit"},
        may_fail=EVENLY,
    ),
    SpeedRow(
        title="writes trickle",
        fault="writes trickle",
        options=("--ckpt-engine=torch", "--ckpt-io-timeout=3s"),
        cluster=16_000,
        # With its page cache, the kernel itself would continue with the rest of a short write.
        without_gauge=True,
        fails=frozenset(("SAVE",)),
        expected_text={"SAVE": "was far too slow"},
    ),
    SpeedRow(
        title="slow file",
        fault="slow file",
        parameters={"path": "*rank_2_*", "seconds": 0.02},
        options=("--ckpt-ranks=4",),
        fails=frozenset(("STRAGGLER",)),
        expected_text={"STRAGGLER": "rank 2"},
        may_fail=frozenset(("REPEAT", "SAVE", "LOAD")),
    ),
    SpeedRow(
        title="fast for duplicate data",
        fault="fast for duplicate data",
        parameters={"bytes_per_second": 20e6},
        options=("--ckpt-suite=data-pairs=1",),
        fails=frozenset(("DATA",)),
        expected_text={"DATA": "constant"},
        may_fail=EVENLY | {"SAVE"},
    ),
    SpeedRow(
        title="fast when cached",
        fault="fast when cached",
        parameters={"bytes_per_second": 20e6, "cache_bytes": 17 << 20, "takes_reads": False},
        options=("--ckpt-operations=3", *OF_FIXED_DEPTH),
        fails=frozenset(("REPEAT",)),
        expected_text={"REPEAT": "a cache beyond the client may have served their reads"},
        may_fail=EVENLY,
    ),
    SpeedRow(
        title="the answer of rename is lost",
        fault="the answer of rename is lost",
        options=OF_FIXED_DEPTH,
        fails=frozenset(("SAVE",)),
        expected_text={"SAVE": "commit of checkpoint-0001: EIO"},
        may_fail=EVENLY,
    ),
    SpeedRow(
        title="EIO in unlink",
        fault="EIO in unlink",
        parameters={"path": "*/metadata-*/group-*"},
        options=("--ckpt-suite=performance,metadata:files=200,directories=2",),
        fails=frozenset(("METADATA",)),
        expected_text={"METADATA": "unlink of group-0000/directory-"},
        may_fail=EVENLY,
    ),
    SpeedRow(
        title="client cache survives the drop",
        fault="client cache survives the drop",
        options=OF_CANARIES,
        without_gauge=True,
        fails=frozenset(("COLD",)),
        expected_text={"COLD": "a cache of the client survived the drop"},
        may_fail=EVENLY,
    ),
)
