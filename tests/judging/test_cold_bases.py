"""Proofs that loads were cold (not served by a cache), for targets whose cached pages the kernel does not report.

Each proof has one of three results, with a reason: proven, unknown, or cached.
"""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.facts.proofs import COLD_BASES, CacheFacts, CanaryReads, MovedBytes
from pytest_ckpt.facts.targets import Layer, StorageStack
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.cold import BASIS_WORDS, of_canaries, of_volume, prove_cold, uncounted
from pytest_ckpt.judging.verdicts import decide
from pytest_ckpt.sizing.caches import minimum_moved
from tests.support.synthetic_measurement import LIMITS, judged, measurement
from tests.support.synthetic_patterns import failed_over, upgraded

GIB = 1 << 30
BLIND = CacheFacts(required=True, readings=(), policy="auto", method="none", probe="", resident_fraction=None,
                   detail="neither call saw the file")  # fmt: skip
SLOW, FAST = 0.5, 0.1


def canaries(saved, again, dropped, elsewhere=None, count=10, behind=None, **more):
    """Return the timed reads of ``count`` parts of a file. The times vary slightly between the parts.

    Before the cache drop, ``saved`` are the seconds of the first read and ``again`` those of the second read. After the
    drop, ``dropped`` are the seconds of the first read and ``behind`` those of the second read. ``elsewhere`` are the
    seconds of a read by another client.
    """
    kinds = {"first_read": saved, "reread": again, "dropped_read": dropped, "other_client": elsewhere}
    kinds["dropped_reread"] = behind or min(again, dropped)
    parts = {
        name: tuple(seconds * (1 + 0.01 * (n % 3)) for n in range(count)) for name, seconds in kinds.items() if seconds
    }
    client = {"client": "host n2"} if elsewhere else {}
    return CanaryReads(host="n1", bytes=64 << 20, **{f"{k}_seconds": v for k, v in parts.items()}, **client, **more)


def measured(*reads, **more):
    return measurement(resident=None, cache=dataclasses.replace(BLIND, canaries=reads, **more))


# The times of the four reads, the finding, and words of its sentence.
CASES = {
    "the drop works": (canaries(SLOW, FAST, SLOW), "proven", "the drop works"),
    "the drop works, the storage has warmed up": (canaries(2 * SLOW, FAST, SLOW), "proven", "the drop works"),
    "no cache anywhere": (canaries(SLOW, SLOW, SLOW, SLOW), "proven", "no cache of this client helps"),
    "warm storage, no client cache": (canaries(FAST, FAST, FAST, FAST), "proven", "no cache of this client helps"),
    "storage warms up, no client cache": (canaries(SLOW, FAST, FAST, FAST), "proven", "no cache of this client helps"),
    "a cache of saved and loaded files survives": (canaries(FAST, FAST, FAST, SLOW), "cached", "survived the drop"),
    "a cache of loaded files survives": (canaries(SLOW, FAST, FAST, SLOW), "cached", "survived the drop"),
    "a cache of saved files survives": (canaries(FAST, FAST, SLOW, SLOW), "cached", "survived the drop"),
    "a cache of saved files survives, and nobody else reads": (canaries(FAST, FAST, SLOW), "unknown", "cannot be "
    "distinguished"),
    "all is fast, and nobody else reads": (canaries(FAST, FAST, FAST), "unknown", "--ckpt-second-mount"),
    "all is slow, and nobody else reads": (canaries(SLOW, SLOW, SLOW), "unknown", "--ckpt-second-mount"),
    "read again it is faster, dropped or not": (canaries(SLOW, FAST, FAST), "unknown", "cannot be distinguished"),
    "this host caches below": (
        canaries(SLOW, SLOW, SLOW, SLOW, cache_growth_bytes=600 << 20), "unknown", "below the target"),
    "the other host is slow by itself": (
        canaries(FAST, FAST, FAST, SLOW, client_own_seconds=(SLOW,) * 10), "unknown", "cannot be distinguished"),
    "the other host is fast with its own": (
        canaries(FAST, FAST, FAST, SLOW, client_own_seconds=(FAST,) * 10), "cached", "survived the drop"),
    "the other host is fast with its own, of which it has more parts": (
        canaries(FAST, FAST, FAST, SLOW, client_own_seconds=(FAST,) * 16), "cached", "survived the drop"),
    "the second mount is slow, and nothing is cached": (
        canaries(FAST, FAST, FAST, SLOW, client_own_seconds=(SLOW,) * 10), "unknown", "cannot be distinguished"),
    "the drop works, and the second mount is slow": (
        canaries(0.25, 0.02, 0.23, 0.35, client_own_seconds=(0.02,) * 10), "proven", "the drop works"),
    "a cache survives, and is a little faster the second time": (
        canaries(0.069, 0.05, 0.064, 1.4, client_own_seconds=(0.04,) * 10), "cached", "survived the drop"),
    "a cache survives, is a little faster the second time, and nobody else reads": (
        canaries(0.069, 0.05, 0.064), "unknown", "cannot be distinguished"),
    "too few": (canaries(SLOW, FAST, SLOW, count=9), "unknown", "only 9 of 10"),
    "none": (CanaryReads(host="n1", bytes=64 << 20, not_read_reason="they are small"), "unknown", "are small"),
}  # fmt: skip


@pytest.mark.parametrize(("reads", "found", "words"), CASES.values(), ids=CASES)
def test_timed_reads_prove_accuse_or_leave_it_open(reads, found, words):
    proof = of_canaries(reads)
    assert (proof.found, proof.basis) == (found, "timed canary" if found == "proven" else None)
    assert words in proof.because


# Times of two reads of the judged checkpoints after a drop, and the finding. The canaries alone would be a proof.
JUDGED = {
    "as slow as the canaries": (SLOW, FAST, "proven"),
    "as slow as the canaries, and nothing is cached": (SLOW, SLOW, "proven"),
    "a cache keeps them": (FAST, FAST, "unknown"),
    "a cache keeps them, and is a little faster the second time": (FAST, 0.7 * FAST, "unknown"),
    "they lie where reading is faster, and the drop works": (SLOW / 2, FAST / 2, "proven"),
}


@pytest.mark.parametrize("proven", ["the drop works", "no cache anywhere"])
@pytest.mark.parametrize(("judged", "behind", "found"), JUDGED.values(), ids=JUDGED)
def test_a_cache_that_keeps_what_is_judged_and_knows_the_canaries_is_no_proof(proven, judged, behind, found):
    reads, _, _ = CASES[proven]
    parts = {
        name: tuple(seconds * (1 + 0.01 * (n % 3)) for n in range(10))
        for name, seconds in {"judged_seconds": judged, "judged_reread_seconds": behind}.items()
    }
    proof = of_canaries(dataclasses.replace(reads, **parts))
    assert (proof.found, proof.basis) == (found, "timed canary" if found == "proven" else None)
    assert found == "proven" or "a cache may contain only some of these parts" in proof.because


@pytest.mark.parametrize(("reads", "found", "words"), CASES.values(), ids=CASES)
def test_the_verdict_explains_what_the_timed_reads_show(reads, found, words):
    verdict = judged("COLD", measured(reads))
    outcome, reason = {"proven": ("met", "met"), "cached": ("failed", "cached"), "unknown": ("not run", "unproven")}[
        found
    ]
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
    assert verdict.basis == ("timed canary" if found == "proven" else "")
    assert words in verdict.because


@pytest.mark.parametrize(("reads", "found", "words"), CASES.values(), ids=CASES)
def test_an_older_report_that_has_no_second_pair_keeps_its_verdict(reads, found, words):
    proof = of_canaries(dataclasses.replace(reads, dropped_reread_seconds=()))
    assert (proof.found, words in proof.because) == (found, True)
    assert reads.not_read_reason or len(reads.first_read_seconds) < 10 or proof.because != of_canaries(reads).because


# Factor by which other work on the host slows some of the reads.
BUSY = 5
BURSTS = {
    "in the second mount's first reads more than those behind them": (
        canaries(1.26, 1.25, 1.29, 5.4, behind=1.22, client_own_seconds=(4.0,) * 10), "unknown",
        "only on the other client"),
    "after the drop, a cache of loaded files survives": (
        canaries(SLOW, FAST, FAST * BUSY, behind=FAST * BUSY), "unknown", "cannot be distinguished"),
    "in every pair, and the drop works": (
        canaries(SLOW * BUSY, FAST * BUSY, SLOW * BUSY, behind=FAST * BUSY), "proven", "the drop works"),
    "in the first pair and after the drop, and the cache survives": (
        canaries(FAST * BUSY, FAST, FAST * BUSY, behind=FAST * BUSY), "unknown", "cannot be distinguished"),
    "before the drop, and the drop works": (
        canaries(SLOW * BUSY, FAST * BUSY, SLOW, behind=FAST), "unknown", "cannot be distinguished"),
    "after the drop, and the drop works": (
        canaries(SLOW, FAST, SLOW * BUSY, behind=FAST * BUSY), "unknown", "cannot be distinguished"),
    "in all reads of this client, whose cache survives": (
        canaries(*(FAST * BUSY,) * 3, SLOW, client_own_seconds=(FAST,) * 10), "unknown", "only on the other client"),
    "in all reads of this client, and the second mount caches nothing": (
        canaries(*(SLOW * BUSY,) * 3, SLOW, client_own_seconds=(SLOW,) * 10), "proven", "no cache of this client"),
}  # fmt: skip


@pytest.mark.parametrize(("reads", "found", "words"), BURSTS.values(), ids=BURSTS)
def test_other_work_between_the_reads_is_no_drop_that_works(reads, found, words):
    proof = of_canaries(reads)
    assert (proof.found, words in proof.because) == (found, True), proof


def test_a_single_pair_of_reads_would_wrongly_prove_cold():
    burst, _, _ = BURSTS["after the drop, a cache of loaded files survives"]
    assert of_canaries(dataclasses.replace(burst, dropped_reread_seconds=())).found == "proven"
    assert judged("COLD", measured(burst)).outcome == "not run"


loads = st.lists(st.floats(1, 50), min_size=10, max_size=16)


@given(st.data(), loads)
def test_reads_served_by_a_cache_after_the_drop_are_never_proven_cold_under_any_load(data, before):
    """If a cache serves both reads after a drop, timed reads prove nothing, whatever the load on the host is.

    The load on the host changes little between the two reads of a part, so their times differ by at most a tenth.
    """
    after = data.draw(st.lists(st.floats(1, 50), min_size=len(before), max_size=len(before)))
    uneven = data.draw(st.lists(st.floats(0.9, 1.1), min_size=len(before), max_size=len(before)))
    first = data.draw(st.sampled_from((SLOW, FAST)))
    reads = CanaryReads(
        host="n1",
        bytes=64 << 20,
        first_read_seconds=tuple(first * load for load in before),
        reread_seconds=tuple(FAST * load for load in before),
        dropped_read_seconds=tuple(FAST * load for load in after),
        dropped_reread_seconds=tuple(FAST * load * share for load, share in zip(after, uneven, strict=True)),
    )
    assert of_canaries(reads).found == "unknown"


@given(st.floats(0.001, 10), st.floats(0.001, 10), st.floats(0.01, 0.45), st.integers(10, 16))
def test_an_honest_drop_on_a_quiet_host_is_proven(slow, warmer, share, count):
    """On a quiet host, timed reads prove that a drop works, even if the storage becomes faster between the reads."""
    first, later = max(slow, warmer), min(slow, warmer)
    fast = share * later
    assert of_canaries(canaries(first, fast, later, count=count)).found == "proven"


times = st.floats(0.001, 100)


@given(st.lists(st.tuples(times, times, times, times), min_size=10, max_size=16))
def test_only_a_client_that_is_faster_than_the_other_client_counts_as_cached(rows):
    saved, again, dropped, elsewhere = map(tuple, zip(*rows, strict=True))
    reads = CanaryReads(
        host="n1", bytes=1, first_read_seconds=saved, reread_seconds=again, dropped_read_seconds=dropped,
                        other_client_seconds=elsewhere, client="n2")  # fmt: skip
    found = of_canaries(reads).found
    if all(a >= b for a, b in zip((*saved, *dropped), elsewhere * 2, strict=True)):
        assert found != "cached"
    if all(a < b / 2 and c > 0.9 * a for a, b, c in zip(saved, elsewhere, again, strict=True)):
        assert found == "cached"


def test_one_unproven_host_leaves_cold_not_run_and_one_cached_host_fails_it():
    good, open_, bad = canaries(SLOW, FAST, SLOW), canaries(FAST, FAST, FAST), canaries(FAST, FAST, FAST, SLOW)
    assert judged("COLD", measured(good, good)).outcome == "met"
    assert judged("COLD", measured(good, open_)).outcome == "not run"
    assert judged("COLD", measured(good, open_, bad)).outcome == "failed"
    assert judged("COLD", measured()).outcome == "not run"


def test_other_hosts_prove_it_without_any_timing():
    verdict = judged("COLD", measured(by_other_hosts=True))
    assert (verdict.outcome, verdict.basis) == ("met", "other client")
    assert "by a host that had neither written nor read it" in verdict.because


def test_the_moved_volume_counts_only_if_the_disk_caches_were_declared():
    moved = (MovedBytes(host="n1", memory_bytes=16 * GIB, minimum_bytes=60 * GIB),)
    for stated, proven in ((0, True), (4 * GIB, True), (5 * GIB, False), (None, False)):
        verdict = judged("COLD", measured(moved=moved, client_cache_bytes=stated))
        assert (verdict.outcome, verdict.basis) == (("met", "volume") if proven else ("not run", ""))
    assert "--ckpt-client-cache" in judged("COLD", measured(moved=moved)).because
    # Of several hosts, the one that moved the least relative to its memory counts.
    small = MovedBytes(host="n2", memory_bytes=32 * GIB, minimum_bytes=60 * GIB)
    assert of_volume((*moved, small), 0).found == "unknown"


def test_timed_reads_find_a_cache_that_is_larger_than_declared():
    moved = (MovedBytes(host="n1", memory_bytes=GIB, minimum_bytes=60 * GIB),)
    verdict = judged("COLD", measured(canaries(FAST, FAST, FAST, SLOW), moved=moved, client_cache_bytes=0))
    assert (verdict.outcome, verdict.reason) == ("failed", "cached")


def test_a_load_that_is_missing_is_not_proven_cold():
    short = measurement(loads=(1.0,), resident=None, cache=dataclasses.replace(BLIND, by_other_hosts=True))
    assert judged("COLD", short).outcome == "not run"


@pytest.mark.parametrize("basis", ["other client", "timed canary", "volume"])
def test_gates_take_the_proofs_that_they_name(basis):
    facts = {
        "other client": {"by_other_hosts": True},
        "timed canary": {"canaries": (canaries(SLOW, FAST, SLOW),)},
        "volume": {"moved": (MovedBytes(host="n", memory_bytes=1, minimum_bytes=9),), "client_cache_bytes": 0},
    }
    seen = measurement(resident=None, cache=dataclasses.replace(BLIND, **facts[basis]))
    shared = built_in("posix-shared")
    assert shared.cold_bases == tuple(COLD_BASES)
    assert decide(REQUIREMENTS["COLD"], seen, LIMITS, shared).outcome == "met"
    strict = dataclasses.replace(shared, cold_bases=tuple(b for b in COLD_BASES if b != basis))
    verdict = decide(REQUIREMENTS["COLD"], seen, LIMITS, strict)
    assert (verdict.outcome, verdict.reason) == ("not run", "unproven")
    assert f"does not accept this proof ({basis})" in verdict.because


def test_every_basis_has_its_words():
    assert set(BASIS_WORDS) == set(COLD_BASES)
    assert judged("COLD", measurement()).basis == "seen"
    assert prove_cold(BLIND).found == "unknown"


@pytest.mark.parametrize(
    ("saves", "loads", "minimum"),
    [([1, 2, 3], [1, 2, 3], 2), ([1], [1], 0), ([1, 2], [1, 2, 1, 2], 1), ([1, 2, 3], [3, 2, 1], 0), ([1, 2], [], 0)],
)
def test_bytes_between_a_save_and_its_load_count_from_the_last_access(saves, loads, minimum):
    assert minimum_moved(saves, loads) == minimum


@pytest.mark.parametrize(("name", "made"), [("FAILOVER", failed_over), ("UPGRADE", upgraded)])
def test_timed_reads_show_that_the_drop_works_during_commands_too(name, made):
    """Timed reads prove that loads in FAILOVER and UPGRADE were cold, if the gate table accepts this proof."""
    blind = made(resident_fraction=None)

    def verdict(reads, gates=None):
        cache = dataclasses.replace(BLIND, canaries=reads)
        dropped = dataclasses.replace(blind, cache=cache)
        return decide(REQUIREMENTS[name], dropped, LIMITS, gates or built_in("posix-shared"))

    works, unknown = canaries(SLOW, FAST, SLOW), canaries(FAST, FAST, FAST)
    assert (verdict((works,)).outcome, verdict((works,)).basis) == ("met", "timed canary")
    for reads in ((), (unknown,), (works, unknown)):
        assert (verdict(reads).outcome, verdict(reads).reason) == ("not run", "unproven")
    strict = dataclasses.replace(
        built_in("posix-shared"), cold_bases=tuple(b for b in COLD_BASES if b != "timed canary")
    )
    assert (verdict((works,), strict).outcome, verdict((works,), strict).reason) == ("not run", "unproven")


@pytest.mark.parametrize(("more", "basis", "words"), [
    ({}, "declared", "do not cache their reads; cached pages were not counted"),
    ({"by_other_hosts": True}, "other client", "neither written nor read it before; cached pages were not counted"),
    ({"moved": (MovedBytes(host="n1", memory_bytes=GIB, minimum_bytes=4 * GIB),), "client_cache_bytes": 0}, "volume",
     "between the save of a checkpoint and its load"),
    ({"moved": (MovedBytes(host="n1", memory_bytes=GIB, minimum_bytes=2 * GIB),), "client_cache_bytes": 0}, "declared",
     "do not cache their reads; cached pages were not counted"),
])  # fmt: skip
def test_stronger_evidence_replaces_the_declaration_of_a_target(more, basis, words):
    decision = judged("COLD", measured(is_declared_cold=True, **more))
    assert (decision.outcome, decision.basis) == ("met", basis)
    assert words in decision.because


@pytest.mark.parametrize(("gates", "outcome"), [("object", "not run"), ("object-local", "met")])
def test_the_word_of_an_object_store_is_no_proof_where_it_may_be_certified(gates, outcome):
    table = built_in(gates)
    assert (table.certifies, "declared" in table.cold_bases) == (outcome == "not run", outcome == "met")
    decided = decide(
        REQUIREMENTS["COLD"], measurement(cache=dataclasses.replace(BLIND, is_declared_cold=True)), LIMITS, table
    )
    assert (decided.outcome, decided.reason) == (outcome, "unproven" if outcome == "not run" else "met")
    elsewhere = decide(
        REQUIREMENTS["COLD"],
        measurement(cache=dataclasses.replace(BLIND, is_declared_cold=True, by_other_hosts=True)),
        LIMITS,
        table,
    )
    assert elsewhere.outcome == "met"


@pytest.mark.parametrize(("name", "made"), [("FAILOVER", failed_over), ("UPGRADE", upgraded)])
def test_a_proof_by_the_measured_loads_supports_the_declaration_during_commands(name, made):
    """If loads by other hosts support a target's declaration, FAILOVER and UPGRADE accept it in gate table ``object``.

    The target declares that its clients do not cache. Without this support, the gate table rejects the declaration.
    """
    declared = dataclasses.replace(BLIND, is_declared_cold=True)

    def verdict(cache):
        measured = dataclasses.replace(made(resident_fraction=None, is_declared_cold=True), cache=cache)
        return decide(REQUIREMENTS[name], measured, LIMITS, built_in("object"))

    assert (verdict(declared).outcome, verdict(declared).reason) == ("not run", "unproven")
    proven = verdict(dataclasses.replace(declared, by_other_hosts=True))
    assert (proven.outcome, proven.basis) == ("met", "other client")
    assert "rest on the target's declaration" in proven.detail


COUNTED = dataclasses.replace(BLIND, probe="cachestat", resident_fraction=0.0, detail="")


@pytest.mark.parametrize(
    ("kind", "cache", "expected_text"),
    [
        ("fuse.glusterfs", COUNTED, True),
        ("fuseblk", COUNTED, True),
        ("ext4", COUNTED, False),
        ("nfs4", COUNTED, False),
        # Here the verdict does not rest on a count of the kernel.
        ("fuse.sshfs", BLIND, False),
        ("fuse.glusterfs", dataclasses.replace(COUNTED, by_other_hosts=True), False),
        ("fuse.glusterfs", None, False),
        # Timed reads by another client also show what the FUSE process caches.
        ("fuse.glusterfs", dataclasses.replace(COUNTED, canaries=(canaries(SLOW, FAST, SLOW, SLOW),)), False),
        ("fuse.glusterfs", dataclasses.replace(COUNTED, canaries=(canaries(FAST, FAST, FAST),)), True),
    ],
)
def test_a_cache_in_a_fuse_process_is_reported_as_uncounted(kind, cache, expected_text):
    found = uncounted(kind, [cache])
    assert bool(found) is expected_text
    assert all(kind in sentence and "--ckpt-hosts" in sentence for sentence in found)


def test_a_cache_in_a_process_below_the_target_is_reported_as_uncounted():
    layers = (
        Layer(kind="file system", text="ext4", depth=0),
        Layer(kind="device", text="/dev/loop0", depth=1),
        Layer(kind="file", text="the file /images/a", depth=2),
        Layer(kind="process", text="fuse.sshfs of array:/images", depth=3),
    )
    cache = dataclasses.replace(COUNTED, storages=(StorageStack(host="a", layers=layers),))
    (sentence,) = uncounted("ext4", [cache, None])
    assert "The process that serves fuse.sshfs of array:/images may cache" in sentence


@pytest.mark.parametrize(
    ("reads", "outcome", "basis", "words"),
    [
        ((), "met", "seen", ""),
        ((canaries(FAST, FAST, FAST, SLOW),), "failed", "", "The kernel counts no cached pages, but"),
        ((canaries(SLOW, FAST, SLOW, SLOW),), "met", "seen", "What the kernel does not count, timed reads show"),
        ((canaries(FAST, FAST, FAST),), "met", "seen", ""),
        (
            (canaries(SLOW, FAST, SLOW, SLOW), canaries(FAST, FAST, FAST, SLOW)),
            "failed",
            "",
            "but loads did not measure",
        ),
    ],
    ids=["not timed", "a cache survives", "none survives", "not told apart", "one survives on a host of two"],
)
def test_timed_reads_refute_what_the_kernel_counts(reads, outcome, basis, words):
    cache = dataclasses.replace(COUNTED, canaries=reads)
    decision = judged("COLD", measurement(resident=0.0, cache=cache))
    assert (decision.outcome, decision.basis) == (outcome, basis)
    assert decision.reason == ("cached" if outcome == "failed" else "met")
    assert words in decision.because
