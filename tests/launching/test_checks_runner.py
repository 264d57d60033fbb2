"""`run_check` runs a check in a separate process. The check may return, raise an error, or block in a call."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.facts.checks import BY_NAME
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.launching.observations import run_check
from pytest_ckpt.support import waits
from pytest_ckpt.support.processes import processes_of_session
from tests.support.machine import Mounts, eventually, frozen, patience

CHECK = BY_NAME["LIVE.calls"]
# Long enough for a Python to start and for a check to report its first call; short enough for a test.
AMPLE_SECONDS, DEADLINE_SECONDS = 120.0, 2

Run = Callable[..., Observation]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that calls `run_check`, but with the Python code ``code`` in place of the check's module."""

    def run_code(
        code: str, *, deadline_seconds: float = AMPLE_SECONDS, directory: Path | None = None, **more: Any
    ) -> Any:
        home = tmp_path / "impostor"
        home.mkdir()
        (home / "code.py").write_text(textwrap.dedent(code))
        (home / "sitecustomize.py").write_text(
            "import sys, types\n"
            "if 'pytest_ckpt.conformance' in sys.orig_argv:\n"
            "    module = types.ModuleType('impostor')\n"
            f"    exec(open({str(home / 'code.py')!r}).read(), module.__dict__)\n"
            "    sys.modules['pytest_ckpt.conformance.posix.live'] = module\n"
        )
        monkeypatch.setenv("PYTHONPATH", str(home))
        target = directory or tmp_path / "target"
        target.mkdir(exist_ok=True)
        return run_check(
            CHECK,
            directory=target,
            witness=tmp_path,
            share=0.5,
            seed=7,
            deadline_seconds=deadline_seconds,
            log_directory=tmp_path,
            **more,
        )

    return run_code


def test_the_complete_findings_of_a_check_come_back(run: Run, tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []
    seen = run(
        """
        def calls(context, findings):
            context.report_call("open", str(context.directory))
            findings.trials, findings.measured = 3, 0.25
            findings.facts["share and seed"] = f"{context.share} {context.seed} {context.witness}"
            findings.wrong("an odd byte", where="file at 17", seen="1", expected="0")
        """,
        report_call=lambda call, path: calls.append((call, path)),
    )
    assert (seen.requirement, seen.subject, seen.trials, seen.measured, seen.unit) == ("LIVE", "calls", 3, 0.25, "s")
    assert seen.anomaly_count == 1
    assert seen.anomalies[0].kind == "an odd byte"
    assert seen.facts == {"share and seed": f"0.5 7 {tmp_path}"}
    assert (seen.not_run, seen.blocked) == ("", None)
    assert [call for call, _ in calls] == ["mkdir", "open", "remove"]
    assert list((tmp_path / "target").iterdir()) == []


def test_a_check_that_cannot_be_made_gives_its_reason(run: Run) -> None:
    seen = run(
        """
        from pytest_ckpt.conformance.context import NotRun
        def calls(context, findings):
            raise NotRun("there is no second client")
        """
    )
    assert seen.not_run == "there is no second client"


@pytest.mark.parametrize(
    "ends",
    [
        "os.kill(os.getpid(), 9)",
        "os._exit(0)",
        pytest.param("place.report_call('open', 'x'); time.sleep(600)", marks=pytest.mark.thorough),
    ],
)
def test_a_check_that_is_killed_leaves_nothing_in_the_directory_for_temporary_files(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    seen = run(f"import os, time\ndef calls(place, book): {ends}", deadline_seconds=DEADLINE_SECONDS * 5)
    assert seen.not_run or seen.blocked
    assert list(temporary.iterdir()) == []


def test_a_check_that_somebody_stopped_is_no_evidence_about_the_target(run: Run) -> None:
    seen = run(
        """
        import os, signal
        def calls(place, book):
            place.report_call("open", "x")
            os.kill(os.getpid(), signal.SIGSTOP)
        """,
        deadline_seconds=patience(5 * DEADLINE_SECONDS),
    )
    assert seen.blocked is None
    assert "of the check was stopped" in seen.not_run
    assert "in open of x" in seen.not_run


def test_a_file_of_the_current_directory_replaces_no_module_of_a_check(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "colorsys.py").write_text("raise RuntimeError('of the current directory')\n")
    monkeypatch.chdir(tmp_path / "here")
    seen = run("import colorsys\ndef calls(place, book): book.trials = 1")
    assert (seen.not_run, seen.trials) == ("", 1)


def test_the_command_that_makes_the_check_again_works(run: Run, tmp_path: Path) -> None:
    (tmp_path / "target" / "run 1").mkdir(parents=True)
    seen = run(
        """
        def calls(context, findings):
            findings.wrong("an odd byte", where=str(context.directory), seen="1", expected="0")
        """,
        within="run 1",
        power_cut=("cut", "the power"),
    )
    assert seen.anomalies[0].where.startswith(f"{tmp_path}/target/run 1/LIVE.calls-")
    words = shlex.split(seen.reproduce)
    assert words[:4] == [sys.executable, "-m", "pytest_ckpt.conformance", "LIVE.calls"]
    assert f"--directory={tmp_path}/target" in words
    assert "--power-cut=cut 'the power'" in words
    assert "--json" not in words
    paths = os.pathsep.join([os.environ["PYTHONPATH"], *sys.path])
    again = subprocess.run(
        seen.reproduce, shell=True, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths}
    )
    assert again.returncode == 1, again.stderr
    assert "an odd byte" in again.stdout


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os\ndef calls(context, findings): os.kill(os.getpid(), 9)", "killed by signal 9 (SIGKILL)"),
        ("import ctypes\ndef calls(context, findings): ctypes.string_at(0)", "killed by signal 11 (SIGSEGV)"),
        ("def calls(context, findings): raise ValueError('no such thing')", "exit code 3: ValueError: no such thing"),
        ("import os\ndef calls(context, findings): os._exit(0)", "exit code 0: no output"),
        (
            "import os\ndef calls(context, findings): print('[1, 2]', flush=True); os._exit(0)",
            "exit code 0: no output",
        ),
        ("def calls(context, findings): exit(3)", "exit code 3"),
    ],
)  # fmt: skip
def test_a_check_that_breaks_is_not_run_and_gives_the_reason(run: Run, code: str, why: str) -> None:
    seen = run(code)
    assert seen.not_run.startswith("the check itself broke: ")
    assert why in seen.not_run
    assert (seen.requirement, seen.subject, seen.anomaly_count, seen.blocked) == ("LIVE", "calls", 0, None)


def test_children_that_outlive_a_check_hold_nobody_up_and_are_ended(run: Run) -> None:
    seen = run(
        """
        import os, subprocess
        def calls(context, findings):
            child = subprocess.Popen(["sleep", "1000"])
            child.returncode = 0
            findings.facts["session"] = str(os.getsid(0))
        """
    )
    assert not seen.not_run
    assert processes_of_session(int(seen.facts["session"])) == []


@pytest.mark.parametrize("file_system", ["ext4", pytest.param("xfs", marks=pytest.mark.thorough)])
def test_a_call_that_never_returns_is_named_with_its_stack_while_the_target_still_hangs(
    run: Run, mount: Mounts, file_system: str
) -> None:
    point = mount(file_system, 400)
    pids, seconds = list[int](), round(patience(DEADLINE_SECONDS))

    with frozen(point):
        # A check first creates its directory, so it is blocked in that call.
        seen = run("def calls(context, findings): pass", directory=point, deadline_seconds=seconds)
        assert seen.blocked
        pids = [int(line.split()[1].rstrip(",")) for line in seen.blocked.stack.splitlines() if " task " in line]
        left = processes_of_session(pids[0])
    assert (seen.blocked.host, seen.blocked.call) == (socket.gethostname(), "mkdir")
    assert seen.blocked.path.startswith(f"{point}/LIVE.calls-")
    assert f"(--ckpt-io-timeout {seconds} s)" in seen.blocked.message
    assert "state D" in seen.blocked.stack
    assert "system call 83" in seen.blocked.stack or os.uname().machine != "x86_64"
    # The kernel stack, which only root may read.
    assert "[<0>]" in seen.blocked.stack
    assert f"processes {pids[0]} cannot be ended: they are blocked in the kernel" in seen.blocked.stack
    assert left == [pids[0]]
    assert (seen.not_run, seen.anomaly_count) == ("", 0)
    eventually(lambda: not processes_of_session(pids[0]), "the blocked check ends when the target answers")


@pytest.mark.thorough
def test_the_child_that_is_blocked_is_named_too(run: Run, mount: Mounts) -> None:
    point = mount("ext4", 64)
    seen = run(
        f"""
        import os, subprocess
        def calls(context, findings):
            with open(context.directory / "file", "wb") as file:
                file.write(b"dirty")
            subprocess.run(["fsfreeze", "-f", "{point}"], check=True)
            context.report_call("fsync", str(context.directory / "file"))
            subprocess.run(["touch", context.directory / "new"])
        """,
        directory=point,
        deadline_seconds=patience(DEADLINE_SECONDS),
    )
    subprocess.run(["fsfreeze", "-u", str(point)], check=True)
    assert seen.blocked
    assert seen.blocked.call == "fsync"
    assert seen.blocked.path.endswith("/file")
    stacks = seen.blocked.stack.split("process ")
    assert any("(touch): state D" in stack for stack in stacks), seen.blocked.stack
    assert any("(python" in stack and "state S" in stack for stack in stacks), seen.blocked.stack


@pytest.mark.thorough
def test_a_check_that_loops_for_ever_is_ended(run: Run) -> None:
    seen = run(
        """
        def calls(context, findings):
            context.report_call("list", "somewhere")
            while True:
                pass
        """,
        deadline_seconds=patience(DEADLINE_SECONDS),
    )
    assert seen.blocked
    assert (seen.blocked.call, seen.blocked.path) == ("list", "somewhere")
    assert "cannot be ended" not in seen.blocked.stack


@pytest.mark.thorough
def test_a_long_check_whose_calls_progress_is_not_reported_as_hung(run: Run) -> None:
    seconds = patience(DEADLINE_SECONDS)
    seen = run(
        f"""
        import time
        def calls(context, findings):
            end = time.monotonic() + {2 * seconds}
            while time.monotonic() < end:
                context.report_call("stat", "a file")
                time.sleep(0.05)
            findings.trials = 1
        """,
        deadline_seconds=seconds,
    )
    assert (seen.blocked, seen.trials) == (None, 1)


def test_a_check_ends_with_the_process_that_requested_it(run: Run, tmp_path: Path) -> None:
    """If the controller is killed, the process of the check ends too, so that it does not write to the target."""
    code = tmp_path / "controller.py"
    (tmp_path / "held").mkdir()
    code.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from pytest_ckpt.facts.checks import BY_NAME\n"
        "from pytest_ckpt.launching.observations import run_check\n"
        "home = Path(sys.argv[1])\n"
        "run_check(BY_NAME['LIVE.calls'], directory=home / 'held', witness=home, share=1, seed=1,\n"
        "          deadline_seconds=1000, log_directory=home, report_call=lambda call, path: print(path, flush=True))\n"
    )
    run("def calls(context, findings): pass")
    (tmp_path / "impostor" / "code.py").write_text(
        "import os, time\ndef calls(context, findings):\n"
        "    context.report_call('hold', str(os.getpid()))\n    time.sleep(1000)\n"
    )
    paths = os.pathsep.join([os.environ["PYTHONPATH"], *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, str(code), str(tmp_path)]
    controller = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert controller.stdout
    controller.stdout.readline()
    pid = controller.stdout.readline().strip()
    assert (Path("/proc") / pid).exists()
    controller.kill()
    controller.wait()
    controller.stdout.close()
    eventually(lambda: not processes_of_session(int(pid)), "the check has ended")


def test_a_check_in_a_call_that_does_not_return_is_reported_while_it_is_waited_for(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(gate := tmp_path / "gate")
    monkeypatch.setattr(waits, "TELL_SECONDS", 0.0)
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        if f"open of {gate}" in text:
            with contextlib.suppress(OSError):  # the controller does not listen yet
                os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))

    with waits.telling(say), waits.waiting("check LIVE.calls"):
        seen = run(
            f"""
            def calls(context, findings):
                context.report_call("open", {str(gate)!r})
                open({str(gate)!r}).close()
                findings.trials = 1
            """
        )
    assert (seen.trials, seen.not_run) == (1, "")
    assert any(
        re.fullmatch(rf"check LIVE.calls: \d+ s; it has been in open of {gate} for \d+ s", text) for text in told
    )
