"""``pytest-ckpt simulate`` simulates months of training with the save and load times of a run."""

from __future__ import annotations

import json

import pytest

from pytest_ckpt.cli.main import main
from tests.support.synthetic_run import write_run

pytestmark = pytest.mark.covers(commands=("simulate",))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    made = tmp_path_factory.mktemp("simulated") / "run"
    write_run(made, save=0.01, load=0.01, noise=0.0)
    return made


@pytest.fixture
def simulate(capsys, directory):
    """Return a function that runs ``pytest-ckpt simulate`` on a run's directory and returns its output."""

    def run(*words):
        code = main(["simulate", str(directory), "--runs=200", *words])
        output = capsys.readouterr()
        assert (code, output.err) == (0, "")
        return output.out

    return run


@pytest.fixture
def rows(simulate):
    return lambda *words: json.loads(simulate("--json", *words))["rows"]


def test_a_row_for_each_cluster_with_its_band_and_its_closed_form(rows) -> None:
    found = rows("--cluster=1000,16000")
    assert [row["accelerators"] for row in found] == [1000, 16000]
    for row in found:
        assert row["goodput_low"] <= row["goodput"] <= row["goodput_high"]
        assert row["goodput"] == pytest.approx(row["closed_form"], abs=0.005)
        # The made-up run has a thousandth of the full size, so its saves of 10 ms are projected to 10 s.
        assert row["projected"]
        lost = row["saving_hours"] + row["lost_work_hours"] + row["restoring_hours"]
        assert 1 - lost / 720 == pytest.approx(row["goodput"], abs=0.005)
    assert found[0]["goodput"] > found[1]["goodput"]
    assert found[0]["is_served"]
    assert found[1]["failures"] == pytest.approx(233, rel=0.05)


def test_the_same_seed_gives_the_same_numbers(simulate) -> None:
    assert simulate("--cluster=16000") == simulate("--cluster=16000")
    assert simulate("--cluster=16000") != simulate("--cluster=16000", "--seed=2")


def test_the_best_interval_loses_least(rows) -> None:
    (best,) = rows("--cluster=16000", "--interval=best")
    assert best["interval_seconds"] == best["best_interval_seconds"]
    for interval in ("60s", "1h"):
        (other,) = rows("--cluster=16000", f"--interval={interval}")
        assert other["goodput"] < best["goodput"]


def test_the_simulation_uses_the_rules_of_the_run_unless_options_override_them(rows) -> None:
    (own,) = rows("--cluster=16000")
    (other,) = rows("--cluster=16000", "--ckpt-failures=mttf:500000h", "--ckpt-checkpoints-per-failure=10")
    assert own["interval_seconds"] == pytest.approx(556.8, rel=0.01)
    assert other["failures"] < own["failures"]


def test_a_restart_and_bursts_cost_what_they_cost(rows) -> None:
    (usual,) = rows("--cluster=16000")
    (slow,) = rows("--cluster=16000", "--restart-time=10min")
    assert slow["restoring_hours"] > usual["restoring_hours"] + 30
    (burst,) = rows("--cluster=16000", "--arrivals=bursts:20%")
    (weibull,) = rows("--cluster=16000", "--arrivals=weibull:0.7")
    assert burst["goodput"] != usual["goodput"] != weibull["goodput"]


def test_the_text_and_the_page_state_that_nothing_is_certified(simulate, tmp_path) -> None:
    page = tmp_path / "simulated.html"
    text = simulate("--cluster=1000,16000", f"--html={page}")
    assert "A simulation is not certified" in text
    assert "projected to full size" in text
    assert text.isascii()
    assert "Goodput over cluster size" in page.read_text()


def test_several_directories_stand_side_by_side(directory, tmp_path, capsys) -> None:
    other = tmp_path / "slower"
    write_run(other, save=0.05, load=0.05)
    assert main(["simulate", str(directory), str(other), "--cluster=16000", "--runs=200", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    assert [row["subject"].split(":")[0] for row in found] == [directory.name, "slower"]
    assert found[0]["goodput"] > found[1]["goodput"]


def test_a_directory_that_was_changed_is_named(tmp_path, capsys) -> None:
    made = tmp_path / "changed"
    write_run(made)
    (file,) = (made / "measurements").iterdir()
    file.write_text(file.read_text() + " ")
    assert main(["simulate", str(made), "--cluster=16000", "--runs=10"]) == 0
    assert "is not as its run left it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected_text"),
    [
        (("--cluster=0",), "--ckpt-cluster 0"),
        (("--cluster=" + ",".join(map(str, range(1, 23))),), "22 clusters"),
        (("--cluster=900000000",), "fails more than"),
        (("--days=0",), "--days=0"),
        (("--runs=1e3",), "--runs=1e3"),
        (("--seed=-1",), "--seed=-1"),
        (("--interval=soon",), "--interval=soon"),
        (("--interval=0s",), "more than 0 s"),
        (("--restart-time=x",), "--restart-time=x"),
        (("--arrivals=weibul:0.7",), "did you mean 'weibull'"),
        (("--arrivals=weibull:9",), "a shape from"),
        (("--arrivals=bursts:100%",), "a share up to"),
        (("--arrivals=exponential:1",), "Valid values:"),
    ],
)
def test_errors_exit_with_4_and_state_the_cause(words, expected_text, directory, capsys) -> None:
    assert main(["simulate", str(directory), *words]) == 4
    output = capsys.readouterr().err
    assert expected_text in output
    assert "Traceback" not in output


@pytest.mark.parametrize("name", ["nothing", ""])
def test_a_directory_that_holds_no_run(name, tmp_path, capsys) -> None:
    assert main(["simulate", str(tmp_path / name)]) == 4
    assert "Traceback" not in capsys.readouterr().err


def test_a_run_that_did_not_end_well_has_nothing_to_simulate(tmp_path, capsys) -> None:
    made = tmp_path / "failed"
    write_run(made, fails=True)
    code = main(["simulate", str(made), "--cluster=16000", "--runs=10"])
    assert code in {0, 4}
    assert "Traceback" not in capsys.readouterr().err
