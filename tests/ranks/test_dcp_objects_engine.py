"""Engines that save to a bucket with other projects' client libraries, with one rank: memory, requests and errors."""

from __future__ import annotations

import errno

import pytest

from pytest_ckpt.facts.engines import built_in
from pytest_ckpt.facts.targets import TARGETS, Access, AreaRef
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.targets.objects.errors import translate_error
from pytest_ckpt.targets.schemes import create_target
from tests.support.one_rank import as_one_rank
from tests.support.small_memory import cannot, small_memory
from tests.support.targets.object_server import CREDENTIALS, TARGET, misbehaving_server, object_server

ENGINES = ("dcp-s3torchconnector", "dcp-s3fs")
KEYS = " ".join(CREDENTIALS.values())


def area_of(endpoint: str) -> AreaRef:
    return create_target(TARGETS["s3"], TARGET, Access(endpoints=(endpoint,))).create_area("one-rank")


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ENGINES)
def test_a_rank_saves_and_loads_within_the_declared_memory(monkeypatch, engine):
    """A rank saves and loads within the memory that the engine declares.

    A control group enforces this memory limit.
    """
    if why := cannot():
        pytest.skip(why)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    found = built_in(engine)
    assert found
    whole = layout("llama3-8b", mode="open", processes=64, scale=0.3)
    state = whole.rank(0).bytes
    stated = found.memory.process_bytes + found.memory.state_bytes(state)
    with object_server() as endpoint, small_memory(stated) as group:
        front = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
        area = area_of(endpoint)
        fields = {action: as_one_rank(engine, whole, area, action, front) for action in ("save", "load")}
    assert (fields["load"]["loaded"], fields["load"]["checked"], fields["load"]["faults"]) == (state, state, 0)
    for action in fields:
        # The stated memory is enough, and not so large that it says nothing.
        assert stated / 2 < fields[action]["peak_bytes"] <= stated, (engine, action)


OWN, METADATA, PASSING = "__0_0.distcp", ".metadata", ".metadata.tmp"
# A copy counts as "put", a deletion of many objects as "other". pytest-ckpt itself sends the last two of a save.
OURS = [("head", OWN), ("head", METADATA)]
ASKED = {
    ("dcp-s3torchconnector", "save"): [
        ("head", METADATA),
        ("begin", OWN), ("part", OWN), ("part", OWN), ("end", OWN),
        ("begin", PASSING), ("part", PASSING), ("end", PASSING),
        ("head", METADATA), ("head", PASSING), ("put", METADATA), ("delete", PASSING),
        *OURS,
    ],
    ("dcp-s3torchconnector", "load"): [("get", METADATA), ("get", OWN), ("get", OWN)],
    ("dcp-s3fs", "save"): [
        ("head", "test"), ("head", METADATA), ("list", "test"),
        ("put", OWN),
        ("put", PASSING),
        ("head", METADATA), *[("list", "test")] * 3, ("head", PASSING), ("put", METADATA), ("other", "test"),
        *OURS,
    ],
    ("dcp-s3fs", "load"): [("head", METADATA), ("get", METADATA), ("head", OWN), ("get", OWN)],
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ENGINES)
def test_the_clients_send_the_requests_that_the_page_of_engines_lists(monkeypatch, engine):
    """The client libraries send the requests that docs/engines.md and docs/object_stores.md list.

    If a new version of a client library sends other requests, update both pages.
    """
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    # An object of 11.6 MB, sent as two parts or in one request.
    whole = layout("llama3-8b", mode="open", processes=2, scale=1 / 5000)
    with misbehaving_server() as server:
        area = area_of(server.endpoint)
        for action in ("save", "load"):
            server.asked.clear()
            found = as_one_rank(engine, whole, area, action)
            assert server.asked == ASKED[engine, action]
    assert (found["checked"], found["faults"]) == (whole.rank(0).bytes, 0)


class Forbidden(Exception):  # noqa: N818
    """An error like those that botocore raises."""

    response = {"Error": {"Code": "AccessDenied", "Message": KEYS}, "ResponseMetadata": {"HTTPStatusCode": 403}}  # noqa: RUF012


class Planted(Exception):  # noqa: N818
    response = {"Error": {"Code": CREDENTIALS["AWS_ACCESS_KEY_ID"]}, "ResponseMetadata": {"HTTPStatusCode": 503}}  # noqa: RUF012


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(("error", "number", "words"), [
    (caused_by(PermissionError(KEYS), Forbidden(KEYS)), errno.EACCES, "status 403, AccessDenied"),
    (Planted(KEYS), errno.EBUSY, "status 503"),
    (RuntimeError(f"Client error: Forbidden: {KEYS}"), errno.EACCES, "status 403, AccessDenied"),
    (RuntimeError("Client error: Request throttled"), errno.EBUSY, "status 503, SlowDown"),
    (RuntimeError(f"response_status: 507, {KEYS}"), errno.ENOSPC, "status 507"),
    (RuntimeError(f"aws-c-s3: AWS_ERROR_S3_TOKEN_EXPIRED, {KEYS}"), errno.EIO, "status 400, ExpiredToken"),
    (FileNotFoundError(KEYS), errno.ENOENT, "status 404, NoSuchKey"),
    (OSError(errno.EBUSY, KEYS), errno.EBUSY, "OSError"),
    (RuntimeError(KEYS), errno.EIO, "RuntimeError"),
    (RuntimeError(f'Client error: Header "ETag" not found, {KEYS}'), errno.EIO,
     "RuntimeError: the store's answer lacks the header ETag"),
])  # fmt: skip
def test_an_error_of_a_client_becomes_one_of_ours_with_status_and_code_alone(error, number, words):
    found = translate_error(error, "client 1.0", "write", "s3://test/ckpt/x")
    assert isinstance(found, OSError)
    assert found.errno == number
    assert found.strerror == f"write: client 1.0 met {words}"
    assert not [value for value in CREDENTIALS.values() if value in str(found)]


def test_a_range_that_an_object_does_not_have_is_no_error_of_the_storage():
    found = translate_error(RuntimeError("response_status: 416"), "client 1.0", "read", "s3://test/ckpt/x")
    assert isinstance(found, EOFError)
