"""Saves to a local tier: which of them are drained to the target, and what was seen of both tiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.facts.proofs import Integrity

Tier = Literal["", "local", "target"]
"""Where a checkpoint is taken from; empty: no whole one was found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrainRule:
    """Every ``every``-th save is drained to the target; ``target_share`` of failures leave nothing but the target."""

    every: int
    target_share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TierRestore:
    """A restore of the newest checkpoint that is whole on all ranks: which it should be, and which it was.

    ``integrity`` is None where no checkpoint was taken, or another one than it should be: then none was loaded.
    """

    expected_tier: Tier
    expected: int
    tier: Tier
    number: int
    seconds: float
    integrity: Integrity | None

    @property
    def is_right(self) -> bool:
        """Whether the checkpoint was taken that should be."""
        return (self.tier, self.number) == (self.expected_tier, self.expected)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLoss:
    """Host ``lost`` lost all that its local tier held; copies that ``partner`` held came back, and all ranks loaded.

    ``copied_bytes`` of files went to partners over the network of the ranks when a checkpoint was saved, in
    ``copy_seconds``; ``returned_bytes`` came back in ``return_seconds``. ``missing`` are files whose copies were no
    longer there: then nothing was loaded, and ``integrity`` is None.
    """

    hosts: int
    lost: str
    partner: str
    copied_bytes: int
    copy_seconds: float
    returned_bytes: int
    return_seconds: float
    load_seconds: float
    missing: int
    integrity: Integrity | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiers:
    """Saves of ``bytes`` to the local tier, alone and beside a drain, in turns; seconds of these, and of the drains.

    Then two restores: ``whole``, when the newest checkpoint is in the local tier alone, and ``torn``, when the files of
    one rank are missing there. ``node_loss`` is None where the ranks are on one host.
    """

    bytes: int
    alone_seconds: tuple[float, ...]
    beside_seconds: tuple[float, ...]
    drain_seconds: tuple[float, ...]
    whole: TierRestore
    torn: TierRestore
    node_loss: NodeLoss | None = None
