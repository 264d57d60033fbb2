"""Which lines of other lists of requirements ask for the same as ours, so that a buyer finds them. Pure.

NVIDIA's are those of its requirements for AI clouds (docs.nvidia.com/dsx, storage requirements) and of the tests that
go with them; IO500's are its rules for submissions. A line stands here where whoever meets ours meets it; lines that
ask for other things (quota, CSI, audit, encryption) have no match.
"""

from __future__ import annotations

from collections.abc import Mapping

ALSO_KNOWN_AS: Mapping[str, tuple[str, ...]] = {
    # "Needed throughput" has no number there; ours is derived from the cluster.
    "SAVE": ("NVIDIA HSS02",),
    "LOAD": ("NVIDIA HSS02",),
    "DURABLE-CALLS": ("IO500 rule 6",),
    "DATA": ("IO500 rule 7",),
    "VISIBLE": ("NVIDIA N-011", "IO500 rule 2"),
    "STALE": ("NVIDIA HSS17",),
    "NAMES": ("NVIDIA N-013a",),
    "CAPABILITIES": ("NVIDIA HSS14 (check flock)",),
    "FAILOVER": ("NVIDIA HSS16",),
    "UPGRADE": ("NVIDIA HSS05",),
}
"""From our ids to theirs."""
