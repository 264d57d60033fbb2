"""``pytest-ckpt project``: what more clients would get, by the folders of runs with a few counts of them."""

from __future__ import annotations

import json

import pytest

from pytest_ckpt.cli.main import main
from tests.support.made_up_run import make_run

pytestmark = pytest.mark.covers(commands=("project",))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Runs of 1, 2, 4 and 8 ranks whose saves share a ceiling of four ranks' rate; loads grow with the ranks."""
    home = tmp_path_factory.mktemp("project")
    made = []
    for ranks in (1, 2, 4, 8):
        folder = home / f"ranks-{ranks}"
        options = {"ckpt_processes": str(ranks)}
        make_run(folder, save=0.4 / min(ranks, 2), load=0.2 / ranks, noise=0.01, seed=ranks, options=options)
        made.append(str(folder))
    return made


@pytest.fixture
def project(folders, capsys):
    def run(*words):
        code = main(["project", *folders, "--clients=128", *words])
        said = capsys.readouterr()
        assert (code, said.err) == (0, "")
        return said.out

    return run


def test_saves_saturate_and_loads_do_not(project) -> None:
    rows = {row["kind"]: row for row in json.loads(project("--json"))["rows"]}
    assert rows["save"]["unit"] == "ranks"
    assert list(rows["save"]["rates"]) == ["1", "2", "4", "8"]
    assert rows["save"]["projection"]["why_not"] == ""
    assert rows["save"]["projection"]["median"] == pytest.approx(sum(rows["save"]["rates"]["8"]) / 3, rel=0.2)
    assert "no ceiling shows" in rows["load"]["projection"]["why_not"]


def test_network_and_ceiling_bound_what_is_not_determined(project) -> None:
    rows = {row["kind"]: row for row in json.loads(project("--json", "--client-rate=1MB", "--ceiling=10GB"))["rows"]}
    assert rows["load"]["projection"]["high"] == 128e6


def test_lines_say_that_nothing_is_certified(project) -> None:
    text = project()
    assert "It certifies nothing" in text
    assert "90 % interval" in text
    assert "no projection, only bounds" in text
    assert text.isascii()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--clients=0",), "--clients=0"),
        (("--clients=many",), "--clients=many"),
        (("--ceiling=fast",), "--ceiling=fast"),
        (("--client-rate=0GB",), "--client-rate=0GB"),
    ],
)
def test_errors_end_with_4_and_say_what_is_wrong(words, says, folders, capsys) -> None:
    assert main(["project", *folders, *(words if "--clients" in words[0] else ("--clients=128", *words))]) == 4
    assert says in capsys.readouterr().err


def test_too_few_counts_are_named(folders, tmp_path, capsys) -> None:
    assert main(["project", *folders[:2], "--clients=128"]) == 4
    assert "1, 2 ranks" in capsys.readouterr().err
    assert main(["project", str(tmp_path / "nothing"), "--clients=128"]) == 4
    assert "is no folder" in capsys.readouterr().err
