"""Bad input and faults on an object store, end to end: clear message, right exit code, no objects left."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.certificates import write_certificate
from tests.support.end_to_end import temporary_runner
from tests.support.object_runs import IN_PARTS, started, subject, texts_of
from tests.support.targets.object_server import (
    ACCOUNT,
    CREDENTIALS,
    TARGET,
    Fault,
    Misbehaving,
    Request,
    RequestFault,
    content_of,
    misbehaving_server,
)

THOROUGH = pytest.mark.thorough
SPEED = "--ckpt-gate-table=speed-only"
# A store may be busy for two fifths of this time.
SOON = ("--ckpt-io-timeout=40s",)


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with misbehaving_server() as found:
        yield found


def no_secret_in(texts: dict[str, str]) -> bool:
    return not [name for name, text in texts.items() for value in (*CREDENTIALS.values(), ACCOUNT) if value in text]


# --- before anything is written: exit 4 -------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "error"), [
    pytest.param("s4://test/ckpt", "s4", id="scheme"),
    pytest.param("S3:test/ckpt", "S3:test", id="no slashes", marks=THOROUGH),
    pytest.param("s3://test/a//b", "has an empty part", id="prefix", marks=THOROUGH),
    pytest.param("s3://test/../b", "of dots", id="prefix of dots", marks=THOROUGH),
    pytest.param("s3://test/" + "x/" * 350, "699 bytes", id="long prefix", marks=THOROUGH),
])  # fmt: skip
def test_a_target_that_cannot_be_is_refused(create_home: Callable[[str], Path], target: str, error: str) -> None:
    with temporary_runner(create_home("objects-target")) as runner:
        run = runner.start(*IN_PARTS, "--ckpt-suite=performance", target=target, environment=CREDENTIALS).finish()
    assert run.code == 4, run.text
    assert error in run.text
    assert "Traceback" not in run.text


@pytest.mark.parametrize(("fault", "error"), [
    pytest.param(Fault(request="get", way="deny", key="TRIAL"), "s3:GetObject", id="get denied"),
    pytest.param(Fault(request="begin", way="deny"), "s3:PutObject", id="begin denied"),
    pytest.param(Fault(request="uploads", way="deny"), "s3:ListBucketMultipartUploads", id="uploads denied"),
    pytest.param(Fault(request="list", way="deny", skip=1), "Give access to it", id="list denied later"),
    pytest.param(Fault(request="list", way="expired"), "the session token has expired", id="expired"),
    pytest.param(Fault(request="list", way="clock"), "20 minutes behind the store's", id="clock"),
    pytest.param(Fault(request="list", way="slow down"), "SlowDown", id="busy"),
    pytest.param(Fault(request="list", way="cut"), "the connection was cut", id="cut"),
    pytest.param(Fault(request="list", way="html"), "no XML", id="no store"),
    pytest.param(Fault(request="put", way="full"), "disk of this server is full", id="full"),
    pytest.param(Fault(request="get", way="flip", key="TRIAL"), "what comes back is not what was put", id="flipped"),
])  # fmt: skip
@THOROUGH
def test_a_store_that_cannot_be_used_is_refused(
    server: Misbehaving, create_home: Callable[[str], Path], fault: Fault, error: str
) -> None:
    server.faults.append(fault)
    with temporary_runner(create_home("objects-no")) as runner:
        run = started(runner, f"--ckpt-endpoint={server.endpoint}").finish()
    assert run.code == 4, run.text
    assert error in " ".join(run.text.split())
    assert "Traceback" not in run.text
    assert no_secret_in({"the terminal": run.text})
    assert not run.report.exists()
    assert content_of(server.behind) == ([], [])


@THOROUGH
def test_an_endpoint_that_accepts_and_never_answers_is_refused(create_home: Callable[[str], Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, temporary_runner(create_home("objects-silent")) as runner:
        run = started(runner, f"--ckpt-endpoint=http://127.0.0.1:{silent.getsockname()[1]}").finish()
    assert run.code == 4, run.text
    assert "did not answer in time" in " ".join(run.text.split())


@pytest.mark.parametrize("word", ["another name", "no bundle", pytest.param("no TLS", marks=THOROUGH)])
def test_tls_that_does_not_hold_is_refused(create_home: Callable[[str], Path], tmp_path: Path, word: str) -> None:
    certificate = write_certificate(tmp_path / "both.pem")
    with misbehaving_server(certificate=certificate if word != "no TLS" else None) as server:
        endpoint = server.endpoint.replace("localhost", "127.0.0.1") if word == "another name" else server.endpoint
        bundle = {} if word == "no bundle" else {"AWS_CA_BUNDLE": str(certificate)}
        with temporary_runner(create_home("objects-tls")) as runner:
            secure = f"--ckpt-endpoint={endpoint.replace('http:', 'https:')}"
            run = started(runner, secure, environment=bundle).finish()
    assert run.code == 4, run.text
    assert "TLS failed" in " ".join(run.text.split())
    assert "AWS_CA_BUNDLE" in run.text


# --- in the middle of saves and loads ---------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", ["begin", "part", "end", "put", "head", "get"])
@THOROUGH
def test_a_connection_that_is_cut_once_in_any_phase_fails_nothing(
    server: Misbehaving, create_home: Callable[[str], Path], request_: Request
) -> None:
    server.faults.append(Fault(request=request_, way="cut", key=".pt", skip=1, times=1))
    with temporary_runner(create_home("objects-cut")) as runner:
        run = started(runner, f"--ckpt-endpoint={server.endpoint}", SPEED, of=IN_PARTS).finish()
    assert run.code == 0, run.text
    assert set(run.outcomes(subject(run)).values()) == {"met"}
    assert sum(row["again"] for row in run.measurement(subject(run))["requests"]) == 1
    assert content_of(server.behind) == ([], [])


@pytest.mark.parametrize("request_", ["put", pytest.param("part", marks=THOROUGH)])
def test_a_busy_store_delays_a_save_and_is_reported(
    server: Misbehaving, create_home: Callable[[str], Path], request_: Request
) -> None:
    """A store answers "slow down" to eight requests for one object of each rank.

    The save succeeds late, and each of these answers is counted. After other errors, a request is retried fewer than
    eight times.
    """
    refusals = 8
    kind = "model" if request_ == "put" else "optim"
    for rank in (0, 1):
        key = f"zero_pp_rank_{rank}_mp_rank_0_{kind}_states.pt"
        server.faults.append(Fault(request=request_, way="slow down", key=key, times=refusals))
    with temporary_runner(create_home("objects-minute")) as runner:
        run = started(runner, f"--ckpt-endpoint={server.endpoint}", SPEED, of=IN_PARTS).finish()
    assert run.code == 0, run.text
    assert run.outcomes(subject(run))["INTEGRITY"] == "met"
    counted = [r for r in run.measurement(subject(run))["requests"] if r["busy"]]
    assert sum(r["busy"] for r in counted) == sum(r["again"] for r in counted) == 2 * refusals
    assert sum(r["waited_seconds"] for r in counted) > 0
    assert f"{2 * refusals} again, {2 * refusals} busy" in (run.report / "junit.xml").read_text()
    assert content_of(server.behind) == ([], [])


@dataclass(frozen=True, kw_only=True)
class RunFault:
    """A fault during saves or loads, and the expected outcome.

    ``error`` is a part of the expected message. If ``stays`` is true, objects remain in the bucket and the report names
    them. ``skip`` is the number of matching requests before the fault. ``code`` is the expected exit code.
    """

    request: Request
    way: RequestFault
    error: str
    key: str = ".pt"
    when_broken: RequestFault = "cut"
    stays: bool = False
    skip: int = 3
    # 8 if all saves and loads succeeded, but the rest of the run is incomplete.
    code: int = 1
    options: tuple[str, ...] = ()


@pytest.mark.parametrize("fault", [
    pytest.param(RunFault(request="put", way="slow down", error="SlowDown", options=SOON), id="busy for good"),
    pytest.param(RunFault(request="part", way="slow down", error="SlowDown", options=SOON), id="parts busy for good"),
    pytest.param(RunFault(request="part", way="cut", error="the connection was cut", options=SOON), id="parts cut"),
    pytest.param(RunFault(request="end", way="cut", error="end upload", options=SOON), id="ends cut"),
    pytest.param(RunFault(request="part", way="deny", error="AccessDenied"), id="part denied"),
    pytest.param(RunFault(request="end", way="deny", error="AccessDenied"), id="end denied"),
    pytest.param(RunFault(request="head", way="deny", error="the store forbids it"), id="head denied"),
    pytest.param(RunFault(request="get", way="deny", error="AccessDenied"), id="get denied"),
    pytest.param(
        RunFault(request="put", way="deny", key="_COMMITTED", error="AccessDenied", skip=0), id="marker denied"
    ),
    pytest.param(RunFault(request="part", way="full", error="disk of this server is full"), id="disk full"),
    pytest.param(RunFault(request="put", way="no bucket", error="NoSuchBucket"), id="bucket gone"),
    pytest.param(
        RunFault(request="put", way="break", when_broken="expired", error="ExpiredToken", stays=True),
        id="token expired",
    ),
    pytest.param(
        RunFault(request="part", way="break", when_broken="slow down", error="SlowDown", stays=True, options=SOON),
        id="503 from then on",
    ),
    pytest.param(RunFault(request="delete", way="deny", error="AccessDenied", stays=True, code=8), id="locked objects"),
    pytest.param(
        RunFault(request="part", way="silent", error="no progress", options=("--ckpt-io-timeout=10s",)), id="silent"
    ),
])  # fmt: skip
@THOROUGH
def test_a_store_that_fails_during_a_run_gives_a_clear_error_and_no_secret(
    server: Misbehaving, create_home: Callable[[str], Path], fault: RunFault
) -> None:
    server.faults.append(Fault(request=fault.request, way=fault.way, key=fault.key, skip=fault.skip))
    server.fault_when_broken = fault.when_broken
    with temporary_runner(create_home("objects-luck")) as runner:
        run = started(runner, f"--ckpt-endpoint={server.endpoint}", SPEED, *fault.options, of=IN_PARTS).finish()
    assert run.code == fault.code, run.text
    text = " ".join((str(run.measurement(subject(run))["failure"]) + str(run.document["left_behind"])).split())
    assert fault.error in text, text
    assert "Traceback" not in run.text
    assert no_secret_in({**texts_of(run.report), "the terminal": run.text})
    left = run.document["left_behind"]
    assert bool(left) == fault.stays, left
    assert (content_of(server.behind) != ([], [])) == fault.stays
    if fault.stays:
        assert "python -m pytest_ckpt.targets.objects.remove" in " ".join(left)
        assert TARGET in " ".join(left)
