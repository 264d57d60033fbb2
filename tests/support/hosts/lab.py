"""Simulates hosts with namespaces and shared storage, and runs steps on the first host.

``on_hosts`` starts ``python -m tests.support.hosts.lab`` as the first process of the lab's namespaces, and returns the
result of each step. The bridge, servers and hosts of the lab exist only in these namespaces, and end when the first
process ends. The hosts have private addresses, and cannot reach any other network.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.support.processes import SWEEP
from tests.support import CHECKOUT
from tests.support.end_to_end import Run, processes_of, temporary_runner
from tests.support.file_systems.mounting import ADDRESS, create_directory, missing, run
from tests.support.hosts.blocked_run import BLOCKED
from tests.support.hosts.faults import InjectedFault, has_saved, inject, is_there
from tests.support.hosts.host import PRIVATE_DIRECTORIES, READY, address_of, name_of
from tests.support.hosts.secret_watch import SecretWatch
from tests.support.hosts.slurm import slurm as slurm_on
from tests.support.hosts.storage import MOOSEFS, Storage, served
from tests.support.machine import need_fuse, patience, unmount_inherited
from tests.support.namespaces import plug_in
from tests.support.targets.object_server import CREDENTIALS, TARGET, content_of

_LAB_SECONDS = 400.0
# The timeout of many steps, for each step.
_MORE_SECONDS = 30.0
_STEP_SECONDS = 300.0
# Longer than a rank needs to notice that its controller has ended, and its launcher needs to end.
_END_SECONDS = 30.0
_POLL_SECONDS = 0.1
_OF_A_LAUNCH = "/dev/shm/ckpt-"
_BRIDGE = "lab"
_NEEDED = ("sshd", "ssh", "ssh-keygen", "ip", "nsenter", "unshare")
_OF_MOOSEFS = ("mfsmaster", "mfschunkserver", "mfsmount", "mfssettrashtime")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """A run of pytest-ckpt with ``options``, or a command ``words``, on the first host.

    ``before`` contains (host number, shell line). The lines run before the step; in a line, $TARGET is the run's
    target. ``faults`` are injected after the first save, or when the plugin `blocked_run` blocks the run.

    If ``store`` is not None, the target is a bucket of an object store with the fault ``store``. If ``streams`` is
    true, the run measures the network rate, which takes 4 s. If ``streams`` is false, an option states the network
    rate.
    """

    options: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    before: tuple[tuple[int, str], ...] = ()
    faults: tuple[InjectedFault, ...] = ()
    store: str | None = None
    streams: bool = False
    python: str = sys.executable


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepResult:
    """The result of a step.

    ``left`` contains the names that remain in the target, and the ids of processes that remain. ``litter`` contains the
    files that remain in private directories of hosts, as ``HOST:PATH``. ``secrets`` is the number of launch secrets,
    and ``shown`` contains the command lines that showed a secret.
    """

    code: int
    text: str
    home: str
    left: tuple[str, ...] = ()
    secrets: int = 0
    shown: tuple[str, ...] = ()
    litter: tuple[str, ...] = ()

    @property
    def run(self) -> Run:
        """The results of the run of pytest-ckpt. The run's target was removed with the lab."""
        home = Path(self.home)
        return Run(code=self.code, text=self.text, home=home, target=home / "gone", report=home / "ckpt-report")


def need_hosts(storage: Storage = MOOSEFS, *programs: str) -> None:
    """Skip the test if this machine cannot simulate hosts with this storage, or lacks one of these programs."""
    need_fuse()
    if gone := missing((*_NEEDED, *(() if storage.is_fuse else _OF_MOOSEFS), *programs)):
        pytest.skip(f"there is no {', '.join(gone)}")
    if why := _network_obstacle():
        pytest.skip(f"no network of several hosts can be made here: {why}")


@functools.cache
def _network_obstacle() -> str:
    """Return the reason why this machine cannot bridge network namespaces; an empty text if it can."""
    commands = "ip link add lab type bridge && ip link add v1 type veth peer name v2 && ip link set v1 master lab up"
    words = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "sh", "-ec", commands]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=_environment())
    return (done.stderr.strip() or f"exit code {done.returncode}") if done.returncode else ""


def on_hosts(
    home: Path,
    hosts: int,
    *steps: Step,
    slurm: bool = False,
    storage: Storage = MOOSEFS,
    ahead: Mapping[int, float] | None = None,
) -> list[StepResult]:
    """Create simulated hosts, run the steps one after the other on the first host, and return the results.

    ``hosts`` is the number of hosts. ``storage`` is mounted on each host. If ``slurm`` is true, the hosts are a Slurm
    cluster. ``ahead`` is {host number: seconds by which the host's monotonic clock is ahead}.
    """
    asked, out, log = home / "asked.json", home / "done.json", home / "lab.log"
    asked.write_text(json.dumps([to_plain(step) for step in steps]))
    words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork"]
    words += ["--mount-proc", "--kill-child=KILL", sys.executable, "-m", "tests.support.hosts.lab"]
    with log.open("wb") as output:
        done = subprocess.run(
            [
                *words,
                str(home),
                str(hosts),
                f"--storage={json.dumps(to_plain(storage))}",
                f"--ahead={json.dumps(dict(ahead or {}))}",
                *(["--slurm"] if slurm else []),
            ],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(),
            timeout=patience(_LAB_SECONDS + _MORE_SECONDS * len(steps)),
            check=False,
        )
    if done.returncode or not out.exists():
        raise OSError(f"the lab of hosts ended with {done.returncode}: {log.read_text(errors='replace')[-4000:]}")
    return [from_plain(StepResult, step) for step in json.loads(out.read_text())]


def _environment() -> dict[str, str]:
    path = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    return os.environ | {"PATH": path, "HOME": "/root", "PYTHONPATH": str(CHECKOUT)}


@contextlib.contextmanager
def started_host(home: Path, number: int, storage: str, ahead: float = 0.0) -> Iterator[tuple[str, ...]]:
    """Start host ``number``; yield the prefix of commands that run on this host.

    The monotonic clock of the host is ``ahead`` seconds ahead.
    """
    directory = create_directory(home / "hosts" / name_of(number))
    with (directory / "log").open("wb") as log:
        words = [
            "unshare",
            "--net",
            "--mount",
            "--uts",
            "--ipc",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child=KILL",
            *(["--time", f"--monotonic={ahead:g}"] if ahead else []),
        ]
        process = subprocess.Popen(
            [*words, sys.executable, "-m", "tests.support.hosts.host", str(home), str(number), storage],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        first = plug_in(process, f"v{number}", _BRIDGE, directory / "log", directory / READY)
        yield ("nsenter", "--target", first, "--net", "--mount", "--uts", "--ipc", "--pid")
    finally:
        process.kill()
        process.wait()


def _do(
    step: Step, number: int, home: Path, on_hosts: Sequence[Sequence[str]], stores: Mapping[str, str]
) -> StepResult:
    directory = create_directory(home / f"step-{number}")
    # A process that enters another host's mount namespace is at its root.
    on_first = [*on_hosts[0], "env", "-C", str(directory)]
    # Every program that a launcher calls as ssh reaches the other hosts with the keys of the lab.
    environment = {"PATH": f"{home / 'ssh'}:{os.environ['PATH']}", **step.environment}
    if step.words:
        done = subprocess.run(
            [*on_first, *step.words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | environment,
            timeout=patience(_STEP_SECONDS),
        )
        return StepResult(code=done.returncode, text=done.stderr + done.stdout, home=str(directory))
    if step.store is not None:
        return _on_store(step, stores[step.store], directory, on_first, environment)
    target = home / "array" / f"target-{number}"
    run(*on_first, "mkdir", target)
    for host, line in step.before:
        run(*on_hosts[host - 1], "env", f"TARGET={target}", "sh", "-euc", line)
    with temporary_runner(directory) as runner:
        stated = () if step.streams else ("--ckpt-nic-rate=10GB/s",)
        started = runner.start(
            *step.options, *stated, target=target, environment=environment, around=on_first, python=step.python
        )
        if step.faults:
            at_hand = directory / BLOCKED
            started.until(lambda: at_hand.exists() or has_saved(started.report), "the run has saved, or is held")
            for fault in step.faults:
                inject(fault, on_hosts, started.process)
        seen = started.finish()
        left = [
            name
            for on_host in filter(is_there, on_hosts)
            for name in run(*on_host, "find", target.parent, "-path", f"{target}/*", "-printf", "%f\\n").split()
        ]
        if (seen.report / "session.json").exists():
            run_id = json.loads((seen.report / "session.json").read_text())["run_id"]
            left += [str(pid) for pid in _remains_of(run_id)]
    return StepResult(code=seen.code, text=seen.text, home=str(directory), left=tuple(left))


def _on_store(
    step: Step, endpoint: str, directory: Path, on_first: Sequence[str], environment: Mapping[str, str]
) -> StepResult:
    words = (*step.options, f"--ckpt-endpoint={endpoint}")
    with temporary_runner(directory) as runner:
        seen = runner.run(*words, target=TARGET, environment=CREDENTIALS | environment, around=on_first)
    keys, uploads = content_of(endpoint)
    return StepResult(code=seen.code, text=seen.text, home=str(directory), left=(*keys, *(key for key, _ in uploads)))


def _remains_of(run_id: str) -> list[int]:
    """Wait until all processes of a run have ended; return the ids of processes that remain after a limited time.

    The processes that clean up after the run are included.
    """
    end = time.monotonic() + patience(_END_SECONDS)
    while (left := [*processes_of(run_id), *processes_of(run_id + SWEEP)]) and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
    return left


def _private_files(on_hosts: Sequence[Sequence[str]]) -> set[str]:
    """Return the files in the private directories of all running hosts, as ``HOST:PATH``."""
    return {
        f"{name_of(number)}:{path}"
        for number, on_host in enumerate(on_hosts, 1)
        if is_there(on_host)
        for path in run(*on_host, "find", *PRIVATE_DIRECTORIES, "-xdev", "-mindepth", "1", "-print").splitlines()
    }


def _litter(on_hosts: Sequence[Sequence[str]], before: set[str]) -> tuple[str, ...]:
    """Return the new files in private directories of hosts; ``before`` are the earlier files.

    If the controller was killed, the directory of a launch may be removed a little later. The function waits for the
    removal, for a limited time.
    """
    end = time.monotonic() + patience(_END_SECONDS)
    while (
        (litter := _private_files(on_hosts) - before)
        and any(_OF_A_LAUNCH in path for path in litter)
        and time.monotonic() < end
    ):
        time.sleep(_POLL_SECONDS)
    return tuple(sorted(litter))


def _create_keys(home: Path, hosts: int) -> None:
    """Create ssh keys, the ssh configuration and the table of host names."""
    keys = create_directory(home / "ssh")
    for name in ("host", "user"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / name)
    (keys / "ssh_config").write_text(
        f"IdentityFile {keys / 'user'}\nUserKnownHostsFile /dev/null\nStrictHostKeyChecking no\nLogLevel ERROR\n"
        "SendEnv *\nBatchMode yes\n"
    )
    program = keys / "ssh"
    program.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {keys / "ssh_config"} "$@"\n')
    program.chmod(0o755)
    lines = [f"{address_of(number)} {name_of(number)}" for number in range(1, hosts + 1)]
    (home / "etc_hosts").write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("hosts", type=int)
    parser.add_argument("--storage", default="{}")
    parser.add_argument("--ahead", type=json.loads, default={})
    parser.add_argument("--slurm", action="store_true")
    asked = parser.parse_args()
    home: Path = asked.home
    unmount_inherited()
    steps = [from_plain(Step, step) for step in json.loads((home / "asked.json").read_text())]
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", _BRIDGE, "type", "bridge")
    run("ip", "address", "add", f"{ADDRESS}/24", "dev", _BRIDGE)
    run("ip", "link", "set", _BRIDGE, "up")
    _create_keys(home, asked.hosts)
    create_directory(home / "array")
    with contextlib.ExitStack() as stack:
        stores = stack.enter_context(served(from_plain(Storage, json.loads(asked.storage)), home))
        hosts = [
            stack.enter_context(started_host(home, number, asked.storage, asked.ahead.get(str(number), 0.0)))
            for number in range(1, asked.hosts + 1)
        ]
        if asked.slurm:
            stack.enter_context(slurm_on(home, hosts))
        done = []
        for number, step in enumerate(steps, 1):
            before = _private_files(hosts)
            with SecretWatch() as seen:
                found = _do(step, number, home, hosts, stores)
            litter = _litter(hosts, before)
            done.append(dataclasses.replace(found, secrets=seen.count, shown=tuple(seen.shown), litter=litter))
    (home / "done.json").write_text(json.dumps([to_plain(of) for of in done]) + "\n")


if __name__ == "__main__":
    main()
