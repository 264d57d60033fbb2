"""``pytest-ckpt size`` prints the storage that a cluster requires; no target is needed."""

from __future__ import annotations

import json

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.demands import FORMULAS

pytestmark = pytest.mark.covers(commands=("size",))


@pytest.fixture
def size(capsys):
    """Return a function that runs ``pytest-ckpt size`` and returns its output.

    The default cluster has 16,000 accelerators.
    """

    def run(*arguments):
        code = main(["size", "--cluster=16000", *arguments])
        output = capsys.readouterr()
        assert (code, output.err) == (0, "")
        return output.out

    return run


@pytest.fixture
def rows(size):
    """Return a function that runs ``pytest-ckpt size --json`` and returns the rows of the printed document."""
    return lambda *arguments: json.loads(size("--json", *arguments))["rows"]


def rates_of(row):
    return {rate["strategy"]: rate["bytes_per_second"] for rate in row["rates"]}


def test_it_leads_with_what_the_cluster_demands_by_strategy(rows) -> None:
    (row,) = rows("--cluster=16000", "--model=llama3-405b")
    assert rates_of(row) == pytest.approx({"sync": 204e9, "async": 10.2e9, "tiered": 1.86e9}, rel=0.005)
    assert row["checkpoint_bytes"] == 5_682_508_791_808
    assert (row["writers"], row["nodes"], row["copies"]) == (512, 64, 62)
    assert row["load_all_bytes_per_second"] == pytest.approx(62 * row["load_bytes_per_second"])
    assert row["goodput"] == pytest.approx(1 - 0.05 - 0.025 - 0.01)


def test_every_figure_is_that_of_a_plan(rows, capsys) -> None:
    assert main(["plan", "--cluster=100000", "--ckpt-model=llama3-70b", "--ckpt-ranks=64", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    (row,), demand = rows("--cluster=100000", "--model=llama3-70b"), plan["checkpoints"][0]["demand"]
    assert row["save_limit_seconds"] == plan["cluster"]["save_limit_seconds"]
    assert rates_of(row)["sync"] == demand["cluster_save_bytes_per_second"]
    for name in ("load_bytes_per_second", "bytes_per_day", "sustained_bytes_per_second"):
        assert row[name] == demand[name]


def test_kept_checkpoints_determine_capacity_and_drive_writes(rows) -> None:
    words = ("--keep-last=2", "--keep-daily=8", "--copies=2", "--erasure-overhead=50%", "--write-amplification=3")
    (row,) = rows("--model=llama3-8b", *words)
    assert row["capacity_bytes"] == 20 * row["checkpoint_bytes"]
    assert row["raw_capacity_bytes"] == pytest.approx(1.5 * row["capacity_bytes"])
    assert row["drive_writes_per_day"] == pytest.approx(3 * row["bytes_per_day"] / row["capacity_bytes"])
    (row,) = rows("--model=llama3-8b", "--usable-capacity=1TB")
    assert row["drive_writes_per_day"] == pytest.approx(row["bytes_per_day"] / 1e12)


def test_times_that_are_known_make_goodput_and_the_best_interval(rows) -> None:
    (row,) = rows("--model=llama3-8b", "--save-time=10s", "--load-time=20s")
    mttf, interval = row["mttf_seconds"], row["interval_seconds"]
    assert row["goodput"] == pytest.approx(1 - 10 / interval - (interval / 2 + 20) / mttf)
    assert row["young_seconds"] == pytest.approx((2 * 10 * mttf) ** 0.5)
    assert 0 < row["young_seconds"] - row["daly_seconds"] < 10


def test_a_row_for_each_model_and_cluster_and_a_formula_for_each_figure(size, rows) -> None:
    assert len(rows("--cluster=1000,16000,1000")) == 2 * len(MODELS)
    text = size("--cluster=16000,100000")
    for formula in FORMULAS.values():
        assert " ".join(formula.split()[:4]) in text
    assert text.count("llama3-1t") == 8
    assert text.isascii()


@pytest.mark.parametrize("budget", ["1%", "2%"])
def test_all_load_budgets_are_shown_whichever_is_chosen(size, budget: str) -> None:
    """The same four load budgets are shown for each chosen ``budget``."""
    text = size("--cluster=16000", "--model=llama3-405b", f"--ckpt-load-budget={budget}")
    words = "102 GB/s in 55.7 s 51 GB/s in 111 s 25.5 GB/s in 3.71 min 10.2 GB/s in 9.28 min"
    assert words in " ".join(text.split())


def test_the_required_rate_grows_with_the_cluster(rows) -> None:
    found = [rates_of(row)["sync"] for row in rows("--model=llama3-1t", "--cluster=1000,16000,100000")]
    assert found == sorted(found)
    assert found[-1] == pytest.approx(100 * found[0])


def test_a_published_table_is_shown_next_to_what_is_requested(size) -> None:
    words = ("--model=llama3-405b", "--table=superpod-h100")
    table = json.loads(size("--json", *words))["table"]
    assert "RA-11333-001" in table["source"]
    rates = {
        (row["accelerators"], row["level"]): (row["read_bytes_per_second"] / 1e9, row["write_bytes_per_second"] / 1e9)
        for row in table["rows"]
    }
    assert rates == {
        (8, "good"): (4, 2), (8, "better"): (8, 4), (8, "best"): (40, 20),
        (256, "good"): (15, 7), (256, "better"): (40, 20), (256, "best"): (125, 62),
        (1024, "good"): (60, 30), (1024, "better"): (160, 80), (1024, "best"): (500, 250),
    }  # fmt: skip
    best = table["rows"][-1]
    (whole,) = json.loads(size("--json", "--model=llama3-405b", f"--cluster={best['sufficient_up_to_accelerators']}"))[
        "rows"
    ]
    assert rates_of(whole)["sync"] <= best["write_bytes_per_second"]
    (larger,) = json.loads(
        size("--json", "--model=llama3-405b", f"--cluster={best['sufficient_up_to_accelerators'] + 1}")
    )["rows"]
    assert rates_of(larger)["sync"] > best["write_bytes_per_second"]
    assert best["needed_write_bytes_per_second"] == pytest.approx(13.1e9, rel=0.01)
    assert "four scalable units" in size(*words)


def test_a_table_of_one_s_own(size, tmp_path) -> None:
    file = tmp_path / "ours.toml"
    file.write_text(
        'name = "ours"\ntitle = "Ours"\nsource = "a quote"\nlevels = ["offered"]\n'
        '[[storage]]\nwhat = "two racks"\naccelerators = 64\nread_gb_per_second = [5.5]\nwrite_gb_per_second = [3]\n'
    )
    (row,) = json.loads(size("--json", "--model=llama3-8b", f"--table={file}"))["table"]["rows"]
    assert (row["what"], row["level"], row["read_bytes_per_second"]) == ("two racks", "offered", 5.5e9)


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        ("", "has no name"),
        ('name = "a"\ntitle = "b"\nsource = "c"', "levels is a list"),
        ('name = "a"\ntitle = "b"\nsource = "c"\nlevels = ["d"]', "no [[storage]]"),
        ('name = "a"\ntitle = "b"\nsource = "c"\nlevels = ["d"]\n[[storage]]', "needs a text named what"),
        ('name = "a"\ntitle = "b"\nsource = "c"\nlevels = ["d"]\n[[storage]]\nwhat = "e"', "whole number"),
        (
            'name = "a"\ntitle = "b"\nsource = "c"\nlevels = ["d"]\n[[storage]]\nwhat = "e"\naccelerators = 8\n'
            "read_gb_per_second = [0]",
            "above 0",
        ),
        ("name = [", "Invalid value"),
    ],
)
def test_an_invalid_gate_table_is_reported_as_invalid(text, expected_text, tmp_path, capsys) -> None:
    file = tmp_path / "ours.toml"
    file.write_text(text)
    assert main(["size", "--cluster=16000", f"--table={file}"]) == 4
    assert expected_text in capsys.readouterr().err


def test_the_page_has_the_tables_and_a_picture(size, tmp_path) -> None:
    page = tmp_path / "size.html"
    size("--cluster=16000", f"--html={page}")
    text = page.read_text()
    assert text.count("<table") >= 4
    assert "Bandwidth over cluster size" in text
    assert "204 GB/s" in text


@pytest.mark.parametrize(
    ("words", "expected_text"),
    [
        (("--cluster=0",), "--ckpt-cluster 0"),
        (("--cluster=16000,many",), "many"),
        (("--cluster=" + ",".join(map(str, range(1, 103))),), "102 clusters"),
        (("--model=llama",), "llama"),
        (("--keep-last=-1",), "--keep-last=-1"),
        (("--keep-last=0",), "at least 1"),
        (("--copies=x",), "a whole number"),
        (("--usable-capacity=5 gb",), "--usable-capacity"),
        (("--write-amplification=nan",), "--write-amplification=nan"),
        (("--write-amplification=0.5",), "at least 1"),
        (("--erasure-overhead=many",), "--erasure-overhead"),
        (("--save-time=0s",), "--save-time"),
        (("--drain-every=10", "--target-share=50%"), "however fast a drain is"),
        (("--clutser=5",), "--cluster"),
        (("--table=superpod",), "did you mean 'superpod-h100'"),
        (("--table=./nothing.toml",), "cannot be read"),
    ],
)
def test_errors_exit_with_4_and_state_the_cause(words, expected_text, capsys) -> None:
    try:
        code = main(["size", "--cluster=16000", *words])
    except SystemExit as ended:
        code = ended.code
    assert code == 4
    output = capsys.readouterr().err
    assert expected_text in output
    assert "Traceback" not in output


def test_without_a_cluster_there_is_nothing_to_derive_demands_from(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["size"])
    assert ended.value.code == 4
    assert "required: --cluster" in capsys.readouterr().err
