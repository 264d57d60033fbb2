"""The whole front door on a container of Azure, as Microsoft's emulator has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.evidence.verification import verify_folder
from pytest_ckpt.facts.checks import in_room
from tests.support.front_door import Run, opened_door
from tests.support.object_runs import IN_PARTS, subject, texts_of
from tests.support.targets.other_servers import OtherServer, azurite

pytestmark = pytest.mark.thorough

# Their objects above 5 GiB would be sent: nothing copies a block.
NOT_LARGE = "not large_objects"


@pytest.fixture(scope="module")
def server():
    with azurite() as started:
        yield started


@pytest.fixture(scope="module")
def run(server: OtherServer, make_home: Callable[[str], Path]) -> Run:
    with opened_door(make_home("azure")) as door:
        words = (*IN_PARTS, "--ckpt-suite=performance,conformance", "-k", NOT_LARGE)
        return door.run(
            *words, f"--ckpt-endpoint={server.endpoint}", target=server.target, environment=server.environment
        )


def test_it_is_saved_loaded_compared_and_met(run: Run) -> None:
    assert set(run.outcomes(subject(run)).values()) == {"met"}, run.text
    measured = run.measurement(subject(run))
    assert measured["integrity"]["bytes_checked"] == 2 * measured["bytes"]
    assert measured["durability"]["commit_methods"] == ["marker"]
    assert measured["durability"]["acknowledged"] == ["size and ETag alone"]
    assert {"put part", "end upload", "get"} <= {row["kind"] for row in measured["requests"]}


def test_one_known_defect_is_found_and_what_s3_says_of_parts_is_not_asked(run: Run) -> None:
    assert run.code == 1, run.text
    checks = {(c.requirement, c.subject) for c in in_room("objects") if c.requirement != "OBJECT-LIMITS"}
    verdicts = {(v["id"], v["subject"]): v for v in run.document["requirements"] if v["id"].startswith("OBJECT-")}
    assert verdicts.keys() == checks
    assert {name for name, v in verdicts.items() if v["outcome"] == "failed"} == {("OBJECT-RANGE", "bytes")}
    assert {name[0] for name, v in verdicts.items() if v["outcome"] == "not run"} == {"OBJECT-LARGE"}


def test_report_and_certificate_say_what_it_was(run: Run) -> None:
    target = run.document["environment"]["target"]
    assert (target["kind"], target["gate_kind"]) == ("az", "object-local")
    assert "Azurite" in target["source"]
    assert run.document["grade"] == "rehearsal"
    assert target["source"] in (run.report / "certificate.html").read_text()
    assert [f.details for f in verify_folder(run.report, None) if f.outcome == "broken"] == []


def test_nothing_is_left_and_no_key_reaches_a_file(run: Run, server: OtherServer) -> None:
    assert run.document["left_behind"] == []
    assert server.what_lies_there() == ([], [])
    for name, text in texts_of(run.report).items():
        assert server.environment["AZURE_STORAGE_KEY"] not in text, name
