"""Servers of S3, of Azure and of Google that others wrote: of each the known defects are found, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest

from tests.support.object_checks import failed
from tests.support.object_matrix import ALL, LARGE
from tests.support.targets.other_servers import OtherServer, azurite, fake_gcs_server, s3rver, swift
from tests.support.targets.rgw import rgw

pytestmark = pytest.mark.thorough


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a server: checks that fail with words of why, and those that may, by the moment."""

    start: Callable[[], AbstractContextManager[OtherServer]]
    fails: dict[str, str]
    may_fail: frozenset[str] = frozenset()
    # What it cannot do in a test: it would be sent 5 GiB for each.
    not_asked: frozenset[str] = frozenset()
    # What it does not outlive: these have a server each.
    ends_it: frozenset[str] = frozenset()


KNOWN = (
    # It keeps objects whole and checks digests, but of several who create one object at once more than one is told that
    # he did, If-Match of a PUT is not implemented, and no checksum comes back.
    Known(
        start=swift,
        fails={
            "OBJECT-CREATE.put": "several winners",
            "OBJECT-CREATE.multipart": "several winners",
            "OBJECT-UPDATE.put": "update refused",
            "OBJECT-DIGEST.kept": "checksum not kept",
        },
    ),
    # It heeds neither conditions nor digests, can neither abort nor list uploads, and shows an object before it is
    # whole; a key of 1,024 bytes ends it.
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
        # By the moment: an object is seen before it is whole, and ranges of one that is overwritten are mixed.
        may_fail=frozenset({"OBJECT-COMMIT.marker", "OBJECT-OVERWRITE.writers", "OBJECT-RANGE.overwritten"}),
        not_asked=LARGE,
        ends_it=frozenset({"OBJECT-LIST.names"}),
    ),
    # Of a range that begins where an object ends it answers that it is there, and has no bytes. What S3 says of parts
    # is not asked of a store of Azure.
    Known(
        start=azurite,
        fails={"OBJECT-RANGE.bytes": "range beyond the end"},
        not_asked=LARGE | {"OBJECT-LIMITS.parts"},
    ),
    # It heeds no condition where it composes objects or reads one, and no MD5; of keys that share a directory, each
    # page of a listing names that directory again.
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
    # It heeds Content-MD5 and If-None-Match of a PUT, but no other checksum and no condition at the end of an upload.
    # Whoever ends an upload must name all of its parts. tests/conformance/test_gateways_of_ceph.py shows each of them
    # with boto3. Objects of 5 GiB do not fit its memory here.
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
            seen |= failed(server.endpoint, sorted(asked), 60.0, server.environment, server.target)
    text = "\n".join(f"{name}: {because}" for name, because in seen.items())
    assert known.fails.keys() <= seen.keys() <= known.fails.keys() | known.may_fail, text
    for name, words in known.fails.items():
        assert words in seen[name], text
