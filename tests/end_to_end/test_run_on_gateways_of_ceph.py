"""Runs on two object gateways of Ceph. During a save, a gateway is killed or a quota is exhausted.

A bucket that keeps versions of its objects is refused. If versions are turned on during a run, the report counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.end_to_end import SMALLEST, Run, Started, temporary_runner
from tests.support.object_runs import IN_PARTS, started, subject, texts_of
from tests.support.targets.object_server import BUCKET
from tests.support.targets.rgw import Gateways, gateways, quota

pytestmark = pytest.mark.thorough

# tests/conformance/test_other_servers.py runs the checks of behaviour.
SPEED = "--ckpt-gate-table=speed-only"
# These saves last so long that some are under way when a listing of the bucket returns.
LONGER = (*SMALLEST, "--ckpt-scale=1/1000", "--cluster=1", "--ckpt-operations=6")
HALF_A_CHECKPOINT = 56_000_000
# The largest object of rank 0, and the number of its parts.
OF_RANK_0, PARTS = "zero_pp_rank_0_mp_rank_0_optim_states.pt", 10


@pytest.fixture(scope="module")
def ceph() -> Iterator[Gateways]:
    with gateways() as found:
        yield found


@pytest.fixture
def home(create_home: Callable[[str], Path]) -> Path:
    return create_home("gateways")


def in_a_save(run: Started, ceph: Gateways, bucket: str = BUCKET) -> None:
    """Wait until the run uploads a checkpoint."""
    s3 = ceph.boto3(ceph.both[1])

    def is_uploading() -> bool:
        uploads = s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
        return any("/checkpoint-" in upload["Key"] for upload in uploads)

    run.until(is_uploading, "a checkpoint is uploaded")


def kill_during_upload(run: Started, ceph: Gateways) -> None:
    """Kill the first gateway while rank 0 uploads the parts of its largest object through this gateway.

    The kill must precede the completion of the upload. A gateway that is killed during the completion leaves a lock for
    ten minutes (tests/conformance/test_gateways_of_ceph.py), so that the other gateway cannot complete the upload.
    """
    first, second = ceph.both
    s3 = ceph.boto3(second)

    def is_killed() -> bool:
        if not ceph.runs(first):
            return True
        for upload in s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []):
            if "/checkpoint-" not in upload["Key"] or not upload["Key"].endswith(OF_RANK_0):
                continue
            with ceph.frozen(first):
                words = {"Bucket": BUCKET, "Key": upload["Key"], "UploadId": upload["UploadId"]}
                if len(s3.list_parts(**words).get("Parts", [])) <= PARTS // 2:
                    ceph.kill(first)
                    return True
        return False

    run.until(is_killed, "rank 0 sends parts through the first gateway")


def reported_saves(run: Run) -> str:
    return str(run.verdict("SAVE", subject(run))["because"])


def test_a_run_meets_what_is_required_and_uses_both_gateways(ceph: Gateways, home: Path) -> None:
    with temporary_runner(home) as runner:
        run = started(
            runner, f"--ckpt-endpoint={ceph.endpoints}", SPEED, of=IN_PARTS, environment=ceph.environment
        ).finish()
    assert run.code == 0, run.text
    assert set(run.outcomes(subject(run)).values()) == {"met"}
    measured = run.measurement(subject(run))
    assert {row["endpoint"] for row in measured["requests"]} == {gateway.endpoint for gateway in ceph.both}
    assert measured["durability"]["acknowledged"] == ["only size and ETag"]
    assert run.document["left_behind"] == []
    assert ceph.server.stored_keys() == ([], [])
    for name, text in texts_of(run.report).items():
        assert ceph.environment["AWS_SECRET_ACCESS_KEY"] not in text, name


def test_a_gateway_that_is_killed_in_a_save_is_replaced_by_the_other(ceph: Gateways, home: Path) -> None:
    first, second = ceph.both
    with temporary_runner(home) as runner:
        going = started(runner, f"--ckpt-endpoint={ceph.endpoints}", SPEED, of=LONGER, environment=ceph.environment)
        kill_during_upload(going, ceph)
        try:
            run = going.finish()
        finally:
            ceph.start(first)
    assert run.code == 0, run.text
    outcomes = run.outcomes(subject(run))
    assert set(outcomes.values()) == {"met"}, run.text
    sent = {gateway.endpoint: 0 for gateway in ceph.both}
    for row in run.measurement(subject(run))["requests"]:
        sent[row["endpoint"]] += row["sent"]
    # The rank that started at the first gateway continued with the second.
    assert 0 < sent[first.endpoint] < sent[second.endpoint]
    assert run.document["left_behind"] == []
    assert ceph.server.stored_keys() == ([], [])


def test_without_another_gateway_the_save_fails_and_the_endpoint_is_named(ceph: Gateways, home: Path) -> None:
    second = ceph.both[1]
    # Two fifths of this time pass before the requests are given up. On a busy machine, ranks need the rest to report.
    words = (f"--ckpt-endpoint={second.endpoint}", "--ckpt-io-timeout=60s")
    with temporary_runner(home) as runner:
        going = started(runner, *words, SPEED, of=LONGER, environment=ceph.environment)
        in_a_save(going, ceph)
        ceph.kill(second)
        try:
            run = going.finish()
        finally:
            ceph.start(second)
            # No gateway answered, so the run removed nothing.
            ceph.empty()
    assert run.code == 1, run.text
    verdict = run.verdict("SAVE", subject(run))
    assert (verdict["outcome"], verdict["reason"]) == ("failed", "error")
    failure = run.measurement(subject(run))["failure"]
    assert failure["errno"] in {"ECONNREFUSED", "ECONNRESET"}
    assert failure["operation"]["action"] == "save"
    assert "endpoint" in reported_saves(run)
    assert "Traceback" not in run.text
    # The report names what stays, and the command to remove it.
    assert run.document["left_behind"]


def test_a_quota_that_is_exhausted_in_a_save_is_reported_as_one(ceph: Gateways, home: Path) -> None:
    with temporary_runner(home) as runner, quota(ceph, HALF_A_CHECKPOINT):
        run = started(
            runner, f"--ckpt-endpoint={ceph.endpoints}", SPEED, of=LONGER, environment=ceph.environment
        ).finish()
    assert run.code == 1, run.text
    failure = run.measurement(subject(run))["failure"]
    assert failure["errno"] == "EDQUOT"
    assert failure["operation"]["action"] == "save"
    assert "QuotaExceeded" in reported_saves(run)
    verdict = run.verdict("SAVE", subject(run))
    assert (verdict["outcome"], verdict["reason"]) == ("failed", "error")
    assert "quota" in run.text
    assert run.document["left_behind"] == []
    assert ceph.server.stored_keys() == ([], [])


def test_a_bucket_that_keeps_versions_is_refused(ceph: Gateways, home: Path) -> None:
    ceph.boto3(ceph.both[0]).create_bucket(Bucket="versions")
    ceph.versions("versions", "Enabled")
    with temporary_runner(home) as runner:
        words = (*IN_PARTS, "--ckpt-suite=performance", f"--ckpt-endpoint={ceph.endpoints}")
        run = runner.run(*words, target="s3://versions/ckpt", environment=ceph.environment)
    assert run.code == 4, run.text
    assert "the bucket keeps versions" in run.text
    assert "Traceback" not in run.text


def test_versions_that_an_operator_turns_on_in_a_run_are_reported_and_counted(ceph: Gateways, home: Path) -> None:
    s3 = ceph.boto3(ceph.both[1])
    s3.create_bucket(Bucket="turned-on")
    with temporary_runner(home) as runner:
        words = (*LONGER, SPEED, "--ckpt-suite=performance", f"--ckpt-endpoint={ceph.endpoints}")
        going = runner.start(*words, target="s3://turned-on/ckpt", environment=ceph.environment)
        in_a_save(going, ceph, "turned-on")
        ceph.versions("turned-on", "Enabled")
        run = going.finish()
    (left,) = run.document["left_behind"]
    listed = s3.list_object_versions(Bucket="turned-on")
    versions, markers = len(listed["Versions"]), len(listed["DeleteMarkers"])
    assert f"{versions} versions and {markers} delete markers stay below" in left, run.text
    assert "Traceback" not in run.text
