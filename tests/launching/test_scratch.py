"""The scratch directory of a launch is removed when the launch ends, however the controller ends.

A keeper process removes the directory if the controller was killed.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_ckpt.launching.scratch import ScratchDirectory
from pytest_ckpt.support.processes import processes_of_session
from tests.support import CHECKOUT
from tests.support.machine import eventually

# A controller whose launcher has put a file into the directory of the launch. Both continue until they are ended.
CONTROLLER = """
import subprocess, sys
from pathlib import Path
from pytest_ckpt.launching.scratch import ScratchDirectory, ScratchKeeper
directory = ScratchDirectory()
launcher = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.DEVNULL, start_new_session=True)
keeper = ScratchKeeper(directory, launcher.pid)
Path(directory.path, "a session").mkdir()
Path(directory.path, "a session", "segment").write_bytes(b"of shared memory")
print(directory.path, launcher.pid, keeper._process.pid, flush=True)
sys.stdin.readline()
launcher.kill()
launcher.wait()
keeper.remove()
"""
WAITS = "import time; time.sleep(600)"
IGNORES = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"


@dataclass(frozen=True)
class Started:
    controller: subprocess.Popen[str]
    directory: Path
    launcher: int
    keeper: int

    def pending(self) -> int:
        """Return the keeper's pending signals as a bit mask."""
        status = Path(f"/proc/{self.keeper}/status").read_text()
        lines = dict(line.split(":\t", 1) for line in status.splitlines())
        return int(lines["SigPnd"], 16) | int(lines["ShdPnd"], 16)

    def waits(self) -> bool:
        return "sigtimedwait" in Path(f"/proc/{self.keeper}/wchan").read_text()


@pytest.fixture
def started(request: pytest.FixtureRequest) -> Iterator[Started]:
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, getattr(request, "param", WAITS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=CHECKOUT,
        text=True,
    )
    assert controller.stdout
    directory, launcher, keeper = controller.stdout.readline().split()
    found = Started(controller, Path(directory), int(launcher), int(keeper))
    yield found
    controller.kill()
    controller.communicate()
    subprocess.run(["kill", "-KILL", launcher], check=False, capture_output=True)
    eventually(lambda: not found.directory.exists(), "the directory is gone")
    eventually(lambda: not processes_of_session(found.keeper), "so is who kept it")


def test_a_killed_controllers_directory_goes_when_its_launcher_has_ended(started: Started) -> None:
    # The keeper would soon end the launcher by itself.
    os.kill(started.keeper, signal.SIGSTOP)
    started.controller.kill()
    started.controller.wait()
    assert started.directory.exists()
    subprocess.run(["kill", "-TERM", str(started.launcher)], check=True)
    os.kill(started.keeper, signal.SIGCONT)
    eventually(lambda: not started.directory.exists(), "the directory is gone")
    assert not processes_of_session(started.launcher)


@pytest.mark.parametrize("started", [IGNORES], indirect=True)
def test_a_launcher_that_does_not_end_by_itself_is_killed(started: Started) -> None:
    started.controller.kill()
    eventually(lambda: not started.directory.exists(), "the directory is gone")
    assert not processes_of_session(started.launcher)


def test_the_directory_stays_while_the_controller_lives_whoever_signals_the_keeper(started: Started) -> None:
    eventually(started.waits, "the keeper waits")
    subprocess.run(["kill", "-TERM", str(started.keeper)], check=True)
    eventually(lambda: not started.pending() and started.waits(), "the keeper has seen it and waits again")
    assert started.directory.exists()


def test_a_launch_that_ends_takes_directory_and_keeper_with_it(started: Started) -> None:
    started.controller.communicate("\n")
    assert started.controller.returncode == 0
    assert not started.directory.exists()
    assert not processes_of_session(started.keeper)


def test_the_next_launch_removes_the_directory_of_a_keeper_that_was_killed_too(started: Started) -> None:
    subprocess.run(["kill", "-KILL", str(started.keeper)], check=True)
    assert started.directory.exists()
    # From now on, launches of other tests may remove the directory, too.
    started.controller.kill()
    started.controller.wait()

    def check_removed_by_launch() -> bool:
        ScratchDirectory().remove()
        return not started.directory.exists()

    # The kernel may need a moment to end the killed process, which keeps its lock until then.
    eventually(check_removed_by_launch, "the next launch has removed it")


def test_a_directory_that_is_kept_stays_whatever_number_its_controller_has_here(started: Started) -> None:
    """A scratch directory in use is not removed, even if the process id in its name belongs to no process here.

    This happens if the controller is in another PID namespace that shares /dev/shm with this one.
    """
    elsewhere = started.directory.rename(started.directory.with_name("ckpt-999999999.elsewhere"))
    ScratchDirectory().remove()
    assert elsewhere.exists()
    # The keeper alone also keeps the directory. It is stopped, because it would soon end the launcher.
    os.kill(started.keeper, signal.SIGSTOP)
    started.controller.kill()
    started.controller.wait()
    ScratchDirectory().remove()
    assert elsewhere.exists()
    elsewhere.rename(started.directory)
    os.kill(started.keeper, signal.SIGCONT)


def test_a_directory_that_nobody_keeps_goes_though_its_number_is_of_a_process_here() -> None:
    first = ScratchDirectory()
    left = Path(first.path).with_name("ckpt-1.of_another_namespace")
    left.mkdir()
    ScratchDirectory().remove()
    assert not left.exists()
    assert Path(first.path).exists()
    first.remove()


def test_a_new_directory_that_another_launch_takes_for_abandoned_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """If another launch removes a new scratch directory before the directory is locked, a new directory is created.

    In this test, this happens twice: once before the directory is opened, and once after it is opened.
    """
    make, made = tempfile.mkdtemp, list[Path]()

    def find_concurrently(**words: str) -> str:
        made.append(Path(make(**words)))
        if len(made) == 1:
            made[0].rmdir()
        return str(made[-1])

    def lock(descriptor: int, flags: int, real: Callable[[int, int], None] = fcntl.flock) -> None:
        if len(made) == 2 and made[1].exists():
            made[1].rmdir()
        real(descriptor, flags)

    monkeypatch.setattr(tempfile, "mkdtemp", find_concurrently)
    monkeypatch.setattr(fcntl, "flock", lock)
    directory = ScratchDirectory()
    assert [path.exists() for path in made] == [False, False, True]
    assert directory.path == str(made[2])
    directory.remove()


def test_a_new_directory_waits_for_the_one_who_removes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    make, flock, made, waits = tempfile.mkdtemp, fcntl.flock, list[Path](), threading.Event()

    def remove(descriptor: int) -> None:
        waits.wait()
        made[0].rmdir()
        os.close(descriptor)

    def locked_by_another(**words: str) -> str:
        made.append(Path(make(**words)))
        if len(made) == 1:
            descriptor = os.open(made[0], os.O_RDONLY)
            flock(descriptor, fcntl.LOCK_EX)
            threading.Thread(target=remove, args=(descriptor,)).start()
        return str(made[-1])

    def lock(descriptor: int, flags: int) -> None:
        if made:
            waits.set()
        flock(descriptor, flags)

    monkeypatch.setattr(tempfile, "mkdtemp", locked_by_another)
    monkeypatch.setattr(fcntl, "flock", lock)
    directory = ScratchDirectory()
    assert [path.exists() for path in made] == [False, True]
    directory.remove()
