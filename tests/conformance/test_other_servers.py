"""Object-store servers of other projects (S3, Azure, Google): the checks find exactly the known defects."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest

from tests.support.object_checks import MAXIMUM_SECONDS, failed
from tests.support.object_matrix import ALL, LARGE
from tests.support.targets.other_servers import ThirdPartyServer, azurite, fake_gcs_server, s3rver, swift
from tests.support.targets.rgw import rgw

pytestmark = pytest.mark.thorough


@dataclass(frozen=True, kw_only=True)
class Known:
    """A server and its known defects.

    ``fails`` is {name of a check that always fails: words in the reason of the failure}. ``may_fail`` are the checks
    that fail in some runs.
    """

    start: Callable[[], AbstractContextManager[ThirdPartyServer]]
    fails: dict[str, str]
    may_fail: frozenset[str] = frozenset()
    # Checks that are too large for a test: each would send 5 GiB.
    not_asked: frozenset[str] = frozenset()
    # Checks that end the server: each has its own server.
    ends_it: frozenset[str] = frozenset()
    # The time after which a check counts as blocked.
    maximum_seconds: float = MAXIMUM_SECONDS


KNOWN = (
    # It keeps objects complete and checks digests. If several clients create one object concurrently, it reports
    # success to more than one. It does not implement If-Match of a PUT, and returns no checksum.
    Known(
        start=swift,
        fails={
            "OBJECT-CREATE.put": "several winners",
            "OBJECT-CREATE.multipart": "several winners",
            "OBJECT-UPDATE.put": "update refused",
            "OBJECT-DIGEST.kept": "checksum not kept",
        },
        # A busy server updates the list of a bucket later than it acknowledges an object.
        may_fail=frozenset({"OBJECT-LIST.pages"}),
        # On a busy machine, the end of an upload of 1,001 parts takes minutes.
        maximum_seconds=4 * MAXIMUM_SECONDS,
    ),
    # It ignores conditions and digests, can neither abort nor list uploads, and shows incomplete objects. A key of
    # 1,024 bytes ends it.
    Known(
        start=s3rver,
        fails={
            "OBJECT-CREATE.put": "condition ignored",
            "OBJECT-CREATE.multipart": "condition ignored",
            "OBJECT-UPDATE.put": "condition ignored",
            "OBJECT-DIGEST.object": "wrong digest accepted",
            "OBJECT-DIGEST.part": "wrong digest accepted",
            "OBJECT-DIGEST.kept": "checksum not kept",
            "OBJECT-LIMITS.parts": "not refused",
            "OBJECT-LIVE.requests": "abort upload was refused with 405",
            "OBJECT-MULTIPART.hidden": "listing of uploads was refused with 501",
            "OBJECT-RANGE.bytes": "wrong bytes in a range",
            "OBJECT-LIST.names": "a request failed",
            "OBJECT-LIST.pages": "a request failed",
        },
        # It acknowledges an object before it has written the object's file. On a busy machine, every check that reads
        # can see an incomplete object.
        may_fail=ALL,
        not_asked=LARGE,
        ends_it=frozenset({"OBJECT-LIST.names"}),
    ),
    # A range that begins at the end of an object gets a success without bytes. The checks of S3's part rules do not
    # apply to Azure.
    Known(
        start=azurite,
        fails={"OBJECT-RANGE.bytes": "range beyond the end"},
        not_asked=LARGE | {"OBJECT-LIMITS.parts"},
    ),
    # It ignores conditions when it composes or reads objects, and ignores MD5. If keys share a directory, each page of
    # a listing names that directory again.
    Known(
        start=fake_gcs_server,
        fails={
            "OBJECT-CREATE.multipart": "condition ignored",
            "OBJECT-DIGEST.object": "wrong digest accepted",
            "OBJECT-DIGEST.part": "wrong digest accepted",
            "OBJECT-LIST.pages": "key listed twice",
            "OBJECT-RANGE.overwritten": "condition of a range ignored",
        },
        not_asked=LARGE | {"OBJECT-LIMITS.parts"},
    ),
    # It obeys Content-MD5 and If-None-Match of a PUT, but no other checksum, and no condition when an upload is
    # completed. A client that completes an upload must name all of its parts.
    # tests/conformance/test_gateways_of_ceph.py shows each defect with boto3. Objects of 5 GiB do not fit its memory
    # here.
    Known(
        start=rgw,
        fails={
            "OBJECT-CREATE.multipart": "several winners",
            "OBJECT-DIGEST.object": "wrong digest accepted",
            "OBJECT-DIGEST.part": "wrong digest accepted",
            "OBJECT-DIGEST.kept": "checksum not kept",
            "OBJECT-LIMITS.parts": "not refused: part 10,001",
            "OBJECT-MULTIPART.parts": "the end of an upload was refused with 400 invalidpart",
        },
        not_asked=LARGE,
    ),
)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.start.__name__)
def test_the_known_defects_are_found_and_nothing_else(known: Known) -> None:
    seen: dict[str, str] = {}
    for asked in (ALL - known.not_asked - known.ends_it, *(frozenset({name}) for name in sorted(known.ends_it))):
        with known.start() as server:
            seen |= failed(
                server.endpoint,
                sorted(asked),
                60.0,
                server.environment,
                server.target,
                maximum_seconds=known.maximum_seconds,
            )
    text = "\n".join(f"{name}: {because}" for name, because in seen.items())
    assert known.fails.keys() <= seen.keys() <= known.fails.keys() | known.may_fail, text
    for name, words in known.fails.items():
        assert words in seen[name], text
