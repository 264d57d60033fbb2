"""End-to-end runs on an object store: the embedded server, and a server with faults."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_ckpt.facts.checks import checks_for
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from tests.support import CHECKOUT
from tests.support.actions import actions
from tests.support.end_to_end import TINY, Run, Runner, temporary_runner
from tests.support.machine import eventually
from tests.support.object_runs import IN_PARTS, started, subject, texts_of
from tests.support.targets import object_faults_conditions  # noqa: F401 - its faults are in the table, too
from tests.support.targets.object_faults import faulty_store
from tests.support.targets.object_server import (
    ACCOUNT,
    CREDENTIALS,
    TARGET,
    Fault,
    Misbehaving,
    RequestFault,
    content_of,
    misbehaving_server,
    moto_server,
)

EMBEDDED = "--ckpt-endpoint=embedded"
THOROUGH = pytest.mark.thorough

# --- a run that meets everything --------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[pytest.param("torch", marks=THOROUGH), "stream"])
def run(request: pytest.FixtureRequest, create_home: Callable[[str], Path]) -> Run:
    with temporary_runner(create_home(f"objects-{request.param}")) as runner:
        return started(runner, EMBEDDED, f"--ckpt-engine={request.param}", suite="performance,conformance").finish()


def test_checkpoints_are_saved_loaded_compared_and_pass(run: Run) -> None:
    assert run.code == 0, run.text
    assert set(run.outcomes(subject(run)).values()) == {"met"}
    measured = run.measurement(subject(run))
    assert measured["integrity"]["bytes_checked"] == 2 * measured["bytes"]


def test_a_small_checkpoint_is_read_with_a_few_requests_for_each_file(run: Run) -> None:
    """A load sends at most 60 requests per file, and not one for each of a rank's 195 tensors.

    Torch reads a file in about 25 ranges, so the maximum leaves room.
    """
    measured = run.measurement(subject(run))
    gets = sum(r["sent"] for r in measured["requests"] if r["kind"] == "get")
    files = next(c["files"] for c in run.document["checkpoints"] if c["subject"] == subject(run))
    loads = len(run.operations("load", subject(run)))
    assert 0 < gets <= 60 * files * loads


def test_a_rank_takes_no_more_memory_than_on_a_file_system_and_its_parts(run: Run) -> None:
    measured = run.measurement(subject(run))
    if measured["engine"] == "stream":
        assert max(r["peak_memory_bytes"] for r in measured["ranks"]) <= 100_000_000 + 2 * (5 << 20)


def test_loads_are_cold_by_declaration_and_saves_are_acknowledged_and_committed_by_a_marker(run: Run) -> None:
    measured = run.measurement(subject(run))
    assert measured["cache"]["is_declared_cold"]
    durability = measured["durability"]
    assert (durability["observed"], durability["commit_methods"]) == ("store", ["marker"])
    assert durability["acknowledged"] == ["size and CRC-32"]
    assert (durability["files_synced"], durability["directories"]) == (durability["files"], 0)
    assert "acknowledged all" in run.verdict("DURABLE-CALLS", subject(run))["because"]
    assert "by size and CRC-32" in run.verdict("DURABLE-CALLS", subject(run))["because"]


@pytest.mark.thorough
def test_a_server_that_others_wrote_is_saved_to_and_loaded_from_and_nothing_is_left_in_it(runner: Runner) -> None:
    with moto_server() as endpoint:
        run = started(runner, f"--ckpt-endpoint={endpoint}", of=IN_PARTS).finish()
        assert run.code == 8, f"its gates ask for patterns of contention\n{run.text}"
        assert set(run.outcomes(subject(run)).values()) == {"met"}
        assert run.document["gate_table"]["name"] == "object-local"
        assert content_of(endpoint) == ([], [])


def test_a_run_on_this_host_certifies_nothing_and_gives_the_reason(run: Run) -> None:
    assert run.document["gate_table"]["name"] == "object-local"
    assert run.document["grade"] == "rehearsal"
    assert any("is for an object store on this host" in reason for reason in run.document["grade_reasons"])
    assert "ckpt obstacle: The gate table 'object-local' is for an object store on this host" in run.text
    assert "Remedy: --ckpt-endpoint with a store on other hosts." in run.text


def test_checks_of_posix_only_are_not_in_the_run(run: Run) -> None:
    assert not {v["id"] for v in run.document["requirements"]} & {c.requirement for c in checks_for("posix")}
    assert "NEARFULL" not in {v["id"] for v in run.document["requirements"]}


def test_how_the_store_behaves_is_judged_by_every_check(run: Run) -> None:
    checks = {(check.requirement, check.subject) for check in checks_for("objects")}
    verdicts = [v for v in run.document["requirements"] if "objects" in REQUIREMENTS[v["id"]].needs]
    assert {(v["id"], v["subject"]) for v in verdicts} == checks
    assert {v["outcome"] for v in verdicts} == {"met"}
    assert {v["id"] for v in verdicts if v["severity"] == "advisory"} == {
        "OBJECT-CREATE", "OBJECT-UPDATE", "OBJECT-LIMITS", "OBJECT-DIGEST"
    }  # fmt: skip
    observations = run.document["observations"]
    assert {(o["requirement"], o["subject"]) for o in observations} == checks
    assert all("pytest_ckpt.conformance.objects" in o["reproduce"] for o in observations)
    page = (run.report / "certificate.html").read_text()
    assert "exactly one succeeds; the others get an error" in page


@THOROUGH
def test_a_store_that_ignores_a_condition_fails_with_what_to_do(create_home: Callable[[str], Path]) -> None:
    with faulty_store("If-None-Match ignored") as endpoint, temporary_runner(create_home("objects-ignored")) as runner:
        # No checkpoint library relies on this condition. A user who keeps locks in the store can require it in a table.
        table = runner.home / "own.toml"
        row = '[requirements]\nOBJECT-CREATE = { gate = "required" }\n'
        table.write_text(f'name = "own"\nextends = "object-local"\n{row}')
        options = (f"--ckpt-endpoint={endpoint}", f"--ckpt-gate-table={table}")
        run = started(runner, *options, suite="performance,conformance").finish()
        assert content_of(endpoint) == ([], [])
    assert run.code == 1, run.text
    failed = {(v["id"], v["subject"]) for v in run.document["requirements"] if v["outcome"] == "failed"}
    assert {f for f in failed if f[0].startswith("OBJECT-")} == {
        ("OBJECT-CREATE", "put"),
        ("OBJECT-CREATE", "multipart"),
    }
    assert "or use a version of the store that supports" in " ".join(run.text.split())


def test_certificate_json_and_junit_name_the_server(run: Run) -> None:
    target = run.document["environment"]["target"]
    assert (target["kind"], target["is_local"]) == ("s3", True)
    assert target["source"].startswith("embedded: pytest-ckpt ")
    assert target["source"] in (run.report / "certificate.html").read_text()
    suite = ET.parse(run.report / "junit.xml").getroot()[0]
    properties = {p.get("name"): p.get("value") for p in suite.find("properties")}
    assert (properties["target"], properties["target_kind"]) == (TARGET, "s3")
    assert properties["target_source"] == target["source"]


def test_nothing_is_left_and_its_server_is_gone(run: Run) -> None:
    assert run.document["left_behind"] == []
    (endpoint,) = json.loads((run.report / "session.json").read_text())["area"]["access"]["endpoints"]
    host, port = endpoint.removeprefix("http://").split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 5).close()


def test_no_secret_of_the_user_reaches_a_file(run: Run) -> None:
    for name, text in texts_of(run.report).items():
        assert not [value for value in CREDENTIALS.values() if value in text], name


def test_its_directory_is_judged_again_without_the_store_and_not_by_the_gates_of_a_file_system(run: Run) -> None:
    command = [sys.executable, "-m", "pytest_ckpt.cli.main", "judge", str(run.report), "--json"]
    output = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert output.returncode == 0, output.stderr
    again = json.loads(output.stdout)
    verdicts = [(v["id"], v["subject"], v["outcome"]) for v in run.document["requirements"]]
    assert [(v["id"], v["subject"], v["outcome"]) for v in again["requirements"]] == verdicts
    weaker = subprocess.run([*command, "--ckpt-gate-table=posix-shared"], cwd=CHECKOUT, capture_output=True, text=True,
                            check=False)  # fmt: skip
    assert weaker.returncode == 4
    assert "is for file systems" in weaker.stderr


@THOROUGH
def test_contention_is_judged_where_it_is_requested_and_over_workers(create_home: Callable[[str], Path]) -> None:
    with temporary_runner(create_home("objects-contention")) as runner:
        run = started(runner, EMBEDDED, "--ckpt-suite=performance,contention", "-n", "2").finish()
    assert run.code == 8, f"the checks of behaviour were not chosen\n{run.text}"
    for name in ("STORM", "SHIFTED", "RESHAPED"):
        assert run.verdict(name, subject(run))["outcome"] in {"met", "failed"}, name
    assert run.document["left_behind"] == []


@THOROUGH
def test_the_server_of_a_killed_controller_is_gone(create_home: Callable[[str], Path]) -> None:
    with temporary_runner(create_home("objects-controller")) as runner:
        begun = started(runner, EMBEDDED)
        (endpoint,) = begun.session["area"]["access"]["endpoints"]
        begun.process.kill()
        begun.process.wait()
        host, port = endpoint.removeprefix("http://").split(":")

        def is_gone() -> bool:
            try:
                socket.create_connection((host, int(port)), 5).close()
            except ConnectionRefusedError:
                return True
            return False

        eventually(is_gone, "the server ends with the controller")


# --- what does not fit together ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "expected_text"), [
    ((EMBEDDED, "--ckpt-engine=dcp"), "--ckpt-engine dcp needs paths"),
    (("--ckpt-endpoint=http://127.0.0.1:1",), "no server answers at the endpoint"),
    pytest.param((EMBEDDED, "--ckpt-keep-files"), "--ckpt-keep-files with --ckpt-endpoint embedded", marks=THOROUGH),
    pytest.param(("--ckpt-endpoint=http://me:secret@host:1",), "contains no user and no password", marks=THOROUGH),
    pytest.param(
        (EMBEDDED, actions(power_cut="true")), "[power_cut] command is for file systems", marks=THOROUGH
    ),
    pytest.param((EMBEDDED, "--ckpt-gate-table=posix-local"), "is for file systems", marks=THOROUGH),
    pytest.param((EMBEDDED, "--ckpt-gate-table=object"), "is for stores on other hosts", marks=THOROUGH),
])  # fmt: skip
def test_a_run_that_does_not_fit_is_refused_before_anything_is_written(
    run_pytest, pytester, monkeypatch, options, expected_text
):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    result = run_pytest(f"--ckpt-target={TARGET}", "--cluster=64", *TINY, *options)
    assert result.ret == 4, result.stdout.str()
    assert expected_text in result.stderr.str()
    assert "Traceback" not in result.stderr.str()
    assert not (pytester.path / "ckpt-report").exists()


def test_an_endpoint_is_refused_for_a_directory(run_pytest, pytester):
    result = run_pytest(f"--ckpt-target={pytester.path}", "--cluster=64", EMBEDDED)
    assert result.ret == 4
    assert "--ckpt-endpoint is for object stores" in result.stderr.str()


@pytest.mark.parametrize("target", ["s3://", pytest.param("s3://No Bucket/x", marks=THOROUGH)])
def test_a_target_without_a_bucket_name_is_refused(run_pytest, target):
    result = run_pytest(f"--ckpt-target={target}", "--cluster=64", EMBEDDED)
    assert result.ret == 4
    assert "is not a name of a bucket" in result.stderr.str()


# --- a store that misbehaves ------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with misbehaving_server() as found:
        yield found


@pytest.mark.parametrize(("fault", "expected_text"), [
    (Fault(request="list", way="no bucket"), "NoSuchBucket"),
    pytest.param(Fault(request="list", way="wrong key"), "InvalidAccessKeyId", marks=THOROUGH),
    pytest.param(Fault(request="list", way="deny"), "AccessDenied", marks=THOROUGH),
    pytest.param(Fault(request="put", way="deny"), "no object can be put", marks=THOROUGH),
    pytest.param(Fault(request="abort", way="deny"), "s3:AbortMultipartUpload", marks=THOROUGH),
    pytest.param(Fault(request="delete", way="deny"), "s3:DeleteObject", marks=THOROUGH),
    pytest.param(Fault(request="list", way="skew"), "by NTP", marks=THOROUGH),
    pytest.param(Fault(request="list", way="silent"), "did not answer in time", marks=THOROUGH),
    pytest.param(Fault(request="versioning", way="versions"), "keeps versions", marks=THOROUGH),
    pytest.param(Fault(request="versioning", way="deny"), "--ckpt-unversioned", marks=THOROUGH),
])  # fmt: skip
def test_a_store_that_cannot_be_used_is_refused_with_a_remedy(
    server: Misbehaving, create_home: Callable[[str], Path], fault: Fault, expected_text: str
) -> None:
    server.faults.append(fault)
    with temporary_runner(create_home("objects-refused")) as runner:
        run = started(runner, f"--ckpt-endpoint={server.endpoint}").finish()
    assert run.code == 4, run.text
    assert expected_text in run.text
    assert "Traceback" not in run.text
    assert not [value for value in (*CREDENTIALS.values(), ACCOUNT) if value in run.text]
    assert not run.report.exists()
    if fault.request not in ("delete", "abort"):
        assert content_of(server.behind) == ([], [])


@THOROUGH
def test_a_flipped_byte_fails_integrity(server: Misbehaving, create_home: Callable[[str], Path]) -> None:
    server.faults.append(Fault(request="get", way="flip", key=".pt", times=1))
    with temporary_runner(create_home("objects-flipped")) as runner:
        run = started(runner, f"--ckpt-endpoint={server.endpoint}").finish()
    assert run.code == 1, run.text
    assert run.verdict("INTEGRITY", subject(run))["outcome"] == "failed"
    assert content_of(server.behind) == ([], [])


@THOROUGH
def test_a_store_that_is_busy_for_a_moment_delays_a_save_and_fails_none(
    server: Misbehaving, create_home: Callable[[str], Path]
) -> None:
    server.faults.append(Fault(request="put", way="slow down", key=".pt", skip=2, times=2))
    with temporary_runner(create_home("objects-busy")) as runner:
        run = started(runner, f"--ckpt-endpoint={server.endpoint}", "--ckpt-gate-table=speed-only").finish()
    assert run.code == 0, run.text
    assert set(run.outcomes(subject(run)).values()) == {"met"}
    assert {(r["again"], r["busy"]) for r in run.measurement(subject(run))["requests"] if r["kind"] == "put"} == {
        (2, 2)
    }


@pytest.mark.thorough
def test_ranks_are_spread_over_endpoints(server: Misbehaving, create_home: Callable[[str], Path]) -> None:
    with temporary_runner(create_home("objects-spread")) as runner:
        # Both endpoints lead to one store. Of two ranks, only the second uses the endpoint that counts requests.
        run = started(
            runner, f"--ckpt-endpoint={server.behind},{server.endpoint}", "--ckpt-gate-table=speed-only"
        ).finish()
    assert run.code == 0, run.text
    files = run.measurement(subject(run))["durability"]["files"]
    assert server.seen["put"] == files / 2 > 0
    assert content_of(server.behind) == ([], [])


@pytest.mark.parametrize(("spare", "way", "outcome"), [
    pytest.param(True, "cut", "met", id="the next endpoint takes over"),
    pytest.param(False, "cut", "met", id="saves fail and say so"),
    pytest.param(False, "flip", "failed", id="wrong bytes"),
])  # fmt: skip
@THOROUGH
def test_an_endpoint_that_breaks_in_the_middle_of_saves_and_loads(
    server: Misbehaving, create_home: Callable[[str], Path], spare: bool, way: RequestFault, outcome: str
) -> None:
    """The first endpoint of a store fails during saves and loads, and is repaired later.

    If ``spare`` is true, the run has a second endpoint of the same store.
    """
    server.fault_when_broken, server.is_only_endpoint = way, not spare
    endpoints = ",".join((server.endpoint, server.behind)[: 1 + spare])
    commands = (
        actions(fault_command=shlex.join(server.command("break")), repair_command=shlex.join(server.command("repair"))),
    )
    with temporary_runner(create_home("objects-broken")) as runner:
        table = runner.home / "gates.toml"
        row = 'FAILOVER = { gate = "required", limit = 120 }'
        table.write_text(f'name = "failover"\nextends = "speed-only"\n[requirements]\n{row}\n')
        # An error is retried for a share of the deadline. The plugin shortens the share; the deadline stays long enough
        # for a busy machine.
        run = started(runner, f"--ckpt-endpoint={endpoints}", f"--ckpt-gate-table={table}", *commands, "--ckpt-seed=7",
                      "-p", "tests.support.short_timeouts", "--ckpt-engine=stream",
                      suite="performance,failover").finish()  # fmt: skip
    verdict = run.verdict("FAILOVER", subject(run))
    assert (verdict["outcome"], verdict["severity"]) == (outcome, "required"), verdict["because"]
    assert run.code == (0 if outcome == "met" else 1), run.text
    found = run.measurement(subject(run))["patterns"]["failover"]
    errors = [o["error"] for trial in found["trials"] for o in trial["operations"] if o["error"]]
    assert len(found["trials"]) == 6
    if way == "cut":
        assert bool(errors) != spare, errors
    assert content_of(server.behind) == ([], [])


@THOROUGH
def test_permissions_that_end_in_the_middle_fail_the_save_with_the_store_s_words_and_nobody_s_identity(
    server: Misbehaving, create_home: Callable[[str], Path]
) -> None:
    server.faults.append(Fault(request="put", way="deny", key=".pt", skip=5))
    with temporary_runner(create_home("objects-denied")) as runner:
        run = started(runner, f"--ckpt-endpoint={server.endpoint}").finish()
    assert run.code == 1, run.text
    assert "AccessDenied" in run.measurement(subject(run))["failure"]["message"]
    for name, text in {**texts_of(run.report), "the terminal": run.text}.items():
        assert not [value for value in (*CREDENTIALS.values(), ACCOUNT) if value in text], name
    assert content_of(server.behind) == ([], [])


def test_the_parts_of_a_killed_rank_are_removed(server: Misbehaving, create_home: Callable[[str], Path]) -> None:
    server.faults.append(Fault(request="part", way="silent", skip=3, times=1))
    with temporary_runner(create_home("objects-killed")) as runner:
        begun = started(runner, f"--ckpt-endpoint={server.endpoint}", of=IN_PARTS)
        begun.until(server.arrived.is_set, "a part is on its way")
        assert content_of(server.behind)[1], "there is an unfinished upload"
        os.kill(begun.pid_of_rank(1), signal.SIGKILL)
        run = begun.finish()
    assert run.code not in (0, 3, 4), run.text
    assert run.measurement(subject(run))["failure"]["kind"] == "killed"
    assert run.document["left_behind"] == []
    eventually(lambda: content_of(server.behind) == ([], []), "nothing is left")
