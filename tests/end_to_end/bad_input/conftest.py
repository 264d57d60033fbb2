"""Fixtures: a target, and functions that start a run which must be refused before it writes anything."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.support import CHECKOUT
from tests.support.refusals import INSIDE_MPI, is_refusal, succeeds


@pytest.fixture(autouse=True)
def outside_mpi(monkeypatch):
    for name in INSIDE_MPI:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def target(pytester):
    directory = pytester.path / "target"
    directory.mkdir()
    return directory


@pytest.fixture
def refused(run_pytest, pytester, target):
    """Return a function that runs pytest, checks that the run is refused, and returns the error message.

    The function also checks that the message contains every text in ``expected_text``, and that no new file exists.
    """

    def run(*arguments, expected_text, cluster="16000"):
        before = everything_in(pytester.path)
        result = run_pytest(f"--ckpt-target={target}", f"--cluster={cluster}", *arguments)
        is_refusal(result.ret, result.stderr.str(), expected_text)
        assert "Traceback" not in result.stdout.str()
        assert everything_in(pytester.path) == before
        return result.stderr.str()

    return run


def everything_in(directory):
    """Return every path below a directory, as tuples of names. Files of pytester and Python are omitted."""
    ours = (p.relative_to(directory).parts for p in directory.rglob("*"))
    others = {"stdout", "stderr", "__pycache__"}
    return {parts for parts in ours if parts[0] not in others and not parts[0].startswith("runpytest-")}


@pytest.fixture
def mounted(pytester, target, monkeypatch):
    """Return a function that runs pytest with a tmpfs mounted on the target, and returns the completed process.

    The tmpfs exists only during the run. The last lines of the output are the names of the files left in the tmpfs.
    """
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    ways = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])
    mount = ["mount", "-t", "tmpfs", "ckpt-test", str(target)]
    way = next((w for w in ways if shutil.which("unshare") and succeeds([*w, *mount])), None)
    if way is None:
        pytest.skip("this user cannot mount anything, not even in a namespace")
    script = 'mount -t tmpfs -o "$1" ckpt-test target && shift && "$@"; code=$?; echo left:; ls -A target; exit $code'

    def run(options, *arguments):
        words = [sys.executable, "-m", "pytest", "-p", "pytest_ckpt.plugin.session_hooks", "-p", "no:cacheprovider",
                 "--ckpt-target=target", "--cluster=16000", *arguments]  # fmt: skip
        return subprocess.run(
            [*way, "sh", "-c", script, "sh", options, *words],
            cwd=pytester.path, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run
