"""Defects of Ceph's object gateway (RGW) that the checks detect, reproduced with boto3 instead of pytest-ckpt.

If a test of this module fails, Ceph has changed: update the table of known defects in test_other_servers.py.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.targets.object_server import BUCKET
from tests.support.targets.rgw import Gateways, gateways

pytestmark = pytest.mark.thorough

PART_BYTES = 5 << 20
# Tries until both gateways complete an upload at the same time.
TRIES = 300
DATA, WRONG_CRC32 = b"abc", "AAAAAA=="


@pytest.fixture(scope="module")
def ceph() -> Iterator[Gateways]:
    with gateways() as found:
        yield found


@pytest.fixture(scope="module")
def s3(ceph: Gateways) -> Any:
    return ceph.boto3(ceph.both[0])


def answered(call: Callable[[], Any]) -> tuple[int, str]:
    """Call ``call`` and return (HTTP status, error code). The error code of a successful request is empty."""
    from botocore.exceptions import ClientError  # noqa: PLC0415 - slow import, and every worker collects this

    try:
        return int(call()["ResponseMetadata"]["HTTPStatusCode"]), ""
    except ClientError as error:
        return int(error.response["ResponseMetadata"]["HTTPStatusCode"]), str(error.response["Error"]["Code"])


def uploaded(s3: Any, key: str, numbers: tuple[int, ...]) -> tuple[str, dict[int, str]]:
    """Begin a multipart upload, send the parts ``numbers`` in this order, and return (id, {part number: ETag})."""
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
    return upload, {
        number: s3.upload_part(
            Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=number, Body=bytes([number]) * PART_BYTES
        )["ETag"]
        for number in numbers
    }


def ended(s3: Any, key: str, upload: str, parts: dict[int, str], **conditions: str) -> tuple[int, str]:
    """Complete an upload with ``parts``, {part number: ETag}, in their order; return (HTTP status, error code).

    ``conditions`` are further arguments of the request, such as IfNoneMatch.
    """
    named = {"Parts": [{"PartNumber": number, "ETag": etag} for number, etag in parts.items()]}
    return answered(
        lambda: s3.complete_multipart_upload(
            Bucket=BUCKET, Key=key, UploadId=upload, MultipartUpload=named, **conditions
        )
    )


def test_create_the_end_of_an_upload_replaces_an_object_that_must_not_be_there(s3: Any) -> None:
    """The gateway ignores If-None-Match when an upload is completed, but obeys it in a PUT.

    OBJECT-CREATE.multipart detects this defect.
    """
    s3.put_object(Bucket=BUCKET, Key="create", Body=b"the first")
    refused = answered(lambda: s3.put_object(Bucket=BUCKET, Key="create", Body=b"another", IfNoneMatch="*"))
    assert refused == (412, "PreconditionFailed")
    upload, parts = uploaded(s3, "create", (1,))
    assert ended(s3, "create", upload, parts, IfNoneMatch="*") == (200, "")
    assert s3.head_object(Bucket=BUCKET, Key="create")["ContentLength"] == PART_BYTES


def test_digest_a_wrong_checksum_of_an_object_is_accepted(s3: Any) -> None:
    """The gateway accepts an object with a wrong CRC-32, but refuses a wrong Content-MD5.

    OBJECT-DIGEST.object detects this defect.
    """
    md5 = answered(lambda: s3.put_object(Bucket=BUCKET, Key="digest", Body=DATA, ContentMD5="A" * 22 + "=="))
    assert md5 == (400, "BadDigest")
    assert answered(lambda: s3.put_object(Bucket=BUCKET, Key="digest", Body=DATA, ChecksumCRC32=WRONG_CRC32))[0] == 200


def test_digest_a_wrong_checksum_of_a_part_is_accepted(s3: Any) -> None:
    """The gateway accepts a part with a wrong checksum. OBJECT-DIGEST.part detects this defect."""
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="part")["UploadId"]
    words = {"Bucket": BUCKET, "Key": "part", "UploadId": upload, "PartNumber": 1, "Body": DATA}
    assert answered(lambda: s3.upload_part(**words, ChecksumCRC32=WRONG_CRC32)) == (200, "")


def test_digest_a_checksum_that_was_sent_does_not_come_back(s3: Any) -> None:
    """The gateway does not return the checksum that a PUT sent. OBJECT-DIGEST.kept detects this defect."""
    right = base64.b64encode(zlib.crc32(DATA).to_bytes(4, "big")).decode()
    s3.put_object(Bucket=BUCKET, Key="kept", Body=DATA, ChecksumCRC32=right)
    assert "ChecksumCRC32" not in s3.head_object(Bucket=BUCKET, Key="kept", ChecksumMode="ENABLED")


def test_limits_part_10001_is_accepted(s3: Any) -> None:
    """The gateway accepts part 10,001, although S3 allows 10,000 parts. OBJECT-LIMITS.parts detects this defect."""
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="limits")["UploadId"]
    words = {"Bucket": BUCKET, "Key": "limits", "UploadId": upload, "PartNumber": 10_001, "Body": DATA}
    assert answered(lambda: s3.upload_part(**words)) == (200, "")


def test_limits_parts_in_descending_order_are_accepted(s3: Any) -> None:
    """The gateway accepts parts in descending order, although S3 refuses them. No check detects this defect.

    OBJECT-LIMITS.parts ends before it tests the order, because the gateway refuses an upload with an omitted part.
    """
    upload, parts = uploaded(s3, "descending", (1, 2))
    assert ended(s3, "descending", upload, dict(sorted(parts.items(), reverse=True))) == (200, "")


def test_multipart_an_end_that_leaves_out_a_part_is_refused(s3: Any) -> None:
    """The gateway refuses to complete an upload if the request omits a part that was sent, although S3 allows this.

    OBJECT-MULTIPART.parts and OBJECT-LIMITS.parts detect this defect. Like S3, the gateway accepts parts that are sent
    out of order or twice, and gaps between part numbers.
    """
    upload, parts = uploaded(s3, "left-out", (1, 2))
    assert ended(s3, "left-out", upload, {1: parts[1]}) == (400, "InvalidPart")
    upload, parts = uploaded(s3, "resent", (2, 1, 1))
    assert ended(s3, "resent", upload, dict(sorted(parts.items()))) == (200, "")
    upload, parts = uploaded(s3, "gaps", (1, 5))
    assert ended(s3, "gaps", upload, parts) == (200, "")


def test_an_upload_that_one_gateway_ends_is_locked_for_the_other(ceph: Gateways) -> None:
    """While one gateway completes an upload, the other gateway answers the same request with an internal error.

    No check detects this defect. If the completing gateway is killed, its lock on the upload remains, by default for 10
    minutes.
    """
    clients = [ceph.boto3(gateway) for gateway in ceph.both]
    answers: list[tuple[int, str]] = []
    with ThreadPoolExecutor(2) as threads:
        for number in range(TRIES):
            key = f"locked-{number}"
            upload = clients[0].create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
            words = {"Bucket": BUCKET, "Key": key, "UploadId": upload, "PartNumber": 1, "Body": DATA}
            parts = {1: clients[0].upload_part(**words)["ETag"]}
            answers = list(threads.map(lambda s3, k=key, u=upload, p=parts: ended(s3, k, u, p), clients))
            if any(status != 200 for status, _ in answers):
                break
    assert sorted(answers) == [(200, ""), (500, "InternalError")]
