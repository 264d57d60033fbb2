"""Deltas (saves of only the changed pages): which saves are deltas, and which pages a delta contains."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.sizing.deltas import OF_CHAIN, PAGE_BYTES, DeltaRule, index_bytes
from pytest_ckpt.sizing.models import RankLayout, ShardFile, Tensor, layout

RULES = st.builds(
    DeltaRule,
    full_every=st.integers(2, 12),
    changed=st.floats(0.01, 0.99),
    operations=st.integers(1, 40),
)
SHARDS = st.lists(st.integers(1, 300_000), min_size=1, max_size=5).map(
    lambda counts: RankLayout(
        rank=1,
        files=(
            ShardFile(
                name="a.pt",
                tensors=tuple(Tensor(name=f"t{n}", dtype="float16", elements=c) for n, c in enumerate(counts)),
            ),
        ),
    )
)
TEN = DeltaRule(full_every=10, changed=0.1, operations=10)


@given(rule=RULES, number=st.integers(1, 300))
def test_a_chain_begins_with_a_full_save_and_ends_with_the_checkpoint(rule: DeltaRule, number: int) -> None:
    chain = rule.chain(number)
    assert chain == tuple(range(chain[0], number + 1))
    assert not rule.is_delta(chain[0])
    assert all(rule.is_delta(each) for each in chain[1:])
    assert len(chain) <= max(rule.full_every, len(rule.surviving_chain))


def test_every_tenth_is_full_and_those_beside_the_subject_s_own_too() -> None:
    rule = DeltaRule(full_every=10, changed=0.1, operations=25)
    own = [n for n in range(1, 26) if not rule.is_delta(n)]
    assert own == [1, 11, 21]
    assert rule.chain(20) == tuple(range(11, 21))
    assert not any(rule.is_delta(n) for n in range(26, 25 + OF_CHAIN))
    assert rule.surviving_chain == (153, 154, 155)
    assert rule.chain(155) == rule.surviving_chain
    assert rule.deltas == 9


@given(rule=RULES, shard=SHARDS, number=st.integers(2, 300))
def test_runs_are_apart_within_their_tensors_and_add_up(rule: DeltaRule, shard: RankLayout, number: int) -> None:
    runs = list(rule.runs(shard, number))
    sizes = [tensor.bytes for file in shard.files for tensor in file.tensors]
    seen = set()
    for run in runs:
        pages = range(run.page, run.page + run.pages)
        assert not seen & {(run.tensor, page) for page in pages}
        seen |= {(run.tensor, page) for page in pages}
        assert run.bytes == min(sizes[run.tensor], pages.stop * PAGE_BYTES) - run.page * PAGE_BYTES
        assert 0 < run.bytes <= run.pages * PAGE_BYTES
    assert rule.delta_bytes(shard, number) == sum(run.bytes for run in runs)
    assert rule.file_bytes(shard, number) == index_bytes(len(runs)) + len(seen) * PAGE_BYTES
    assert rule.file_bytes(shard, number) <= rule.largest_file_bytes(shard)


@given(rule=RULES, shard=SHARDS, number=st.integers(2, 300))
def test_the_share_is_the_one_that_was_requested(rule: DeltaRule, shard: RankLayout, number: int) -> None:
    pages = sum(-(-tensor.bytes // PAGE_BYTES) for file in shard.files for tensor in file.tensors)
    changed = sum(run.pages for run in rule.runs(shard, number))
    width = max(1, round(100 * rule.changed))
    assert pages // 100 * width <= changed <= -(-pages // 100) * width


def test_consecutive_deltas_contain_different_pages() -> None:
    shard = layout("llama3-8b", mode="full", scale=0.01).rank(0)
    first, second = ({(r.tensor, r.page) for r in TEN.runs(shard, n)} for n in (2, 3))
    assert first
    assert not first & second


def test_bytes_of_a_layout_are_those_of_its_ranks() -> None:
    whole = layout("llama3-8b", mode="full", scale=0.001)
    assert TEN.save_bytes(whole, 1) == whole.bytes
    delta = TEN.save_bytes(whole, 2)
    assert 0.09 < delta / whole.bytes < 0.11
    assert TEN.load_bytes(whole, 3) == whole.bytes + delta + TEN.save_bytes(whole, 3)
