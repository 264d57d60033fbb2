"""Loads by a number of ranks that differs from the number of saving ranks.

Every saved byte is read once, or a reason states why such a load is impossible.
"""

from __future__ import annotations

import pytest

from pytest_ckpt.facts.engines import MemoryRule
from pytest_ckpt.sizing.models import ITEM_BYTES, layout
from pytest_ckpt.sizing.resharding import ranks_of, reason_without_ranks, resharded

SCALE = 1e-5
NO_MEMORY = MemoryRule(process_bytes=0)


@pytest.mark.parametrize(
    ("model", "saved_by", "count"),
    [
        ("llama3-8b", 1, 2), ("llama3-8b", 2, 4), ("llama3-8b", 2, 1), ("llama3-8b", 3, 1), ("llama3-8b", 5, 2),
        ("llama3-8b", 8, 4), ("llama3-70b", 8, 16), ("llama3-70b", 16, 8),
    ],
)  # fmt: skip
def test_every_byte_that_was_saved_is_loaded_by_exactly_one_rank(model: str, saved_by: int, count: int) -> None:
    shards = layout(model, mode="open", processes=saved_by, scale=SCALE)
    loaded: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for tensor in resharded(shards, count):
        for rank in range(count):
            rows, columns = tensor.shape_of(rank)
            parts = list(tensor.parts_of(rank))
            assert len(parts) == rows
            for part in parts:
                assert part.stop - part.start == columns * ITEM_BYTES[tensor.dtype]
                loaded.setdefault((part.rank, part.number), []).append((part.start, part.stop))
    saved = {
        (shard.rank, number): tensor.bytes
        for shard in shards.ranks()
        for number, tensor in enumerate(tensor for file in shard.files for tensor in file.tensors)
    }
    assert set(loaded) == set(saved)
    for place, spans in loaded.items():
        ends = [0, *(stop for _, stop in sorted(spans))]
        assert [start for start, _ in sorted(spans)] == ends[:-1]
        assert ends[-1] == saved[place]


def test_work_is_spread_over_all_ranks() -> None:
    shards = layout("llama3-8b", mode="open", processes=4, scale=1e-4)
    for count in (2, 8):
        sizes = [
            sum(part.stop - part.start for tensor in resharded(shards, count) for part in tensor.parts_of(rank))
            for rank in range(count)
        ]
        assert sum(sizes) == shards.bytes
        assert max(sizes) < 1.1 * shards.bytes / count


def test_the_numbers_of_ranks() -> None:
    assert [ranks_of("doubled", n) for n in (1, 2, 3)] == [2, 4, 6]
    assert [ranks_of("halved", n) for n in (1, 2, 3)] == [0, 1, 1]


def test_one_rank_is_not_halved() -> None:
    alone = layout("llama3-8b", mode="open", processes=1, scale=SCALE)
    assert "cannot be halved" in reason_without_ranks("halved", alone, NO_MEMORY, slots=None, available_bytes=None)
    assert reason_without_ranks("doubled", alone, NO_MEMORY, slots=None, available_bytes=None) == ""


def test_slots_refuse_only_if_the_launcher_keeps_to_them() -> None:
    shards = layout("llama3-8b", mode="open", processes=8, scale=SCALE)
    why = reason_without_ranks("doubled", shards, NO_MEMORY, slots=8, available_bytes=None)
    assert why.startswith("16 ranks need as many slots, and --ckpt-hosts has 8")
    assert reason_without_ranks("doubled", shards, NO_MEMORY, slots=16, available_bytes=None) == ""
    assert reason_without_ranks("halved", shards, NO_MEMORY, slots=8, available_bytes=None) == ""
    assert reason_without_ranks("doubled", shards, NO_MEMORY, slots=None, available_bytes=None) == ""


def test_memory_refuses_twice_as_many_ranks_before_half_as_many() -> None:
    shards = layout("llama3-8b", mode="open", processes=8, scale=SCALE)
    memory = MemoryRule(process_bytes=450_000_000, state_share=1.3)
    why = reason_without_ranks("doubled", shards, memory, slots=None, available_bytes=7_000_000_000)
    assert why.startswith("16 ranks need ")
    assert "of memory on this host" in why
    assert reason_without_ranks("halved", shards, memory, slots=None, available_bytes=7_000_000_000) == ""
