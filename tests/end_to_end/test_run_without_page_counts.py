"""End-to-end runs on targets whose cached pages the kernel counts in part or not at all.

COLD (loads come from storage, not from a cache) then uses timed reads, or states why it was not decided.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.end_to_end import TINY, Run, Runner
from tests.support.hidden_hosts import UNDER_A_NAME
from tests.support.machine import Mounts, need_fuse
from tests.support.matrix_of_speed import OF_CANARIES
from tests.support.targets.misbehaving import Target, misbehaving

SUBJECT = "llama3-8b-open-1"
CACHE = "client cache survives the drop"

TWO_HOSTS = (
    """
import os, sys, tempfile

if sys.argv[1] == "--version":
    print("hosts that are namespaces 1")
    sys.exit()
what, nodes, processes, *command = sys.argv[1:]
if what == "start":
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    mpiexec = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    as_host = [sys.executable, __file__, "as host", nodes, processes]
    local = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "self,sm"]
    os.execv(mpiexec, [mpiexec, "-n", processes, *local, *as_host, *command])
"""
    + UNDER_A_NAME
)


# Two containers of one machine: each has its own name, but they share a kernel and perhaps one client of the storage.
TWO_PODS = TWO_HOSTS.replace('f"boot of {name}"', '"boot of their node"')


@pytest.fixture(scope="module")
def in_memory(create_home: Callable[[str], Path]) -> Iterator[Path]:
    """A tmpfs for the files of a FUSE target.

    Other tests drop the page cache of this machine. The drop does not affect files in a tmpfs, so read times stay the
    same.
    """
    need_fuse()
    mounts = Mounts(create_home)
    yield mounts("tmpfs", 3 << 10)
    mounts.unmount_all()


@pytest.fixture(scope="module")
def mounted(in_memory: Path) -> Iterator[Target]:
    (in_memory / "mounted").mkdir()
    with misbehaving(in_memory / "mounted", second=True, direct_io=True) as target:
        yield target


@pytest.fixture
def target(mounted: Target) -> Iterator[Target]:
    yield mounted
    mounted.clear()
    mounted.empty()


def canaries(run: Run) -> dict[str, Any]:
    (found,) = run.measurement(SUBJECT)["cache"]["canaries"]
    return found


def test_checkpoints_that_are_too_small_leave_cold_undecided_and_name_the_needed_size(
    target: Target, runner: Runner
) -> None:
    run = runner.run(*TINY, target=target.path)
    assert run.code == 8, run.text
    verdict = run.verdict("COLD")
    assert (verdict["outcome"], verdict["reason"], verdict["basis"]) == ("not run", "unproven", "")
    assert "10 parts of 64 MiB on each host are needed" in verdict["because"]
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_cache_that_the_given_command_drops_is_proven_cold_by_timed_reads(target: Target, runner: Runner) -> None:
    target.fault(CACHE, survives=False)
    run = runner.run(*TINY, *OF_CANARIES, f"--ckpt-drop-caches={shlex.join(target.drop_command)}", target=target.path)
    assert run.code == 0, run.text
    verdict = run.verdict("COLD", SUBJECT)
    assert (verdict["outcome"], verdict["basis"]) == ("met", "timed canary")
    assert "the drop works" in verdict["because"]
    assert len(canaries(run)["first_read_seconds"]) == 10
    assert len(canaries(run)["dropped_reread_seconds"]) == 10
    assert canaries(run)["other_client_seconds"] == []
    assert len(canaries(run)["judged_seconds"]) == len(canaries(run)["judged_reread_seconds"]) == 10
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_cache_that_keeps_the_judged_checkpoints_and_drops_the_others_proves_nothing(
    in_memory: Path, runner: Runner
) -> None:
    """Timed reads prove nothing if a cache drops only the checkpoints that the timed reads use.

    Such a cache keeps the checkpoints that the loads read. The fault distinguishes checkpoints by their numbers.
    """
    (in_memory / "blind").mkdir()
    with misbehaving(in_memory / "blind", second=True, direct_io=True) as target:
        target.fault(CACHE, survives=False, drops_from=2)
        run = runner.run(
            *TINY, *OF_CANARIES, f"--ckpt-drop-caches={shlex.join(target.drop_command)}", target=target.path
        )
    assert run.code == 8, run.text
    verdict = run.verdict("COLD", SUBJECT)
    assert (verdict["outcome"], verdict["reason"], verdict["basis"]) == ("not run", "unproven", "")
    assert "a cache may contain only some of these parts" in verdict["because"]


@pytest.mark.thorough
def test_without_a_second_client_a_cache_that_survives_a_drop_leaves_cold_not_run(
    target: Target, runner: Runner
) -> None:
    target.fault(CACHE)
    run = runner.run(*TINY, *OF_CANARIES, target=target.path)
    assert run.code == 8, run.text
    verdict = run.verdict("COLD", SUBJECT)
    assert (verdict["outcome"], verdict["reason"]) == ("not run", "unproven")
    assert "--ckpt-second-mount" in verdict["because"]


@pytest.mark.thorough
def test_without_any_cache_a_second_client_proves_it(target: Target, runner: Runner) -> None:
    # Both clients read at the rate of the storage. No cache below them makes reads faster.
    target.fault("slow", bytes_per_second=80e6)
    run = runner.run(*TINY, *OF_CANARIES, f"--ckpt-second-mount={target.second}", target=target.path)
    assert run.code == 0, run.text
    verdict = run.verdict("COLD", SUBJECT)
    assert (verdict["outcome"], verdict["basis"]) == ("met", "timed canary")
    assert "no cache of this client helps" in verdict["because"]
    assert len(canaries(run)["other_client_seconds"]) == 10


@pytest.mark.thorough
@pytest.mark.parametrize("survives", [True, False])
def test_a_second_client_finds_a_cache_of_the_fuse_process_that_the_kernel_does_not_count(
    in_memory: Path, runner: Runner, survives: bool
) -> None:
    """Timed reads by two clients show whether the cache of a FUSE process survives a drop of the kernel's cache.

    The FUSE process has its own cache in addition to the kernel's page cache.
    """
    home = in_memory / f"counted-{survives}"
    home.mkdir()
    with misbehaving(home, second=True, keep_cache=True) as target:
        target.fault(CACHE, survives=survives)
        drop = runner.home / "drop"
        drop.write_text(f"#!/bin/sh -e\necho 3 > /proc/sys/vm/drop_caches\n{shlex.join(target.drop_command)}\n")
        drop.chmod(0o755)
        options = (f"--ckpt-second-mount={target.second}", f"--ckpt-drop-caches={drop}")
        run = runner.run(*TINY, *OF_CANARIES, *options, target=target.path)
        target.empty()
    verdict = run.verdict("COLD", SUBJECT)
    assert run.measurement(SUBJECT)["cache"]["probe"]
    expected_text = (
        "The kernel counts no cached pages, but" if survives else "What the kernel does not count, timed reads show"
    )
    assert expected_text in verdict["because"], run.text
    assert (run.code, verdict["outcome"]) == ((1, "failed") if survives else (0, "met"))
    assert "is neither dropped nor counted" not in " ".join(run.document["disclosures"])


@pytest.mark.thorough
def test_on_several_hosts_each_loads_what_another_wrote(target: Target, runner: Runner) -> None:
    hosts = runner.home / "hosts.py"
    hosts.write_text(TWO_HOSTS)
    run = runner.run(
        *TINY,
        "--ckpt-hosts=left:1,right:1",
        f"--ckpt-launcher={shlex.quote(sys.executable)} {hosts} start {{nodes}} {{processes}}",
        target=target.path,
    )
    assert run.code == 0, run.text
    verdict = run.verdict("COLD")
    assert (verdict["outcome"], verdict["basis"]) == ("met", "other client")
    assert run.verdict("INTEGRITY")["outcome"] == "met"
    cache = run.measurement()["cache"]
    assert (cache["by_other_hosts"], cache["canaries"]) == (True, [])
    assert run.measurement()["hosts"] == ["left", "right"]
    assert run.left_on_target == []


@pytest.mark.thorough
def test_two_pods_of_one_node_are_no_other_client_of_each_other(target: Target, runner: Runner) -> None:
    assert TWO_PODS != TWO_HOSTS
    hosts = runner.home / "hosts.py"
    hosts.write_text(TWO_PODS)
    run = runner.run(
        *TINY,
        "--ckpt-hosts=left:1,right:1",
        f"--ckpt-launcher={shlex.quote(sys.executable)} {hosts} start {{nodes}} {{processes}}",
        target=target.path,
    )
    assert run.code == 8, run.text
    verdict = run.verdict("COLD")
    assert (verdict["outcome"], verdict["reason"], verdict["basis"]) == ("not run", "unproven", "")
    assert run.measurement()["cache"]["by_other_hosts"] is False
    assert run.measurement()["hosts"] == ["left", "right"]
