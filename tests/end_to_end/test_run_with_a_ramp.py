"""The depth (concurrent requests) of the engine ``stream`` comes from a ramp, an option, or the default.

The report contains the depth and its origin.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main as command
from pytest_ckpt.sizing.ramp import OF_RAMP
from tests.support.end_to_end import REQUIRED, TINY, Runner
from tests.support.hidden_hosts import namespace_launcher
from tests.support.machine import need, need_fuse
from tests.support.targets.misbehaving import misbehaving

# The run itself has two saves and loads, so its first scratch checkpoint has this name.
SCRATCH = f"*/checkpoint-{2 + OF_RAMP:04d}*"
RAMP = (*TINY, "--ckpt-scale=1/1000", "--ckpt-engine=stream:io-size=64KiB")


def test_without_a_number_a_ramp_finds_it_before_the_first_save(runner: Runner) -> None:
    run = runner.run(*RAMP)
    assert run.code == 0, run.text
    assert run.outcomes() == dict.fromkeys(REQUIRED, "met")
    measurement = run.measurement()
    depth = measurement["depth"]
    assert depth["origin"] == "ramp"
    tried = [step["depth"] for step in depth["steps"]]
    # On a busy machine the time may end before the last depths are tried.
    assert tried == [1, 2, 4, 8, 16][-len(tried) :]
    assert len(tried) == 5 or "ended after" in depth["because"]
    assert depth["requests"] in tried
    assert all(s["save_bytes_per_second"] > 0 and s["load_bytes_per_second"] > 0 for s in depth["steps"])
    # The depth is in the report, on the certificate and in the terminal.
    found = f"depth {depth['requests']}, found by a ramp"
    assert measurement["engine_facts"]["depth"].startswith(found)
    assert f"{depth['requests']} in flight for each rank" in measurement["engine_facts"]["requests"]
    assert found in (run.report / "certificate.html").read_text()
    assert found in " ".join(run.text.split())
    # Scratch saves and loads do not count as saves and loads, and their files are removed.
    assert [len(run.operations(kind)) for kind in ("save", "load")] == [2, 2]
    assert measurement["durability"]["saves"] == 2
    assert measurement["stages"]["ramp"] > 0
    assert run.left_on_target == []
    assert command(["verify", str(run.report)]) == 0
    assert "--ckpt-engine=stream:depth" not in " ".join(run.document["disclosures"])


def test_a_number_that_is_set_is_used_and_small_files_have_the_default(runner: Runner) -> None:
    measured = {
        options: runner.run(*TINY, f"--ckpt-engine={options}").measurement()
        for options in ("stream:io-size=64KiB,depth=3", "stream")
    }
    set_, default = measured.values()
    assert (set_["depth"]["requests"], set_["depth"]["origin"], set_["depth"]["steps"]) == (3, "set", [])
    assert set_["engine_facts"]["depth"] == "depth 3, set"
    assert (default["depth"]["requests"], default["depth"]["origin"]) == (2, "default")
    assert "too few to tell" in default["engine_facts"]["depth"]
    assert not any("ramp" in m["stages"] for m in measured.values())


@pytest.mark.thorough
def test_later_launches_and_starts_keep_what_was_found(runner: Runner) -> None:
    """All launches with the same number of ranks use the depth that the first ramp has chosen.

    A resumed run also uses this depth. The resumed run of this test measures one of two strategies again.
    """
    options = (*RAMP, "--ckpt-strategy=sync,async", "--ckpt-suite=performance")
    first = runner.run(*options)
    files = sorted((first.report / "measurements").glob("*.json"))
    found = [json.loads(file.read_text())["depth"] for file in files]
    assert found[0] == found[1]
    assert found[0]["origin"] == "ramp"
    files[0].unlink()
    events = (first.report / "events.jsonl").read_text()
    again = runner.run(*options, "--ckpt-resume")
    depths = [m["depth"] for m in again.document["measurements"]]
    assert depths == found
    assert (first.report / "events.jsonl").read_text().startswith(events)


@pytest.mark.thorough
def test_ranks_of_several_hosts_climb_it_together(runner: Runner, create_home: Callable[[str], Path]) -> None:
    need(os.geteuid() == 0, "only root makes namespaces")
    need_fuse()
    words = ("--ckpt-hosts=a:1,b:1", f"--ckpt-launcher={namespace_launcher(runner.home)}")
    with misbehaving(create_home("shared")) as target:
        run = runner.run(*RAMP, *words, target=target.path)
        assert run.left_on_target == []
    measurement = run.measurement()
    assert measurement["failure"] is None, run.text
    assert measurement["hosts"] == ["a", "b"]
    assert measurement["depth"]["origin"] == "ramp"


@pytest.mark.thorough
def test_wrong_bytes_of_a_scratch_load_are_not_forgotten(runner: Runner, create_home: Callable[[str], Path]) -> None:
    need_fuse()
    with misbehaving(create_home("flips")) as target:
        target.fault("flipped bit in reads", path=SCRATCH)
        run = runner.run(*RAMP, target=target.path)
        assert run.left_on_target == []
    assert run.outcomes()["INTEGRITY"] == "failed"
    faults = run.measurement()["integrity"]["faults"]
    assert {fault["checkpoint"] for fault in faults} == {2 + OF_RAMP}


@pytest.mark.thorough
def test_storage_that_fails_in_the_ramp_has_failed(runner: Runner, create_home: Callable[[str], Path]) -> None:
    need_fuse()
    with misbehaving(create_home("fails")) as target:
        target.fault("EIO in write", path=SCRATCH)
        run = runner.run(*RAMP, target=target.path)
        assert run.left_on_target == []
    assert (run.code, run.outcomes()["SAVE"]) == (1, "failed"), run.text
    assert "EIO" in run.verdict("SAVE")["because"]
    assert "ramp" in run.verdict("SAVE")["because"]
