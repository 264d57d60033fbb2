"""End-to-end runs of UPGRADE and SNAPSHOT: a user's command changes the storage during saves and loads.

Some targets lose or change data during the command.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_ckpt.evidence.verification import verify_directory
from tests.support import jsonschema_validation
from tests.support.actions import actions
from tests.support.created_directories import CreatedDirectories
from tests.support.end_to_end import STREAM, TINY, TORCH, Run, Runner, processes_of
from tests.support.machine import eventually, need, need_fuse
from tests.support.targets.loop_devices import loop_mount
from tests.support.targets.misbehaving import Target, misbehaving

OPTIONS = (*TINY, "--ckpt-suite=performance,maintenance", "--ckpt-seed=7")
UNTOUCHED = dict.fromkeys(("SAVE", "LOAD", "INTEGRITY", "DURABLE-CALLS"), "met")


@pytest.fixture
def target(create_home: Callable[[str], Path]) -> Iterator[Target]:
    need_fuse()
    with misbehaving(create_home("maintained"), second=True, keep_cache=True) as mounted:
        yield mounted


def options(runner: Runner, requirement: str, limit: str = "") -> tuple[str, ...]:
    """Return options of a run that requires speed and ``requirement``. ``limit`` is the limit of ``requirement``."""
    table = runner.home / "gates.toml"
    more = f", limit = {limit}" if limit else ""
    row = f'{requirement} = {{ gate = "required"{more} }}'
    table.write_text(f'name = "maintenance"\nextends = "speed-only"\n[requirements]\n{row}\n')
    return (*OPTIONS, f"--ckpt-gate-table={table}")


def during(runner: Runner, command: list[str]) -> tuple[str, ...]:
    return (*options(runner, "UPGRADE"), actions(upgrade_command=shlex.join(command)))


def snapshots(runner: Runner, take: list[str], remove: list[str], limit: str = "100.0") -> tuple[str, ...]:
    """Return options of a run that requires SNAPSHOT. ``take`` and ``remove`` take and remove a snapshot.

    ``limit`` is the permitted extra time of a save with a snapshot, as a multiple of a save's usual time. The default
    is large, because a snapshot may take long on a busy machine.
    """
    commands = (actions(snapshot=shlex.join(take), remove_snapshot=shlex.join(remove)),)
    return (*options(runner, "SNAPSHOT", limit), *commands)


def untouched(run: Run) -> dict[str, str]:
    return {name: run.verdict(name)["outcome"] for name in UNTOUCHED}


def check_report_and_evidence(run: Run) -> None:
    """Check that the report matches its schema, and that ``verify`` finds no change in the report directory."""
    assert jsonschema_validation.violations(run.document, "report") == []
    assert {
        c.name: c.outcome for c in verify_directory(run.report, None) if c.outcome != "not checked"
    } == dict.fromkeys(("digests", "verdicts", "pages"), "holds")


@pytest.mark.thorough
def test_launches_with_commands_use_no_name_of_each_other(runner: Runner) -> None:
    made = CreatedDirectories(runner.home)
    rows = 'UPGRADE = { gate = "required" }\nFAILOVER = { gate = "required", limit = 60.0 }'
    (runner.home / "both.toml").write_text(f'name = "both"\nextends = "speed-only"\n[requirements]\n{rows}\n')
    commands = (
        actions(upgrade_command="true", fault_command="true", repair_command="true"),
        f"--ckpt-gate-table={runner.home}/both.toml",
    )
    suites = "--ckpt-suite=performance,maintenance,failover"
    run = runner.run(*TINY, suites, *commands, environment=made.environment)
    assert len(run.launches) == 3, run.text
    assert len(made.names) == len(set(made.names))


@pytest.mark.covers(requirements=("UPGRADE",))
@pytest.mark.parametrize("engine", [STREAM, pytest.param(TORCH, marks=pytest.mark.thorough)])
def test_storage_that_serves_while_a_command_runs_is_met(runner: Runner, engine: str) -> None:
    run = runner.run(*during(runner, ["sh", "-c", "sleep 0.5"]), engine)
    verdict, found = run.verdict("UPGRADE"), run.measurement()["patterns"]["upgrade"]
    assert (verdict["outcome"], verdict["unit"], verdict["severity"], run.code) == ("met", "s", "required", 0), verdict
    kinds = [operation["kind"] for operation in found["operations"]]
    assert kinds == ["save", "load"] * (len(kinds) // 2)
    assert found["run"]["exit_code"] == 0
    assert found["integrity"]["bytes_checked"] == found["integrity"]["bytes_expected"] > 0
    # These saves and loads are not the subject's own.
    assert [len(run.operations(kind)) for kind in ("save", "load")] == [2, 2]
    assert run.left_on_target == []
    assert "Maintenance" in (run.report / "certificate.html").read_text()
    check_report_and_evidence(run)


FAULTS = {
    "EIO in write": ("error", "A save failed while the command ran: rank"),
    "EIO in read": ("missing bytes", "When the command had returned, a committed checkpoint could not be loaded: rank"),
    "flipped bit at rest": ("wrong bytes", "first: "),
}


@pytest.mark.thorough
@pytest.mark.parametrize("fault", FAULTS)
def test_storage_that_fails_while_a_command_runs_fails(runner: Runner, target: Target, fault: str) -> None:
    # The command continues for some more saves and loads.
    broken = f"{shlex.join(target.fault_command(fault))}; sleep 8"
    run = runner.run(*during(runner, ["sh", "-c", broken]), target=target.path)
    verdict, (reason, expected_text) = run.verdict("UPGRADE"), FAULTS[fault]
    assert (verdict["outcome"], verdict["reason"]) == ("failed", reason), verdict
    assert expected_text in verdict["because"]
    assert run.code == 1
    assert untouched(run) == UNTOUCHED


@pytest.mark.thorough
def test_a_save_that_is_late_while_a_command_runs_fails(runner: Runner, target: Target) -> None:
    """UPGRADE fails if a save exceeds its limit while the command runs.

    The command makes writes slow and ends when the first slow write has begun. The command therefore runs during a
    save. Reads stay fast, so that only saves exceed their limit.
    """
    pace = {"maximum_bytes": 1 << 20, "bytes_per_second": 1_000_000, "first_seconds": 3}
    trickle = target.fault_command("writes trickle", **pace)
    slow = f"{shlex.join(trickle)}; {shlex.join(target.until_hit_command('writes trickle'))}"
    run = runner.run(*during(runner, ["sh", "-c", slow]), target=target.path, cluster=64)
    verdict = run.verdict("UPGRADE")
    assert (verdict["outcome"], verdict["reason"], verdict["unit"]) == ("failed", "over limit", "s"), verdict
    assert "1.5 x the save limit" in verdict["because"]


@pytest.mark.thorough
def test_a_command_that_fails_upgrades_nothing_that_counts(runner: Runner) -> None:
    run = runner.run(*during(runner, ["sh", "-c", "echo a node is down >&2; exit 3"]))
    verdict = run.verdict("UPGRADE")
    assert (verdict["outcome"], verdict["reason"]) == ("not run", "command failed"), verdict
    assert verdict["because"] == "The upgrade command ended with exit code 3: a node is down."
    assert run.code == 8


@pytest.mark.thorough
def test_a_run_that_is_interrupted_leaves_the_command_to_its_work(runner: Runner) -> None:
    """If a run is interrupted, a maintenance command that is running continues to its end.

    A rolling restart that stops halfway could harm the storage.
    """
    began, go_on, ended = (runner.home / name for name in ("began", "go-on", "ended"))
    os.mkfifo(go_on)
    words = during(runner, ["sh", "-c", f"touch {began}; read line < {go_on}; touch {ended}"])
    started = runner.start(*words)
    started.until(began.exists, "the command runs")
    os.kill(started.process.pid, signal.SIGINT)
    started.process.wait()
    eventually(lambda: not processes_of(started.run_id), "no rank is left")
    assert not ended.exists()
    go_on.write_text("on\n")
    eventually(ended.exists, "the command has come to its end")


def script(home: Path, name: str, text: str) -> list[str]:
    """Write a shell script; return the command line that runs the script."""
    file = home / name
    file.write_text(f"set -eu\n{text}\n")
    return ["sh", str(file)]


@pytest.fixture
def subvolume(create_home: Callable[[str], Path]) -> Iterator[Path]:
    """A mounted btrfs file system. A test creates the subvolume ``target`` in it."""
    need(os.geteuid() == 0 and shutil.which("mkfs.btrfs"), "a volume of btrfs needs root and mkfs.btrfs")
    with loop_mount(create_home("snapshots"), "btrfs") as mount:
        yield mount.path


def real(runner: Runner, volume: Path, more: str = "") -> tuple[list[str], list[str]]:
    """Return two commands: the first takes a btrfs snapshot, the second removes the snapshot.

    ``more`` contains shell commands that change the snapshot after it was taken.
    """
    clone = volume / "clone"
    take = f"btrfs subvolume snapshot {volume}/target {clone} >&2\n{more}\necho {clone}"
    return script(runner.home, "take", take), script(runner.home, "remove", 'btrfs subvolume delete "$1" >&2')


@pytest.mark.covers(requirements=("SNAPSHOT",))
def test_real_snapshots_hold_no_commit_or_a_complete_one(runner: Runner, subvolume: Path) -> None:
    btrfs("subvolume", "create", str(subvolume / "target"))
    run = runner.run(*snapshots(runner, *real(runner, subvolume)), target=subvolume / "target")
    verdict, found = run.verdict("SNAPSHOT"), run.measurement()["patterns"]["snapshots"]
    assert (verdict["outcome"], verdict["unit"], verdict["severity"]) == ("met", "fraction", "required"), verdict
    assert [t["removed"]["exit_code"] for t in found["trials"]] == [0] * 6
    assert all(Path(t["taken"]["output"]) == subvolume / "clone" for t in found["trials"])
    assert found["integrity"]["bytes_checked"] == found["integrity"]["bytes_expected"] > 0
    assert sorted(p.name for p in subvolume.iterdir()) == ["target"]
    assert run.left_on_target == []
    assert "Snapshots" in (run.report / "certificate.html").read_text()
    check_report_and_evidence(run)


def btrfs(*words: str) -> None:
    subprocess.run(["btrfs", *words], check=True, capture_output=True)


WRONG_CLONES = {
    "a committed checkpoint is gone": ("rm -r {latest}", ("missing bytes",)),
    "its files are cut": ("truncate -s 5000 {latest}/*", ("missing bytes", "wrong bytes")),
    "a page of each file is zero": (
        "for file in {latest}/*; do dd if=/dev/zero of=$file bs=4096 seek=3 count=1 conv=notrunc; done",
        ("wrong bytes",),
    ),
    "what is not committed shows as if it were": (
        "for partial in {clone}/*/*/*.partial; do [ -d $partial ] || continue; truncate -s 5000 $partial/*; "
        "mv $partial ${{partial%.partial}}; done",
        ("missing bytes", "wrong bytes"),
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", WRONG_CLONES)
def test_a_clone_that_is_wrong_fails(runner: Runner, subvolume: Path, name: str) -> None:
    btrfs("subvolume", "create", str(subvolume / "target"))
    text, reasons = WRONG_CLONES[name]
    clone = subvolume / "clone"
    more = text.format(clone=clone, latest=f"$(ls -d {clone}/*/*/checkpoint-* | grep -v partial | head -1)")
    # The saves are long enough for a snapshot during a save.
    words = (*snapshots(runner, *real(runner, subvolume, f"{{ {more}; }} >&2")), "--ckpt-scale=1/1000")
    run = runner.run(*words, target=subvolume / "target")
    verdict = run.verdict("SNAPSHOT")
    assert verdict["outcome"] == "failed", verdict
    assert verdict["reason"] in reasons
    assert run.code == 1
    assert untouched(run) == UNTOUCHED


@pytest.mark.thorough
def test_a_snapshot_that_costs_too_much_fails(runner: Runner, target: Target) -> None:
    """SNAPSHOT fails if saves with a snapshot take more than 10 % longer than saves without a snapshot.

    Without a snapshot, a save takes about 4 s for 80 writes, one after another. After a snapshot, the next write takes
    5 s longer. Other work on the machine delays a save by less than 5 s. The seed starts each of the six snapshots in
    the first third of a save, so that the snapshot is taken before the save ends.
    """
    clone = runner.home / "clone"
    usual = {"seconds": 0.05, "writes_only": True}
    slower = shlex.join(
        target.fault_command("writes trickle", maximum_bytes=1 << 20, bytes_per_second=1e9, first_seconds=5)
    )
    clear = shlex.join(target.clear_command)
    # A save continues during the copy, so files that it renames are missing when the copy reaches them.
    take = script(runner.home, "take", f"{slower}\ncp -a {target.backing} {clone} || true\necho {clone}")
    usual_again = shlex.join(target.fault_command("slow file", **usual))
    remove = script(runner.home, "remove", f'{clear}\n{usual_again}\nrm -r "$1"')
    target.fault("slow file", **usual)
    run = runner.run(
        *snapshots(runner, take, remove, "0.10"),
        "--ckpt-engine=io-size=64KiB,depth=1",
        "--ckpt-seed=2847",
        target=target.path,
    )
    verdict = run.verdict("SNAPSHOT")
    assert (verdict["outcome"], verdict["reason"], verdict["limit"]) == ("failed", "over limit", 0.10), verdict
    assert verdict["measured"] > 0.10


@pytest.mark.thorough
@pytest.mark.parametrize(
    "what", ["the target itself", "another view of it", "a word", "a directory without it", "nothing"]
)
def test_a_clone_that_is_not_a_snapshot_is_not_judged(runner: Runner, target: Target, what: str) -> None:
    assert target.second
    fields = {
        "the target itself": str(target.path), "another view of it": str(target.second), "a word": "done",
        "a directory without it": str(runner.home), "nothing": "",
    }[what]  # fmt: skip
    run = runner.run(*snapshots(runner, ["echo", fields], ["true"]), target=target.path)
    verdict = run.verdict("SNAPSHOT")
    assert (verdict["outcome"], verdict["reason"]) == ("not run", "command failed"), verdict
    assert ("and no snapshot of it" in verdict["because"]) == (what in ("the target itself", "another view of it"))


@pytest.mark.thorough
@pytest.mark.parametrize("which", ["take", "remove"])
def test_a_snapshot_command_that_fails_is_reported(runner: Runner, which: str) -> None:
    clone = runner.home / "clone"
    commands = {
        "take": script(runner.home, "take", f"cp -a {runner.target} {clone} || true\necho {clone}"),
        "remove": script(runner.home, "remove", 'rm -r "$1"'),
    } | {which: ["sh", "-c", "echo it is busy >&2; exit 4"]}
    run = runner.run(*snapshots(runner, commands["take"], commands["remove"]))
    verdict = run.verdict("SNAPSHOT")
    word = "snapshot" if which == "take" else "remove"
    assert (verdict["outcome"], verdict["reason"]) == ("not run", "command failed"), verdict
    assert f"The {word} command ended with exit code 4: it is busy." in verdict["because"]
    assert ("remove it by hand" in str(verdict["detail"])) == (which == "remove")


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_snapshot_is_removed_when_the_run_ends(runner: Runner, number: signal.Signals) -> None:
    taken, removed = runner.home / "taken", runner.home / "removed"
    take = ["sh", "-c", f"touch {taken}; sleep 8; echo /the/clone"]
    started = runner.start(*snapshots(runner, take, ["sh", "-c", f'echo "$1" > {removed}', "remove"]))
    started.until(taken.exists, "a snapshot is being taken")
    assert not removed.exists()
    os.kill(started.process.pid, number)
    started.process.wait()
    eventually(lambda: removed.exists() and removed.read_text() == "/the/clone\n", "it is removed")
    eventually(lambda: not processes_of(started.run_id), "no rank is left")
