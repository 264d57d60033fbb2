"""``pytest-ckpt judge --rules mlperf-v3``: which rules of a submission a result meets, breaks, or does not tell of."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from pytest_ckpt.cli import main as cli
from pytest_ckpt.published.rules import RULES
from tests.support import CHECKOUT
from tests.support.by_the_library import faults
from tests.support.made_results import GIB, MadeRun, published, steady
from tests.support.made_up_run import make_run

DIRECTORY = os.environ.get("PYTEST_CKPT_PUBLISHED", "")


@pytest.fixture
def held(capsys):
    """Hold a tree against the rules; return the exit code and the document."""

    def run(directory, *words):
        code = cli.main(["judge", str(directory), "--rules=mlperf-v3", "--json", *words])
        message = capsys.readouterr()
        document = json.loads(message.out, parse_constant=pytest.fail)
        assert not faults(document, "rules")
        assert code == document["exit_code"]
        return code, document

    return run


def outcomes(document):
    """{number: outcome} of the one result."""
    (result,) = document["results"]
    return {rule["number"]: rule["outcome"] for rule in result["rules"]}


def because(document, number):
    return next(rule["because"] for rule in document["results"][0]["rules"] if rule["number"] == number)


@dataclass(kw_only=True)
class Submitted(MadeRun):
    """A run whose metadata says what mlpstorage's says of a submission; ``also`` is laid over it."""

    also: dict = field(default_factory=dict)

    def metadata(self, directory="/mnt/array/checkpoints"):
        message = super().metadata(directory)
        message |= {
            "accelerator": "b200",
            "result_dir": "/home/someone/results",
            "override_parameters": {"checkpoint.checkpoint_folder": directory},
        }
        message["system_info"] = {"hosts": [{"hostname": "c1", "memory": {"total": 64 * GIB}}]}
        return message | self.also

    def summary(self):
        return super().summary() | {"num_hosts": 1}


ALIKE = steady()


def same(kind, _number, rank):
    """All ranks take what rank 0 takes, so that its mean is that of the slowest."""
    return (5.0 if kind == "save" else 4.0) - 0.0001 * rank


def submission(top, *, division="closed", model="llama3-8b", name="20260301_120000", run=None, **also):
    """Write one invocation that saves and loads, in a tree of a submission."""
    run = run or Submitted(seconds=same)
    run.also = also
    directory = published(top, "Maker", "array", model, name)
    if division != "closed":
        directory = top / division / directory.relative_to(top / "closed")
    return run.write(directory, parts=("summary", "config", "metadata"))


def test_a_result_that_keeps_them_all_breaks_none(held, tmp_path):
    submission(tmp_path)
    code, document = held(tmp_path)
    found = outcomes(document)
    assert set(found) == {rule.number for rule in RULES}
    # Nothing records the file systems of both, so that nobody can say that it is met.
    assert [number for number, outcome in found.items() if outcome != "met"] == ["4.4.2"]
    assert code == 8
    assert document["results"][0]["division"] == "closed"


def test_a_bare_directory_tells_of_few_and_breaks_none_for_that(held, tmp_path):
    MadeRun().write(tmp_path / "20260301_120000", parts=())
    code, document = held(tmp_path)
    found = outcomes(document)
    assert code == 8
    assert "broken" not in found.values()
    assert {n for n, outcome in found.items() if outcome == "met"} == {
        "2.1.23", "4.3.3", "4.3.5", "4.6.1", "4.6, table 3", "4.7.1",
    }  # fmt: skip


def gap(seconds, *, exact=True):
    """Write saves and loads as two invocations, the second of which was called so many seconds after the first."""

    def write(top):
        start = datetime(2026, 3, 1, 12, 0, 0)
        saves = Submitted(seconds=same, loads=0, started=start)
        ended = datetime.fromisoformat(saves.stats([0])[0]["1"]["end"])
        began = ended + timedelta(seconds=seconds)
        loads = Submitted(seconds=same, saves=0, started=began + timedelta(seconds=9 if exact else 0))
        submission(top, run=saves)
        directory = published(top, "Maker", "array", "llama3-8b", "20260301_120000")
        if exact:
            summary = json.loads((directory / "summary.json").read_text()) | {"end": ended.isoformat()}
            (directory / "summary.json").write_text(json.dumps(summary))
        message = {"invocation_start_time": began.isoformat()} if exact else {}
        submission(top, run=loads, name="20260301_130000", **message)

    return write


def memory(gib):
    return {"system_info": {"hosts": [{"hostname": "c1", "memory": {"total": gib * GIB}}]}}


BROKEN = {
    "the directory of another model": ("2.1.21", lambda top: submission(top, model="llama3-70b")),
    "a directory that is no time": ("2.1.23", lambda top: submission(top, name="first-try")),
    "three invocations": (
        "2.1.23",
        lambda top: [
            submission(top, name=f"20260301_12000{n}", run=Submitted(seconds=same, started=datetime(2026, 3, 1, n)))
            for n in range(3)
        ],
    ),
    "caches that needed clearing": ("4.3.1", lambda top: submission(top, **memory(1024))),
    "no accelerator": ("4.3.4", lambda top: submission(top, accelerator=None)),
    "an accelerator that nobody may name": ("4.3.4", lambda top: submission(top, accelerator="h100")),
    "a subset": (
        "4.3.5",
        lambda top: submission(top, model="llama3-70b", run=Submitted(model="llama3-70b", seconds=same)),
    ),
    "one directory for both": ("4.4.1", lambda top: submission(top, result_dir="/mnt/array/checkpoints/")),
    "one directory is on one file system": ("4.4.2", lambda top: submission(top, result_dir="/mnt/array/checkpoints")),
    "too few processes": (
        "4.6.1",
        lambda top: submission(top, model="llama3-405b", run=Submitted(model="llama3-405b", seconds=same)),
    ),
    "four processes on a host": (
        "4.6.2",
        lambda top: submission(top, args={"hosts": ["c1:4", "c2:4"]}),
    ),
    "a parameter that was changed": (
        "4.6.3",
        lambda top: submission(top, override_parameters={"checkpoint.fsync": False}),
    ),
    "another pause": ("4.6.3", lambda top: submission(top, run=Submitted(seconds=same, between=1.0))),
    "nine loads": ("4.6, table 3", lambda top: submission(top, run=Submitted(seconds=same, loads=9))),
    "saves alone": ("4.6, table 3", lambda top: submission(top, run=Submitted(seconds=same, loads=0))),
    "nobody loads": ("4.7.1", lambda top: submission(top, run=Submitted(seconds=same, loads=0))),
    "a pause of a minute": ("4.7.1", gap(60)),
    "rank 0's own mean": ("README", lambda top: submission(top, run=Submitted(seconds=ALIKE))),
}


@pytest.mark.parametrize("case", BROKEN)
def test_each_rule_can_be_broken(held, tmp_path, case):
    number, write = BROKEN[case]
    write(tmp_path)
    code, document = held(tmp_path)
    assert outcomes(document)[number] == "broken", because(document, number)
    assert code == 1


def test_fsync_that_is_off_is_broken(held, tmp_path):
    directory = submission(tmp_path)
    metadata = next(directory.glob("*_metadata.json"))
    message = json.loads(metadata.read_text())
    message["parameters"]["checkpoint"]["fsync"] = False
    metadata.write_text(json.dumps(message))
    assert outcomes(held(tmp_path)[1])["4.3.2"] == "broken"


def test_every_rule_is_shown_to_be_broken():
    # 4.3.3 cannot be: what fits no layout of the four models is no result. 1 is broken by exports, 4.3.2 above.
    shown = {number for number, _ in BROKEN.values()} | {"1", "4.3.2", "4.3.3"}
    assert shown == {rule.number for rule in RULES}


@pytest.mark.parametrize(("seconds", "exact", "outcome"), [
    (20, True, "met"), (31, True, "broken"), (20, False, "met"), (31, False, "not told"), (-5, True, "not told"),
])  # fmt: skip
def test_the_gap_is_of_the_invocations_and_a_bound_breaks_nothing(held, tmp_path, seconds, exact, outcome):
    gap(seconds, exact=exact)(tmp_path)
    _, document = held(tmp_path)
    assert outcomes(document)["4.7.1"] == outcome, because(document, "4.7.1")
    # Nobody can say whether caches were cleared between the two.
    assert outcomes(document)["4.3.1"] == "met"


def test_one_reading_of_the_cache_rule_alone_breaks_nothing(held, tmp_path):
    # 3 x 105 GiB are less than 320 GiB, and 10 x 105 GiB more than 3 x 320 GiB.
    submission(tmp_path, **memory(320))
    _, document = held(tmp_path)
    assert outcomes(document)["4.3.1"] == "not told"
    assert "One of two readings" in because(document, "4.3.1")


def test_the_open_division_has_its_own_processes(held, tmp_path):
    submission(tmp_path, division="open", override_parameters={"checkpoint.fsync": True})
    _, document = held(tmp_path)
    assert document["results"][0]["division"] == "open"
    assert outcomes(document)["4.6.1"] == "met"
    assert outcomes(document)["4.6.3"] == "not told"


def test_people_read_first_what_is_broken(capsys, tmp_path):
    submission(tmp_path, accelerator="h100")
    assert cli.main(["judge", str(tmp_path), "--rules=mlperf-v3"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Maker array: llama3-8b-full (CLOSED)"
    assert lines[1].split()[:2] == ["broken", "4.3.4"]
    assert "h100 is none of b200, mi355" in " ".join(" ".join(lines).split())
    assert any("14 met, 1 broken, 1 that these files do not tell" in line for line in lines)
    assert any("for MLCommons to say" in line for line in lines)


@pytest.mark.parametrize(("words", "message"), [
    (["--rules=mlperf-v9"], "--rules=mlperf-v9: it is none, perhaps 'mlperf-v3'"),
    (["--rules=mlperf-v3", "--cluster=64"], "--ckpt-cluster and --rules do not go together"),
    (["--rules=mlperf-v3", "--html=x.html"], "--html and --rules do not go together"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(capsys, tmp_path, words, message):
    submission(tmp_path)
    assert cli.main(["judge", str(tmp_path), *words]) == 4
    printed = capsys.readouterr()
    assert not printed.out
    assert message.split(",")[0] in printed.err


def test_a_run_of_ours_has_to_be_exported_first(capsys, tmp_path):
    make_run(tmp_path / "run")
    assert cli.main(["judge", str(tmp_path / "run"), "--rules=mlperf-v3"]) == 4
    assert "Export it first: pytest-ckpt export" in capsys.readouterr().err


@pytest.mark.skipif(not DIRECTORY, reason="PYTEST_CKPT_PUBLISHED names no directory of published results")
def test_published_results_are_held_against_them(held):
    code, document = held(DIRECTORY)
    assert code in (1, 8)
    for row in document["results"]:
        found = {rule["number"]: rule["outcome"] for rule in row["rules"]}
        assert {found[n] for n in ("2.1.21", "2.1.23", "4.3.3", "4.6.1", "4.6, table 3", "4.7.1")} == {"met"}
        assert found["4.4.2"] == "not told"


def test_the_page_has_the_table_of_rules():
    page = (CHECKOUT / "docs" / "published_results.md").read_text()
    for rule in RULES:
        assert f"| {rule.number} | {rule.name} | {rule.text} |" in page
