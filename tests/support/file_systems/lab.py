"""Mounts one file system in separate namespaces and runs pytest-ckpt on it.

To simulate a host with little memory, servers, clients and ranks run in one memory control group.

``observe`` runs this module with ``python -m`` as the first process of new namespaces, and returns the results of this
process. All mounts, servers and ports exist only in these namespaces, which end when the first process ends.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import CHECKOUT
from tests.support.end_to_end import SMALLEST, Run, processes_of, read_events, started_operation, temporary_runner
from tests.support.file_systems.entry import FileSystem
from tests.support.file_systems.mounting import ADDRESS, Mounted, create_directory, run
from tests.support.file_systems.table import BY_NAME
from tests.support.machine import patience, unmount_inherited
from tests.support.matrix_of_speed import OF_CANARIES
from tests.support.small_memory import join, meminfo, small_memory

REPRODUCE = Path(__file__).with_name("reproduce.py")
_RUN_SECONDS = 600.0
_DEADLINE_SECONDS = 30
_SHARED, _LOCAL = "posix-shared", "posix-local"
# A checkpoint has two files of 56 MB, too small for timed reads, so only the volume can prove COLD. One checkpoint per
# 32 MiB of a small memory is more than three times the memory.
_OF_VOLUME, _A_CHECKPOINT_FOR_BYTES = "1/1000", 32 << 20


def observe(name: str, home: Path, task: str) -> dict[str, Any]:
    """Mount the file system ``name`` below ``home``, perform a task of `TASKS`, and return the results."""
    if task not in _OF_SMALL_MEMORY:
        return _observe(name, home, task)
    with small_memory(BY_NAME[name].small_memory_bytes) as group:
        return _observe(name, home, task, "--group", str(group))


def _observe(name: str, home: Path, task: str, *more: str) -> dict[str, Any]:
    out = home / "seen.json"
    words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork"]
    words += ["--mount-proc", "--kill-child=KILL", sys.executable, "-m", "tests.support.file_systems.lab"]
    log = home / "lab.log"
    with log.open("wb") as output:
        done = subprocess.run(
            [*words, task, name, str(home), str(out), *more],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(),
            timeout=patience(_RUN_SECONDS),
            check=False,
        )
    # The mounts ended with their namespace. Their images are up to 4 GB for each test.
    shutil.rmtree(home / "mounts", ignore_errors=True)
    if done.returncode or not out.exists():
        raise OSError(f"{name} could not be tried (exit code {done.returncode}): {log.read_text()[-4000:]}")
    seen: dict[str, Any] = json.loads(out.read_text())
    return seen


def leftovers_of(home: Path) -> list[str]:
    """Return the mounts and loop devices of this host that use files below ``home``."""
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(home) in line]
    devices = []
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            backing = file.read_text()
        except OSError:
            continue
        if str(home) in backing:
            devices.append(f"{file.parent.parent.name}: {backing.strip()}")
    return [*mounts, *devices]


def _environment() -> dict[str, str]:
    path = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    return os.environ | {"PATH": path, "HOME": "/root", "PYTHONPATH": str(CHECKOUT)}


def _run(row: FileSystem, place: Mounted, home: Path) -> dict[str, Any]:
    """Run pytest-ckpt with all checks, then the functions of `reproduce` that the row names; return the results."""
    options = [*SMALLEST, "--ckpt-scale=1/10000", "--cluster=1", "--ckpt-suite=performance,conformance"]
    options.append(f"--ckpt-gate-table={row.gates or (_SHARED if place.second else _LOCAL)}")
    target = create_directory(place.first / "target")
    if place.second:
        options.append(f"--ckpt-second-mount={place.second / 'target'}")
    if place.small:
        options.append(f"--ckpt-small-volume={create_directory(place.small / 'full')}")
    with temporary_runner(home) as runner:
        done = runner.run(*options, target=target)
        left = sorted(entry.name for entry in target.iterdir())
    if not (done.report / "report.json").exists():
        raise OSError(f"the run ended with {done.code} and left no report:\n{done.text[-3000:]}")
    document = done.document
    return {
        "exit_code": done.code,
        "grade": document["grade"],
        "kind": document["environment"]["target"]["kind"],
        "gates": document["gate_table"]["name"],
        "left": left,
        "left_behind": document["left_behind"],
        "directory": str(target),
        "verdicts": [
            {key: v[key] for key in ("id", "subject", "severity", "outcome", "reason", "because", "detail")}
            for v in document["requirements"]
        ],
        "shown": {way: _shown(way, place) for way in row.reproductions},
    }


def _cold(_row: FileSystem, place: Mounted, home: Path) -> dict[str, Any]:
    """Save and load a checkpoint that is large enough for timed reads; return the verdict of COLD.

    COLD requires that loads come from storage, and not from a cache. The kernel does not report the cached pages of
    these file systems, so only timed reads can prove this.
    """
    options = [*SMALLEST, *OF_CANARIES, "--cluster=1", "--ckpt-suite=performance", "--ckpt-gate-table=speed-only"]
    if place.second:
        options.append(f"--ckpt-second-mount={place.second / 'target'}")
    target = create_directory(place.first / "target")
    with temporary_runner(home) as runner:
        done = runner.run(*options, target=target)
    return _sentences_of_cold(done, target, "llama3-8b-open-1")


def _volume(row: FileSystem, place: Mounted, home: Path) -> dict[str, Any]:
    """Save and load more than three times the memory of the simulated host, so that no page remains cached."""
    return _moved(row, place, home, _enough(row))


def _too_little(row: FileSystem, place: Mounted, home: Path) -> dict[str, Any]:
    """Save and load less than three times the memory of the simulated host, so that pages may remain cached."""
    return _moved(row, place, home, _enough(row) // 4)


def _enough(row: FileSystem) -> int:
    """Return the number of checkpoints that are together larger than three times the memory of the simulated host."""
    return row.small_memory_bytes // _A_CHECKPOINT_FOR_BYTES


def _moved(row: FileSystem, place: Mounted, home: Path, operations: int) -> dict[str, Any]:
    options = [*SMALLEST, f"--ckpt-scale={_OF_VOLUME}", f"--ckpt-operations={operations}", "--ckpt-client-cache=0"]
    options += ["--cluster=1", "--ckpt-suite=performance", "--ckpt-gate-table=speed-only"]
    target = create_directory(place.first / "target")
    with temporary_runner(home) as runner:
        done = runner.run(*options, target=target)
    said = _sentences_of_cold(done, target, "llama3-8b-open-2")
    said["cold"] |= {"checkpoints": operations, "memory_bytes": row.small_memory_bytes}
    return said


def _sentences_of_cold(done: Run, target: Path, subject: str) -> dict[str, Any]:
    cold = done.verdict("COLD", subject)
    return {
        "exit_code": done.code,
        "directory": str(target),
        "cold": {key: cold[key] for key in ("outcome", "reason", "basis", "because")},
        "text": done.text,
    }


def _shown(way: str, place: Mounted) -> dict[str, Any]:
    """Run a function of `reproduce` in an empty directory, as a separate program; return the counts that it prints."""
    # Reproductions that fill a volume use the small one, which has one client.
    small = place.small if way == "filled" else None
    directory = create_directory((small or place.first) / f"shown-{way}")
    words = [sys.executable, "-I", str(REPRODUCE), way, str(directory)]
    if place.second and not small:
        words.append(str(place.second / directory.name))
    shown: dict[str, Any] = json.loads(run(*words))
    return shown


def _kill_server_in_save(_row: FileSystem, place: Mounted, home: Path) -> dict[str, Any]:
    """Kill the server during the second of six saves; return how the run ended."""
    assert place.kill_server
    target = create_directory(place.first / "target")
    with temporary_runner(home) as runner:
        words = (*SMALLEST, "--ckpt-operations=6", "--cluster=1", f"--ckpt-io-timeout={_DEADLINE_SECONDS}s")
        started = runner.start(*words, target=target)
        started.until(lambda: any(map(_is_second_save, read_events(started.report))), "the second save has begun")
        run_id = started.run_id
        place.kill_server()
        done = started.finish()
        running = [_command(pid) for pid in processes_of(run_id)]
    if not (done.report / "report.json").exists():
        raise OSError(f"the run ended with {done.code} and left no report:\n{done.text[-3000:]}")
    save = done.verdict("SAVE")
    return {
        "exit_code": done.code,
        "directory": str(target),
        "grade": done.document["grade"],
        "save": {key: save[key] for key in ("outcome", "reason", "because")},
        "running": running,
        "left_behind": done.document["left_behind"],
        "text": done.text,
    }


def _is_second_save(event: dict[str, Any]) -> bool:
    return started_operation(event).endswith("save 2")


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


TASKS = {"run": _run, "break": _kill_server_in_save, "cold": _cold, "volume": _volume, "too little": _too_little}
_OF_SMALL_MEMORY = ("volume", "too little")


def main() -> None:
    """Perform a task on a file system and write the results to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("name", choices=BY_NAME)
    parser.add_argument("home", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--group", type=Path, help="control group that limits the memory of all that runs here")
    asked = parser.parse_args()
    row = BY_NAME[asked.name]
    unmount_inherited()
    if asked.group:
        join(asked.group)
        little = asked.home / "meminfo"
        little.write_text(meminfo(row.small_memory_bytes))
        run("mount", "--bind", little, "/proc/meminfo")
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
    # Servers store their sockets there, and MPI its session by process id: ids are not unique across namespaces.
    for place_of_all in ("/run", "/dev/shm"):
        run("mount", "-t", "tmpfs", "private", place_of_all)
    os.environ["TMPDIR"] = "/run"
    with row.start(create_directory(asked.home / "mounts")) as place:
        seen = TASKS[asked.task](row, place, create_directory(asked.home / "runs"))
    seen |= {
        "name": row.name,
        "how": row.how,
        "kernel": platform.release().partition("-")[0],
        "versions": _versions(row),
    }
    asked.out.write_text(json.dumps(seen, indent=1) + "\n")


def _versions(row: FileSystem) -> dict[str, str]:
    """Return the versions of the installed packages of a file system."""
    versions = {}
    for package in row.packages:
        done = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False
        )
        versions[package] = done.stdout or "not from a package"
    return versions


if __name__ == "__main__":
    main()
