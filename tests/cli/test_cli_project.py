"""``pytest-ckpt project`` projects throughput to more clients, from runs with few clients."""

from __future__ import annotations

import json

import pytest

from pytest_ckpt.cli.main import main
from tests.support.synthetic_patterns import grown
from tests.support.synthetic_run import write_run

pytestmark = pytest.mark.covers(commands=("project",))


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """Directories of runs with 1, 2, 4 and 8 ranks.

    The save rate stops growing at two ranks. The load rate grows with the ranks.
    """
    home = tmp_path_factory.mktemp("project")
    made = []
    for ranks in (1, 2, 4, 8):
        directory = home / f"ranks-{ranks}"
        options = {"ckpt_ranks": str(ranks)}
        write_run(directory, save=0.4 / min(ranks, 2), load=0.2 / ranks, noise=0.01, seed=ranks, options=options)
        made.append(str(directory))
    return made


@pytest.fixture
def project(directories, capsys):
    def run(*words):
        code = main(["project", *directories, "--clients=128", *words])
        output = capsys.readouterr()
        assert (code, output.err) == (0, "")
        return output.out

    return run


def test_saves_saturate_and_loads_do_not(project) -> None:
    rows = {row["kind"]: row for row in json.loads(project("--json"))["rows"]}
    assert rows["save"]["unit"] == "ranks"
    assert list(rows["save"]["rates"]) == ["1", "2", "4", "8"]
    assert rows["save"]["projection"]["unavailable_reason"] == ""
    assert rows["save"]["projection"]["median"] == pytest.approx(sum(rows["save"]["rates"]["8"]) / 3, rel=0.2)
    assert "no ceiling shows" in rows["load"]["projection"]["unavailable_reason"]


def test_network_and_ceiling_bound_what_is_not_determined(project) -> None:
    rows = {row["kind"]: row for row in json.loads(project("--json", "--client-rate=1MB", "--ceiling=10GB"))["rows"]}
    assert rows["load"]["projection"]["high"] == 128e6


@pytest.fixture(scope="module")
def grown_run(tmp_path_factory):
    """Directory of one run with 8 ranks, of which 1, 2, 4 and 8 were measured in turn.

    The rates do not exceed 2 GB/s. The vendor states a maximum of 3 GB/s.
    """
    directory = tmp_path_factory.mktemp("grown") / "run"
    options = {"ckpt_ranks": "8", "ckpt_suite": "performance,scaling", "ckpt_vendor_max_rate": "3GB/s"}
    rates = {1: 1e9, 2: 1.8e9, 4: 2.0e9, 8: 2.0e9}
    write_run(directory, options=options, change=grown(rates))
    return str(directory)


def rows_of(capsys, *words):
    capsys.readouterr()
    code = main(["project", *words, "--clients=128", "--json"])
    output = capsys.readouterr()
    assert (code, output.err) == (0, "")
    return {row["kind"]: row for row in json.loads(output.out)["rows"]}


def test_one_run_that_grew_its_clients_is_enough(grown_run, capsys) -> None:
    save = rows_of(capsys, grown_run)["save"]
    assert {int(n): round(sorted(of)[1] / 1e9, 2) for n, of in save["rates"].items()} == {
        1: 1.0, 2: 1.8, 4: 2.0, 8: 2.0,
    }  # fmt: skip
    assert save["projection"]["low"] <= 2.0e9 <= save["projection"]["high"] <= 3e9
    assert save["ceiling"] == 3e9


def test_a_run_that_grew_its_clients_and_others_go_together(grown_run, directories, capsys) -> None:
    """A run with one rank is projected together with ``grown_run``: both runs supply rates for one client.

    The rates for other numbers of clients come from ``grown_run`` only.
    """
    alone, both = rows_of(capsys, grown_run)["save"], rows_of(capsys, grown_run, directories[0])["save"]
    added = len(both["rates"]["1"]) - len(alone["rates"]["1"])
    assert added == 3
    assert {n: of for n, of in both["rates"].items() if n != "1"} == {
        n: of for n, of in alone["rates"].items() if n != "1"
    }


def test_the_text_states_that_a_projection_is_not_certified(project) -> None:
    text = project()
    assert "A projection is not certified" in text
    assert "90 % interval" in text
    assert "no projection, only bounds" in text
    assert text.isascii()


@pytest.mark.parametrize(
    ("words", "expected_text"),
    [
        (("--clients=0",), "--clients=0"),
        (("--clients=many",), "--clients=many"),
        (("--ceiling=fast",), "--ceiling=fast"),
        (("--client-rate=0GB",), "--client-rate=0GB"),
    ],
)
def test_errors_exit_with_4_and_state_the_cause(words, expected_text, directories, capsys) -> None:
    assert main(["project", *directories, *(words if "--clients" in words[0] else ("--clients=128", *words))]) == 4
    assert expected_text in capsys.readouterr().err


def test_too_few_counts_are_named(directories, tmp_path, capsys) -> None:
    assert main(["project", *directories[:2], "--clients=128"]) == 4
    assert "1, 2 ranks" in capsys.readouterr().err
    assert main(["project", str(tmp_path / "nothing"), "--clients=128"]) == 4
    assert "is not a directory" in capsys.readouterr().err
