"""Engines that other packages provide: selection by name, planning, saves, loads, and the report.

A run with such an engine can be judged without the package.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.judged_run import judge_directory
from pytest_ckpt.evidence.verification import verify_directory
from tests.support import CHECKOUT
from tests.support.end_to_end import REQUIRED, Run, temporary_runner
from tests.support.vendor_directory import QUICK

HOOK = """
from tests.support.dump_engine import MODEST, SPEC

def pytest_ckpt_engines(config):
    return [SPEC, MODEST, SPEC._replace(name="mapped", needs=frozenset({"tapes"}))]
"""
OWNER = "plugin vendor/conftest.py"
# The metadata next to the module, as in an installed package.
ENTRY_POINTS = """[pytest_ckpt.engines]
dump = tests.support.dump_engine:SPEC
broken = tests.support.no_such_module:SPEC
"""


def run_of(home: Path, engine: str) -> Run:
    with temporary_runner(home) as runner:
        (home / "vendor").mkdir()
        (home / "vendor" / "conftest.py").write_text(HOOK)
        where = {"PYTHONPATH": str(CHECKOUT)}
        words = ("--pyargs", "pytest_ckpt.suites", "vendor", f"--ckpt-engine={engine}")
        return runner.run(*QUICK, *words, environment=where)


@pytest.fixture(scope="module")
def dumped(create_home: Callable[[str], Path]) -> Run:
    return run_of(create_home("dump"), "dump")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of an installed package that contains engines."""
    info = tmp_path / "acme-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["plan", "--cluster=64", "--ckpt-model=llama3-8b", "--json", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_an_engine_of_a_plugin_saves_and_loads_end_to_end(dumped: Run) -> None:
    assert dumped.code == 0, dumped.text
    assert set(dumped.outcomes().values()) == {"met"}
    measurement = dumped.measurement()
    assert measurement["engine"] == "dump"
    facts = dict(measurement["engine_facts"])
    assert facts.pop("directory").startswith("fsync by one rank of each host")
    assert facts == {"form": "plain bytes"}
    assert measurement["integrity"]["bytes_checked"] == 2 * measurement["bytes"]
    assert dumped.left_on_target == []


def test_the_certificate_names_the_engine_and_its_owner(dumped: Run) -> None:
    assert f"engine dump is of {OWNER}, not of pytest-ckpt" in dumped.document["disclosures"]
    assert dumped.document["environment"]["plugins"][0]["hooks"] == ["pytest_ckpt_engines"]
    page = (dumped.report / "certificate.html").read_text()
    assert f"engine dump is of {OWNER}" in page


def test_the_memory_of_an_engine_is_planned_as_declared(dumped: Run) -> None:
    (checkpoint,) = dumped.document["checkpoints"]
    largest = max(dumped.measurement()["rank_bytes"])
    assert checkpoint["memory_bytes"]["largest_rank"] == 300_000_000 + 2 * largest
    assert checkpoint["engine"]["owner"] == OWNER
    assert not [s for s in dumped.document["disclosures"] if "more memory" in s]


def test_its_directory_is_judged_and_verified_without_it(dumped: Run, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(dumped.report, tmp_path / "run"))
    again = judge_directory(directory, {})
    for part in ("checkpoints", "requirements", "measurements", "grade", "exit_code"):
        assert again[part] == dumped.document[part], part
    assert f"engine dump is of {OWNER}, not of pytest-ckpt" in again["disclosures"]
    assert {c.outcome for c in verify_directory(directory, None)} <= {"holds", "not checked"}


def test_another_engine_in_a_measurement_is_seen(dumped: Run, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(dumped.report, tmp_path / "run"))
    (file,) = (directory / "measurements").iterdir()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"engine": "torch"}))
    assert main(["judge", str(directory)]) == 4


@pytest.mark.thorough
def test_a_statement_of_too_little_memory_is_seen(create_home: Callable[[str], Path], tmp_path: Path) -> None:
    run = run_of(create_home("modest"), "modest")
    assert run.code == 0, run.text
    assert {run.verdict(name)["outcome"] for name in REQUIRED} == {"met"}
    (found,) = (s for s in run.document["disclosures"] if s.startswith("engine modest took more memory than it states"))
    assert "2 of 2 ranks" in found
    assert found in judge_directory(run.report, {})["disclosures"]


def test_an_engine_that_needs_what_the_target_has_not_is_refused(create_home: Callable[[str], Path]) -> None:
    run = run_of(create_home("mapped"), "mapped")
    assert run.code == 4
    assert "--ckpt-engine mapped needs tapes" in run.text
    assert run.left_on_target == []


def test_an_entry_point_names_an_engine(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = planned(capsys, "--ckpt-engine=dump")
    assert code == 0
    engine = json.loads(out)["checkpoints"][0]["engine"]
    assert (engine["name"], engine["owner"], engine["state_share"]) == ("dump", "acme 1.2", 2.0)


def test_an_entry_point_that_breaks_ends_only_a_run_that_chooses_it(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(capsys)[0] == 0
    code, _, err = planned(capsys, "--ckpt-engine=broken")
    assert code == 4
    assert "broken of acme 1.2" in err
    assert "no_such_module" in err


@pytest.mark.parametrize(
    ("word", "expected_text"),
    [("dmup", "did you mean 'dump'?"), ("strem", "did you mean 'stream'?"), ("torch,strem", "did you mean 'stream'?")],
)
def test_a_name_that_no_engine_has_ends_with_the_nearest(
    package: Path, capsys: pytest.CaptureFixture[str], word: str, expected_text: str
) -> None:
    code, _, err = planned(capsys, f"--ckpt-engine={word}")
    assert code == 4
    assert expected_text in err


@pytest.mark.parametrize(
    ("answer", "expected_text"),
    [
        ("[SPEC, SPEC]", "Two engines have the name dump"),
        ("[SPEC._replace(name='torch')]", "Two engines have the name torch"),
        ("[SPEC._replace(name='A B')]", "the name 'A B'"),
        ("[SPEC._replace(make='acme')]", "'module:function' is expected"),
        ("[SPEC._replace(memory=3)]", "a MemoryRule"),
        ("[SPEC._replace(files=('a', 'b'))]", "a FileRule is expected"),
        ("[SPEC._replace(files=SPEC.files._replace(of_rank='all'))]", "for all ranks, without {rank}"),
        ("[SPEC._replace(files=SPEC.files._replace(commit='index'))]", "commits='engine'"),
        ("[SPEC._replace(files=SPEC.files._replace(shared=('../x',)))]", "a name without directories is expected"),
        ("[SPEC._replace(files=SPEC.files._replace(of_rank='{shard}', maximum_bytes=9))]", "without {number}"),
        ("[SPEC._replace(files=SPEC.files._replace(maximum_bytes=-1))]", "bytes are expected"),
        ("[SPEC._replace(files=SPEC.files._replace(writers=2))]", "2 writers"),
        ("['dump']", "is not a pytest_ckpt.vendors.EngineSpec"),
        ("SPEC", "expected a list of engines"),
    ],
)
def test_an_answer_that_is_no_engine_ends_the_run(
    run_with: Callable[..., Run], answer: str, expected_text: str
) -> None:
    hook = "from tests.support.dump_engine import SPEC\n"
    hook += f"def pytest_ckpt_engines(config):\n    return {answer}\n"
    run = run_with(hook, environment={"PYTHONPATH": str(CHECKOUT)})
    assert run.code == 4
    assert expected_text in run.text
    assert run.left_on_target == []
