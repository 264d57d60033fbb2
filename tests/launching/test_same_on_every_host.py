"""A run is refused if hosts have another directory at the target's path. The error names these hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.end_to_end import TINY
from tests.support.hosts.lab import Step, StepResult, need_hosts, on_hosts

HOSTS = ("--ckpt-ranks=3", "--ckpt-hosts=h1:1,h2:1,h3:1")
READ_ONLY = 'mount --bind "$TARGET" "$TARGET"; mount -o remount,bind,ro "$TARGET"'


@pytest.fixture(scope="module")
def results(create_home: Callable[[str], Path]) -> dict[str, StepResult]:
    """Return {name of a run: its result}. In most runs, a host has another directory at the target's path."""
    need_hosts()
    before = {
        "local": ((2, 'mount -t tmpfs local "$TARGET"'),),
        "read-only": ((3, READ_ONLY),),
        "export": ((2, 'mkdir "$TARGET/../another"; mount --bind "$TARGET/../another" "$TARGET"'),),
        "all": ((2, 'mount -t tmpfs local "$TARGET"'), (3, READ_ONLY)),
        "options": ((3, 'mount --bind "$TARGET" "$TARGET"; mount -o remount,bind,noatime "$TARGET"'),),
        "alike": (),
        "gone": (),
    }
    steps = {name: Step(options=(*TINY, *HOSTS), before=lines) for name, lines in before.items()}
    steps["gone"] = Step(options=(*TINY, "--ckpt-hosts=h2:2"), before=((2, 'umount -l "$TARGET/.."'),))
    # This step is the last, because nothing can be started on these hosts afterwards.
    steps["silent"] = Step(options=(*TINY, *HOSTS), before=((2, "pkill -x sshd"), (3, "pkill -STOP -x sshd")))
    return dict(zip(steps, on_hosts(create_home("hosts"), 3, *steps.values()), strict=True))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("step", "named", "others"),
    [
        ("local", ("h2: tmpfs (local) instead of fuse (mfs#", "h2: tmpfs"), ("h1:", "h3:")),
        ("read-only", ("h3: mounted otherwise (has ro)", "no file can be made there (Read-only"), ("h2:",)),
        ("export", ("h2: the file that pytest made is not there (No such file or directory)",), ("h1:", "h3:")),
        ("all", ("h2: tmpfs (local) instead of", "; h3: mounted otherwise (has ro)"), ("h1:",)),
        ("options", ("h3: mounted otherwise (has noatime; lacks relatime)",), ("h1:", "h2:")),
        ("gone", ("h2: it is not a directory there",), ("h1:",)),
    ],
)
def test_hosts_with_something_else_at_the_path_are_named_at_once(
    results: dict[str, StepResult], step: str, named: tuple[str, ...], others: tuple[str, ...]
) -> None:
    assert results[step].code == 4, results[step].text
    text = " ".join(results[step].text.split())
    assert "is not the same on every host" in text
    assert [part for part in named if part not in text] == [], text
    assert [part for part in others if part in text] == [], text
    assert not results[step].run.report.exists()


@pytest.mark.thorough
def test_hosts_that_ssh_does_not_reach_are_all_named_instead_of_a_launch_that_hangs(
    results: dict[str, StepResult],
) -> None:
    assert results["silent"].code == 4, results["silent"].text
    text = " ".join(results["silent"].text.split())
    # h2 has no ssh server any more; h3 accepts connections and does not answer.
    assert "ssh does not reach h2 (connect to host h2 port 22: Connection " in text
    assert "; h3 (Connection timed out during banner exchange). " in text
    assert "h1 (" not in text
    assert results["silent"].left == ()


@pytest.mark.thorough
def test_hosts_that_are_alike_are_measured(results: dict[str, StepResult]) -> None:
    assert results["alike"].code == 0, results["alike"].text
    assert results["alike"].run.measurement("llama3-8b-open-3")["hosts"] == ["h1", "h2", "h3"]


@pytest.mark.thorough
@pytest.mark.parametrize("step", ["local", "read-only", "export", "all", "options", "alike"])
def test_nothing_is_left_on_any_host(results: dict[str, StepResult], step: str) -> None:
    assert results[step].left == ()
