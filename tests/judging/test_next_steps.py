"""Every printed failure includes the recommended first step."""

from __future__ import annotations

from pytest_ckpt.facts.proofs import COLD_BASES
from pytest_ckpt.grading.catalogue import REQUIREMENTS


def test_if_cold_failed_every_method_to_prove_it_is_named() -> None:
    ways = {
        "seen": "--ckpt-drop-caches",
        "other client": "--ckpt-hosts",
        "timed canary": "--ckpt-second-mount",
        "volume": "--ckpt-client-cache",
        "declared": "",
    }
    assert set(ways) == set(COLD_BASES)
    assert all(option in REQUIREMENTS["COLD"].next_step for option in ways.values())


def test_every_requirement_has_a_first_step_for_its_failure() -> None:
    assert [name for name, r in REQUIREMENTS.items() if not r.next_step.endswith(".")] == []
