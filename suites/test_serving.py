"""Weights alone: how serving replicas load them, and how one client brings them into files of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[[str], None]


@pytest.mark.requirement("MODEL-LOAD")
def test_serving_replicas_load_a_model_in_time(subject: str, judge: Judge) -> None:
    """Replicas of a serving engine have loaded a model's weights within the limit, all at once, from cold caches.

    The weights alone are bf16, 2 bytes a parameter, in files of at most 5 GB. Each replica reads all of them, each of
    its ranks a part of every file: once by reads, once from mappings of the files, each cold and at once again warm.
    The figure is the slowest cold load; every byte is compared. Advisory: it is no part of training.
    """
    judge(subject)


@pytest.mark.requirement("CONSOLIDATE")
def test_one_client_consolidates_the_weights_in_time(subject: str, judge: Judge) -> None:
    """One client reads the weights that all ranks wrote, writes them again, durable, and is done within the limit.

    So libraries do that bring a distributed checkpoint into files that others can load: rank 0 reads every shard and
    rewrites it while the other ranks wait. Caches are dropped before; every byte of the copy is compared.
    """
    judge(subject)
