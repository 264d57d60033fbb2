"""Ranks start on other hosts, even if the path of Python contains a space."""

from __future__ import annotations

import itertools
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.facts.settings import HostSlots
from pytest_ckpt.launching import launcher as launcher_module
from pytest_ckpt.launching.launcher import Launcher, find_launcher
from pytest_ckpt.launching.remote_shell import AGENT, for_sh, quoted, spaced
from pytest_ckpt.support.errors import UsageError
from tests.support.end_to_end import TINY
from tests.support.hosts.lab import Step, need_hosts, on_hosts
from tests.support.hosts.storage import HONEST_FUSE
from tests.support.machine import need

LOGS_IN_WITH = (
    "sed 's#^root:.*#root:x:0:0:root:/root:{shell}#' /etc/passwd > /run/passwd-{number}; "
    "mount --bind /run/passwd-{number} /etc/passwd"
)
PLACE = "/srv/a directory"
PROGRAM = f"{PLACE}/bin/mpiexec"
WORDS = (
    "node2",
    f"PRTE_PREFIX={PLACE};export PRTE_PREFIX;LD_LIBRARY_PATH={PLACE}/lib:$LD_LIBRARY_PATH;{PLACE}/bin/prted",
    "--prtemca",
    "plm_ssh_agent",
    '"sh -c ours"',
    "--prtemca",
    "plm",
    '"ssh"',
)


def launcher(*hosts: str, version: str = "mpiexec (Open MPI) 5.0.11", program: str = PROGRAM) -> Launcher:
    slots = tuple(HostSlots(name=host, slots=2) for host in hosts)
    return Launcher(template=(program,), version=version, hosts=slots)


def test_a_path_with_spaces_is_quoted_for_the_remote_shell() -> None:
    found = quoted(WORDS, [PLACE])
    assert found[0] == "node2"
    assert found[2:] == ["--prtemca", "plm", '"ssh"']
    shown = subprocess.run(
        ["sh", "-c", found[1].replace(f"{PLACE.replace(' ', chr(92) + ' ')}/bin/prted", "env")],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": ""},
    ).stdout.splitlines()
    assert f"PRTE_PREFIX={PLACE}" in shown
    assert f"LD_LIBRARY_PATH={PLACE}/lib:" in shown


def test_a_word_that_is_already_quoted_is_unchanged() -> None:
    assert quoted([f'"{PLACE}/bin/prted"', f"'{PLACE}'"], [PLACE]) == [f'"{PLACE}/bin/prted"', f"'{PLACE}'"]


@pytest.mark.parametrize("shell", ["sh", "bash", "tcsh"])
def test_a_command_for_sh_means_the_same_to_login_shells_of_all_kinds(shell: str) -> None:
    need(shutil.which(shell), f"there is no {shell}")
    command = """A='a b'; export A; printf '%s|' "$A" 'it'\\''s!' "!x" '$A' "\\\\" `echo c`"""
    shown = subprocess.run([shell, "-c", for_sh(command)], capture_output=True, text=True, check=True, env={}).stdout
    assert shown == r"a b|it's!|!x|$A|\|c|"


def test_open_mpi_is_given_a_shell_that_quotes_and_that_calls_the_user_s() -> None:
    inherited = {"PRTE_MCA_plm_ssh_agent": "ssh -F /etc/config"}
    environment = launcher("node2").environment("run", "/tmp", inherited)
    assert environment["PRTE_MCA_plm_ssh_agent"].split(" ")[:2] == ["sh", "-c"]
    assert environment["PYTEST_CKPT_SHELL"] == "ssh -F /etc/config"
    assert environment["PYTEST_CKPT_SPACED"] == f'["{PLACE}"]'


@pytest.mark.parametrize(
    "asked",
    [
        launcher(),
        launcher("node2", version="HYDRA build details: Version: 4.0"),
    ],
    ids=["no hosts", "another launcher"],
)
def test_others_are_given_none(asked: Launcher) -> None:
    assert "PRTE_MCA_plm_ssh_agent" not in asked.environment("run", "/tmp", {})
    assert spaced("/srv/directory/bin/mpiexec") == []


@pytest.mark.thorough
def test_ranks_start_on_another_host_from_a_path_with_a_space(create_home: Callable[[str], Path]) -> None:
    need_hosts(HONEST_FUSE)
    place = "/run/a directory"
    mounted = f"mkdir '{place}'; mount --bind {shlex.quote(sys.prefix)} '{place}'"
    started = f"exec '{place}/bin/python' -m tests.support.hosts.large_job h2:2 1000"
    job = f"{mounted}; ssh h2 {shlex.quote(mounted)}; {started}"
    (done,) = on_hosts(create_home("hosts"), 2, Step(words=("sh", "-euc", job)), storage=HONEST_FUSE)
    assert done.text.splitlines()[-1] == '{"failure": null, "hosts": [["h2", [0, 1]]]}', done.text


@pytest.mark.thorough
def test_the_environment_reaches_ranks_whatever_the_login_shell_though_ssh_hands_none_on(
    create_home: Callable[[str], Path],
) -> None:
    """Ranks on other hosts receive the environment of the run, although ssh does not pass it. Any login shell works.

    The launcher sends the environment to its daemons. The login shell only starts a daemon.
    """
    need_hosts(HONEST_FUSE)
    home = create_home("hosts")
    agent = home / "agent"
    agent.write_text(f'#!/bin/sh\nexec env -i PATH={home}/ssh:/usr/bin:/bin HOME=/root ssh "$@"\n')
    agent.chmod(0o755)
    shells = itertools.product(["/bin/sh", *filter(None, [shutil.which("tcsh")])], repeat=2)
    options = (*TINY, "--ckpt-engine=stream", "--ckpt-gate-table=speed-only", "--ckpt-hosts=h2:1,h3:1")
    steps = [
        Step(
            options=options,
            environment={AGENT: str(agent)},
            before=tuple(
                (host, LOGS_IN_WITH.format(shell=own if host == 1 else theirs, number=number)) for host in (1, 2, 3)
            ),
        )
        for number, (own, theirs) in enumerate(shells)
    ]
    for done in on_hosts(home, 3, *steps, storage=HONEST_FUSE):
        assert done.run.code == 0, done.text
        assert done.run.measurement()["hosts"] == ["h2", "h3"]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return a function that writes a shell script as the program mpiexec that the launcher finds."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    def create_program(words: str) -> Path:
        there = tmp_path / "mpiexec"
        there.write_text(f"#!/bin/sh\n{words}\n")
        there.chmod(0o755)
        return there

    return create_program


@pytest.mark.parametrize("is_named", [False, True])
def test_a_launcher_that_is_killed_during_the_version_query_is_reported(
    program: Callable[[str], Path], is_named: bool
) -> None:
    there = program("kill -KILL $$")
    with pytest.raises(UsageError) as refused:
        find_launcher(str(there) if is_named else None, ())
    assert refused.value.what == (
        f"The launcher {there} does not run: '{there} --version' was killed by signal 9 (SIGKILL), without output"
    )
    assert "what killed it" in refused.value.remedy


def test_a_launcher_that_does_not_print_its_version_in_time_is_reported(
    program: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher_module, "_VERSION_SECONDS", 0.25)
    there = program("exec sleep 600")
    with pytest.raises(UsageError, match=rf"does not run: '{there} --version' had not ended after 250 ms\."):
        find_launcher(None, ())


def test_the_message_of_a_failing_mpiexec_is_reported_and_a_custom_launcher_needs_no_version(
    program: Callable[[str], Path],
) -> None:
    there = program("echo usage: launch >&2; echo no library >&2; exit 127")
    with pytest.raises(UsageError, match="--version' ended with exit code 127: no library"):
        find_launcher(None, ())
    assert find_launcher(str(there), ()).version == "usage: launch"
