"""End-to-end runs on an Azure container and a Google bucket, both served by emulators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_ckpt.evidence.verification import verify_directory
from pytest_ckpt.facts.checks import checks_for
from tests.support.end_to_end import Run, temporary_runner
from tests.support.object_runs import IN_PARTS, subject, texts_of
from tests.support.targets.other_servers import ThirdPartyServer, azurite, fake_gcs_server

pytestmark = pytest.mark.thorough

# Objects above 5 GiB would have to be sent, as these emulators copy no blocks.
NOT_LARGE = "not LARGE"


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """An emulator of a cloud's object store: its process, its known failures, its name and a secret.

    ``calls_itself`` is the name that the server reports; empty if it reports none. ``secret`` must not appear in any
    file.
    """

    server: ThirdPartyServer
    fails: frozenset[tuple[str, str]]
    calls_itself: str
    secret: str


@pytest.fixture(scope="module", params=["az", "gs"])
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    if request.param == "az":
        with azurite() as server:
            secret = server.environment["AZURE_STORAGE_KEY"]
            fails = frozenset({("OBJECT-RANGE", "bytes")})
            yield Cloud(server=server, fails=fails, calls_itself="Azurite", secret=secret)
    else:
        fails = {("OBJECT-CREATE", "multipart"), ("OBJECT-DIGEST", "object"), ("OBJECT-DIGEST", "part"),
                 ("OBJECT-LIST", "pages"), ("OBJECT-RANGE", "overwritten")}  # fmt: skip
        with fake_gcs_server() as server:
            yield Cloud(server=server, fails=frozenset(fails), calls_itself="", secret="Bearer ")


@pytest.fixture(scope="module")
def run(cloud: Cloud, create_home: Callable[[str], Path]) -> Run:
    server = cloud.server
    with temporary_runner(create_home(f"cloud-{server.scheme}")) as runner:
        words = (*IN_PARTS, "--ckpt-suite=performance,conformance", "-k", NOT_LARGE)
        return runner.run(
            *words, f"--ckpt-endpoint={server.endpoint}", target=server.target, environment=server.environment
        )


def test_checkpoints_are_saved_loaded_compared_and_pass(run: Run) -> None:
    assert set(run.outcomes(subject(run)).values()) == {"met"}, run.text
    measured = run.measurement(subject(run))
    assert measured["integrity"]["bytes_checked"] == 2 * measured["bytes"]
    assert measured["durability"]["commit_methods"] == ["marker"]
    assert measured["durability"]["acknowledged"] == ["only size and ETag"]
    assert {"put part", "end upload", "get"} <= {row["kind"] for row in measured["requests"]}


def test_known_defects_are_found_and_rules_of_s3_on_parts_are_not_required(run: Run, cloud: Cloud) -> None:
    assert run.code == 1, run.text
    checks = {(c.requirement, c.subject) for c in checks_for("objects") if c.requirement != "OBJECT-LIMITS"}
    verdicts = {(v["id"], v["subject"]): v for v in run.document["requirements"] if v["id"].startswith("OBJECT-")}
    assert verdicts.keys() == checks
    assert {name for name, v in verdicts.items() if v["outcome"] == "failed"} == cloud.fails
    assert {name[0] for name, v in verdicts.items() if v["outcome"] == "not run"} == {"OBJECT-LARGE"}


def test_report_and_certificate_name_the_service(run: Run, cloud: Cloud) -> None:
    target = run.document["environment"]["target"]
    assert (target["kind"], target["gate_kind"]) == (cloud.server.scheme, "object-local")
    assert cloud.calls_itself in target["source"]
    assert run.document["grade"] == "rehearsal"
    assert target["source"] in (run.report / "certificate.html").read_text()
    assert [f.details for f in verify_directory(run.report, None) if f.outcome == "broken"] == []


def test_nothing_is_left_and_no_key_reaches_a_file(run: Run, cloud: Cloud) -> None:
    assert run.document["left_behind"] == []
    assert cloud.server.stored_keys() == ([], [])
    for name, text in texts_of(run.report).items():
        assert cloud.secret not in text, name
