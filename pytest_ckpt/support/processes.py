"""Ends the processes of a run, and describes processes that do not end.

A rank that outlives its run could still write to the target. A process that cannot be ended is blocked in the kernel;
the kernel reports the blocking call.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.support import waits

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Iterator

MARK = "PYTEST_CKPT_RUN"
"""The environment variable that marks every process of a run; its value is the run's id."""

LAUNCH = "PYTEST_CKPT_LAUNCH"
"""The environment variable that marks every process of a launch; its value differs between the launches of a run."""

SWEEP = "/sweep"
"""The suffix of the run's id in the mark of processes that clean up after a run; these are not processes of the run."""

SESSION = "PMIX_SERVER_TMPDIR"
"""The environment variable with the directory in which a launcher's daemon has its sockets and segments."""

SEGMENTS = ("OMPI_MCA_btl_sm_backing_directory", "OMPI_MCA_btl_vader_backing_directory")
"""The environment variables for the directory of Open MPI's shared-memory segments, in version 5 and in earlier
versions."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""The file with an identity that differs for each boot of each kernel; containers on one kernel have the same."""

FROZEN = "in a frozen cgroup"
"""The description of a task whose cgroup is frozen, as by ``docker pause``.

The state of such a task may look like a storage call.
"""

# Stopped by a signal, and by a tracer.
_STOPPED = ("T", "t")
SAID_OF_STOPPED = (*(f"state {state}" for state in _STOPPED), FROZEN)
"""The words by which a stopped task can be recognised in the texts of `blocked_in` and `tasks_blocked_in`."""

_ENDING = (signal.SIGINT, signal.SIGTERM)
_CGROUPS = Path("/sys/fs/cgroup")
_POLL_SECONDS = 0.02
_TERM_SECONDS = 3.0
# A busy machine needs time to end killed processes; a process that needs longer is blocked in the kernel.
_KILL_SECONDS = 15.0


def end_undisturbed() -> None:
    """Ignore Ctrl-C and SIGTERM from now on, because the run is about to end.

    When pytest ends, the plugin restores the signal handlers that it replaced at the start of the run.
    """
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM within the block."""
    with signals_handled_by(signal.SIG_IGN):
        yield


@contextlib.contextmanager
def signals_handled_by(handler: Any) -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM by ``handler`` during a block.

    Only the main thread can set signal handlers. In other threads, the handlers therefore remain unchanged.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in _ENDING}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def describe_exit(exit_code: int) -> str:
    """Return a phrase on how a process ended, such as "ended with exit code 1".

    A negative ``exit_code`` is the negated number of a signal. The caller writes the name of the process before the
    phrase.
    """
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    name = {known.value: known.name for known in signal.Signals}.get(-exit_code)
    return f"was killed by signal {-exit_code}" + (f" ({name})" if name else "")


def marked_processes(run_id: str, launch: str = "") -> list[int]:
    """Return the ids of the processes of this host whose environment variables name the run.

    This process is excluded. With ``launch``, only processes of this launch are returned.
    """
    wanted = {f"{MARK}={run_id}".encode(), *([f"{LAUNCH}={launch}".encode()] if launch else [])}
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted.issubset((entry / "environ").read_bytes().split(b"\0")):
                    found.append(int(entry.name))
    return found


def end_marked(run_id: str, seconds: float = _KILL_SECONDS, *, launch: str = "") -> list[int]:
    """Kill every process of a run, and return the ids of processes that still exist after ``seconds``.

    With ``launch``, only processes of this launch are killed. A remaining process is blocked in a kernel call that
    waits for the target.
    """
    return _signal_until_ended(lambda: marked_processes(run_id, launch), signal.SIGKILL, seconds)


def processes_of_session(leader: int) -> list[int]:
    """Return the ids of the processes of this host in the session that ``leader`` started.

    A session can exist after its leader has ended.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                state, _, _, session = _fields(entry)[:4]
                if int(session) == leader and state != "Z":
                    found.append(int(entry.name))
    return found


def end_session(leader: int, seconds: float = _KILL_SECONDS) -> list[int]:
    """Kill every process of a session, and return the ids of processes that still exist after ``seconds``."""
    return _signal_until_ended(lambda: processes_of_session(leader), signal.SIGKILL, seconds)


def blocked_sentence(stuck: list[int]) -> str:
    """Return a sentence that lists killed processes which still exist, because the kernel blocks them."""
    numbers = ", ".join(map(str, stuck))
    return f"processes {numbers} cannot be ended: they are blocked in the kernel until the target answers"


def end_launch(process: subprocess.Popen[bytes], run_id: str) -> list[int]:
    """End a launcher and all processes of its run. Return the ids of the processes that could not be ended.

    The launcher receives SIGTERM, and later SIGKILL if it has not ended. The other processes receive SIGKILL.
    """

    def launcher() -> list[int]:
        return [process.pid] if process.poll() is None else []

    _signal_until_ended(launcher, signal.SIGTERM, _TERM_SECONDS)
    _signal_until_ended(launcher, signal.SIGKILL, _KILL_SECONDS)
    return end_marked(run_id)


def boot_id() -> str:
    """Return the kernel's id of its current boot."""
    return BOOT_ID.read_text().strip()


def blocked_in(pid: int) -> str:
    """Return the kernel's view of a blocked process: state, waiting function, system call, and stack.

    Unreadable values are omitted.
    """
    return _kernel_state(Path("/proc") / str(pid))


def tasks_blocked_in(pids: Iterable[int]) -> str:
    """Return the kernel's view of every task (thread) of these processes, one paragraph each."""
    listed = []
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in sorted((Path("/proc") / str(pid) / "task").iterdir(), key=lambda t: int(t.name)):
                name = "a task that has ended"
                with contextlib.suppress(OSError):
                    name = (task / "comm").read_text().strip()
                listed.append(f"process {pid}, task {task.name} ({name}): {_kernel_state(task)}")
    return "\n".join(listed)


def stopped_among(pids: Iterable[int]) -> int | None:
    """Return the id of a process whose tasks are all stopped; None if ``pids`` contain no such process.

    A signal, a debugger or a frozen cgroup can stop a task.
    """
    return next((pid for pid in pids if _is_stopped(Path("/proc") / str(pid))), None)


def _signal_until_ended(alive: Callable[[], list[int]], number: signal.Signals, seconds: float) -> list[int]:
    end = time.monotonic() + seconds
    signalled: set[int] = set()
    left: list[int] = []
    with waits.waiting(lambda: f"processes {', '.join(map(str, left))} were signalled to end and are still running"):
        while left := alive():
            for pid in left:
                if pid not in signalled:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
                    signalled.add(pid)
            if time.monotonic() > end:
                return left
            waits.print_if_due()
            time.sleep(_POLL_SECONDS)
    return []


def _fields(task: Path) -> list[str]:
    """Return the fields after the name in ``stat`` of a task or process. The first field is the state.

    Raises OSError.
    """
    return (task / "stat").read_text().rpartition(")")[2].split()


def _is_stopped(process: Path) -> bool:
    try:
        return all(map(_is_task_stopped, [*(process / "task").iterdir()]))
    except OSError:
        return False


def _is_task_stopped(task: Path) -> bool:
    return _fields(task)[0] in _STOPPED or _is_frozen(task)


def _is_frozen(task: Path) -> bool:
    for line in (task / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        with contextlib.suppress(OSError):
            if "freezer" in controllers.split(","):
                if (_CGROUPS / "freezer" / path[1:] / "freezer.state").read_text().strip() != "THAWED":
                    return True
            elif not controllers and "frozen 1" in (_CGROUPS / path[1:] / "cgroup.events").read_text():
                return True
    return False


def _kernel_state(task: Path) -> str:
    listed = []
    with contextlib.suppress(OSError):
        listed.append(f"state {_fields(task)[0]}")
    with contextlib.suppress(OSError):
        listed += [FROZEN] if _is_frozen(task) else []
    with contextlib.suppress(OSError):
        listed.append(f"in {(task / 'wchan').read_text().strip() or '?'}")
    with contextlib.suppress(OSError):
        # The number of the system call and its arguments; "running" for a task that is not in a call.
        listed.append(f"system call {(task / 'syscall').read_text().split()[0]}")
    with contextlib.suppress(OSError):
        listed.append((task / "stack").read_text().strip())
    return "\n".join(filter(None, listed))
