"""Saves to a local tier on each of several hosts. After the loss of a host, its files come from a partner host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from tests.support.end_to_end import TINY, Run, in_every_rank
from tests.support.hosts.faults import InjectedFault
from tests.support.hosts.lab import Step, StepResult, need_hosts, on_hosts
from tests.support.hosts.storage import HONEST_FUSE

# Each host has its own /run.
TIER = "/run/ckpt-tier"
ON_EACH = tuple((host, f"mkdir -p {TIER}") for host in (1, 2, 3))
TIERED = (*TINY, "--ckpt-operations=2", "--ckpt-strategy=tiered", "--ckpt-hosts=h1:1,h2:1,h3:1", "--ckpt-ranks=3")
SUBJECT = "llama3-8b-open-3"
OWN = ("BLOCKING", "LOAD", "INTEGRITY", "TIER-ORDER", "NODE-LOSS")

# A rank that keeps the first copy it received, and so returns an old copy of the right size.
STALE = """
import sys

if "pytest_ckpt.ranks" in sys.orig_argv:
    from pytest_ckpt.ranks.scenarios import tiers

    write, kept = tiers.write_piece, {}

    def first(sink, offset, count, data, name, clock):
        old = kept.setdefault((name, offset), data[:count].copy())
        data[:count] = old
        write(sink, offset, count, data, name, clock)

    tiers.write_piece = first
"""


def required_outcomes(run: Run) -> dict[str, str]:
    return {v["id"]: v["outcome"] for v in run.document["requirements"] if v["severity"] == "required"}


@pytest.fixture(scope="module")
def results(create_home: Callable[[str], Path]) -> dict[str, StepResult]:
    """Return {name of a step: its result} for all steps. They run on three simulated hosts."""
    need_hosts(HONEST_FUSE)
    home = create_home("hosts")
    shared = home / "array" / "shared-tier"
    steps = {
        "honest": Step(options=(*TIERED, f"--ckpt-strategy=local-tier={TIER}"), before=ON_EACH),
        "stale": Step(
            options=(*TIERED, f"--ckpt-strategy=local-tier={TIER}"),
            before=ON_EACH,
            environment=in_every_rank(home, STALE),
        ),
        "shared": Step(options=(*TIERED, f"--ckpt-strategy=local-tier={shared}"), before=((1, f"mkdir -p {shared}"),)),
        "killed": Step(
            options=(*TIERED, "--ckpt-operations=6", f"--ckpt-strategy=local-tier={TIER}"),
            before=ON_EACH,
            faults=(InjectedFault(what="rank"),),
        ),
        "missing": Step(options=(*TIERED, f"--ckpt-strategy=local-tier={TIER}-1"), before=((1, f"mkdir -p {TIER}-1"),)),
    }
    return dict(zip(steps, on_hosts(home, 3, *steps.values(), storage=HONEST_FUSE), strict=True))


@pytest.mark.thorough
def test_copies_of_a_partner_come_back_when_a_host_loses_all_that_its_tier_held(results: dict[str, StepResult]) -> None:
    run = results["honest"].run
    assert {name: required_outcomes(run)[name] for name in OWN} == dict.fromkeys(OWN, "met"), run.text
    found = run.measurement(SUBJECT)["patterns"]["tiers"]
    loss = found["node_loss"]
    assert (loss["hosts"], loss["lost"], loss["partner"], loss["missing"]) == (3, "h3", "h1", 0)
    assert loss["integrity"]["bytes_checked"] == loss["integrity"]["bytes_expected"] == found["bytes"]
    # All bytes of one of three equal ranks, and no more.
    assert 0 < loss["returned_bytes"] < loss["copied_bytes"]
    assert loss["copied_bytes"] >= found["bytes"]
    assert results["honest"].left == ()
    assert main(["verify", str(run.report)]) == 0


@pytest.mark.thorough
def test_a_partner_that_kept_an_older_copy_fails_and_no_other_requirement_does(results: dict[str, StepResult]) -> None:
    run = results["stale"].run
    assert run.code == 1, run.text
    assert run.verdict("NODE-LOSS", SUBJECT)["reason"] == "wrong bytes"
    assert required_outcomes(run)["TIER-ORDER"] == "met"
    faults = run.measurement(SUBJECT)["patterns"]["tiers"]["node_loss"]["integrity"]["faults"]
    assert {fault["host"] for fault in faults} == {"h3"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("step", "expected_text"), [("shared", "hosts share the directory"), ("missing", "on every host: no file")]
)
def test_a_tier_that_hosts_share_or_lack_is_refused_before_the_first_write(
    results: dict[str, StepResult], step: str, expected_text: str
) -> None:
    run = results[step]
    assert run.code == 4, run.text
    assert expected_text in " ".join(run.text.split())
    assert run.left == ()


@pytest.mark.thorough
def test_a_run_that_lost_a_rank_names_possible_leftovers_in_the_tiers_of_other_hosts(
    results: dict[str, StepResult],
) -> None:
    left = results["killed"].run.document["left_behind"]
    assert any("may be left in the local tiers of h1, h2, h3" in sentence for sentence in left), left
    assert results["killed"].left == ()
