"""The embedded object-store server works with boto3, and provides the guarantees that S3 clients expect."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.support.machine import eventually
from tests.support.targets.object_server import BUCKET, object_server

MIB = 1 << 20
PART = os.urandom(5 * MIB)


@pytest.fixture(scope="module")
def client():
    with object_server() as endpoint:
        yield boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}, max_pool_connections=32),
        )


def code(call, **words):
    with pytest.raises(ClientError) as refused:
        call(Bucket=BUCKET, **words)
    return refused.value.response["Error"]["Code"], refused.value.response["ResponseMetadata"]["HTTPStatusCode"]


def download(client, key, **words):
    return client.get_object(Bucket=BUCKET, Key=key, **words)["Body"].read()


def uploaded(client, key, parts, **words):
    name = client.create_multipart_upload(Bucket=BUCKET, Key=key, ChecksumAlgorithm="CRC32")["UploadId"]
    sent = []
    for number, data in parts:
        answer = client.upload_part(
            Bucket=BUCKET, Key=key, UploadId=name, PartNumber=number, Body=data, ChecksumAlgorithm="CRC32"
        )
        sent.append({"PartNumber": number, "ETag": answer["ETag"], "ChecksumCRC32": answer["ChecksumCRC32"]})
    sent.sort(key=lambda part: part["PartNumber"])
    return client.complete_multipart_upload(
        Bucket=BUCKET, Key=key, UploadId=name, MultipartUpload={"Parts": sent}, **words
    )


def test_a_part_is_copied_from_an_object_and_outlives_it(client):
    client.put_object(Bucket=BUCKET, Key="of/ä b", Body=PART)
    name = client.create_multipart_upload(Bucket=BUCKET, Key="copies")["UploadId"]
    source = {"Bucket": BUCKET, "Key": "of/ä b"}
    sent = [
        client.upload_part_copy(Bucket=BUCKET, Key="copies", UploadId=name, PartNumber=number, CopySource=source)
        for number in (1, 2)
    ]
    client.delete_object(Bucket=BUCKET, Key="of/ä b")
    named = [{"PartNumber": n, "ETag": answer["CopyPartResult"]["ETag"]} for n, answer in enumerate(sent, 1)]
    client.complete_multipart_upload(Bucket=BUCKET, Key="copies", UploadId=name, MultipartUpload={"Parts": named})
    assert download(client, "copies") == 2 * PART


@pytest.mark.parametrize("parts", [1, 2])
def test_an_object_is_copied_complete_and_outlives_the_other(client, parts):
    uploaded(client, "from/ä b", [(number, PART) for number in range(1, parts + 1)])
    source = {"Bucket": BUCKET, "Key": "from/ä b"}
    made = client.copy_object(Bucket=BUCKET, Key="to", CopySource=source)["CopyObjectResult"]
    assert code(client.copy_object, Key="to", CopySource=source, IfNoneMatch="*") == ("PreconditionFailed", 412)
    assert code(client.copy_object, Key="from/ä b", CopySource=source) == ("InvalidRequest", 400)
    assert code(client.copy_object, Key="to", CopySource=source, CopySourceIfMatch='"other"')[1] == 501
    client.delete_object(Bucket=BUCKET, Key="from/ä b")
    assert code(client.copy_object, Key="again", CopySource=source) == ("NoSuchKey", 404)
    assert download(client, "to", IfMatch=made["ETag"]) == parts * PART
    assert client.head_object(Bucket=BUCKET, Key="to")["ETag"] == made["ETag"]


@pytest.mark.parametrize("is_quiet", [False, True])
def test_many_objects_are_deleted_at_once(client, is_quiet):
    keys = ["many/a b", "many/ü&<>", "many/none"]
    for key in keys[:2]:
        client.put_object(Bucket=BUCKET, Key=key, Body=b"bytes")
    wanted = {"Objects": [{"Key": key} for key in keys], "Quiet": is_quiet}
    answer = client.delete_objects(Bucket=BUCKET, Delete=wanted)
    assert [one["Key"] for one in answer.get("Deleted", [])] == ([] if is_quiet else keys)
    assert "Contents" not in client.list_objects_v2(Bucket=BUCKET, Prefix="many/")


@pytest.mark.parametrize("words", [{"CopySourceRange": "bytes=0-4"}, {"PartNumber": 10_001}])
def test_copies_that_the_server_does_not_support_are_refused(client, words):
    client.put_object(Bucket=BUCKET, Key="of", Body=b"bytes")
    name = client.create_multipart_upload(Bucket=BUCKET, Key="refused")["UploadId"]
    fields = {"Key": "refused", "UploadId": name, "PartNumber": 1, "CopySource": {"Bucket": BUCKET, "Key": "of"}}
    assert code(client.upload_part_copy, **fields | words)[1] in (400, 501)
    client.abort_multipart_upload(Bucket=BUCKET, Key="refused", UploadId=name)


@pytest.mark.parametrize("key", ["a", "directory/a b+c", "größe/ü&<>?#%", "a//b/"])
def test_an_object_is_read_back_completely_and_by_ranges(client, key):
    data = os.urandom(100_000)
    answer = client.put_object(Bucket=BUCKET, Key=key, Body=data)
    seen = client.head_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED")
    assert (seen["ContentLength"], seen["ETag"]) == (len(data), answer["ETag"])
    assert seen["ChecksumCRC32"] == answer["ChecksumCRC32"]
    assert download(client, key) == data
    for words, expected in (
        ("bytes=0-0", data[:1]),
        ("bytes=10-19", data[10:20]),
        ("bytes=99990-200000", data[99990:]),
        ("bytes=-7", data[-7:]),
    ):
        assert download(client, key, Range=words) == expected, words
    assert code(client.get_object, Key=key, Range="bytes=100000-") == ("InvalidRange", 416)
    client.delete_object(Bucket=BUCKET, Key=key)
    assert code(client.get_object, Key=key) == ("NoSuchKey", 404)


def test_parts_in_any_order_are_one_object_that_nobody_saw_before(client):
    name = client.create_multipart_upload(Bucket=BUCKET, Key="parts")["UploadId"]
    client.upload_part(Bucket=BUCKET, Key="parts", UploadId=name, PartNumber=1, Body=b"nothing to do with it")
    assert code(client.get_object, Key="parts") == ("NoSuchKey", 404)
    listed = client.list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    assert [(u["Key"], u["UploadId"]) for u in listed] == [("parts", name)]
    client.abort_multipart_upload(Bucket=BUCKET, Key="parts", UploadId=name)
    assert "Uploads" not in client.list_multipart_uploads(Bucket=BUCKET)
    assert code(client.upload_part, Key="parts", UploadId=name, PartNumber=1, Body=b"") == ("NoSuchUpload", 404)

    uploaded(client, "parts", [(7, b"the end"), (3, PART), (1, PART[::-1])])
    assert download(client, "parts") == PART[::-1] + PART + b"the end"
    border = len(PART)
    assert download(client, "parts", Range=f"bytes={border - 3}-{border + 2}") == PART[:3][::-1] + PART[:3]
    seen = client.head_object(Bucket=BUCKET, Key="parts", ChecksumMode="ENABLED")
    assert (seen["ChecksumType"], seen["ChecksumCRC32"].endswith("-3")) == ("COMPOSITE", True)


def test_a_document_that_is_not_an_object_is_refused(client):
    assert code(client.put_object, Key="x", Body=b"12345", ChecksumCRC32="AAAAAA==") == ("BadDigest", 400)
    assert code(client.head_object, Key="x")[1] == 404
    name = client.create_multipart_upload(Bucket=BUCKET, Key="x")["UploadId"]
    words = {"Key": "x", "UploadId": name}
    assert code(client.upload_part, **words, PartNumber=10_001, Body=b"") == ("InvalidArgument", 400)
    sent = [
        {"PartNumber": n, "ETag": client.upload_part(Bucket=BUCKET, **words, PartNumber=n, Body=b"small")["ETag"]}
        for n in (1, 2)
    ]
    for parts, expected in (
        (sent, "EntityTooSmall"),
        (sent[::-1], "InvalidPartOrder"),
        ([sent[0] | {"ETag": '"another"'}], "InvalidPart"),
        ([sent[0] | {"PartNumber": 3}], "InvalidPart"),
    ):
        assert code(client.complete_multipart_upload, **words, MultipartUpload={"Parts": parts}) == (expected, 400)
    client.abort_multipart_upload(Bucket=BUCKET, **words)


def test_a_part_that_arrives_again_late_keeps_its_etag_and_other_bytes_do_not(client):
    """A client that gave up a request sends the part again; the server may process the first request last."""
    upload = client.create_multipart_upload(Bucket=BUCKET, Key="late")["UploadId"]

    def sent(number, data):
        words = {"Bucket": BUCKET, "Key": "late", "UploadId": upload}
        return {"PartNumber": number, "ETag": client.upload_part(**words, PartNumber=number, Body=data)["ETag"]}

    named = [sent(1, PART), sent(2, PART[::-1])]
    assert sent(1, PART) == named[0]
    again = sent(2, PART)
    assert again["ETag"] != named[1]["ETag"]
    words = {"Key": "late", "UploadId": upload}
    assert code(client.complete_multipart_upload, **words, MultipartUpload={"Parts": named}) == ("InvalidPart", 400)
    client.complete_multipart_upload(Bucket=BUCKET, **words, MultipartUpload={"Parts": [named[0], again]})
    assert download(client, "late") == 2 * PART


def test_a_read_of_another_version_is_refused_and_other_digests_are_checked_and_kept(client):
    put = client.put_object(Bucket=BUCKET, Key="kept", Body=b"123456789", ChecksumCRC32C="4waSgw==")
    head = client.head_object(Bucket=BUCKET, Key="kept", ChecksumMode="ENABLED")
    assert head["ChecksumCRC32C"] == "4waSgw=="
    assert code(client.put_object, Key="kept", Body=b"other", ChecksumCRC32C="4waSgw==") == ("BadDigest", 400)
    assert code(client.put_object, Key="kept", Body=b"other", ContentMD5="A" * 22 + "==") == ("BadDigest", 400)
    client.put_object(Bucket=BUCKET, Key="kept", Body=b"other")
    assert code(client.get_object, Key="kept", IfMatch=put["ETag"]) == ("PreconditionFailed", 412)


def test_only_one_of_many_creators_creates_a_key(client):
    def make(number):
        try:
            client.put_object(Bucket=BUCKET, Key="one", Body=b"%d" % number, IfNoneMatch="*")
        except ClientError as refused:
            return refused.response["ResponseMetadata"]["HTTPStatusCode"]
        return "made"

    with ThreadPoolExecutor(16) as racers:
        listed = list(racers.map(make, range(16)))
    assert sorted(listed, key=str) == [412] * 15 + ["made"]
    assert download(client, "one") == b"%d" % listed.index("made")
    etag = client.head_object(Bucket=BUCKET, Key="one")["ETag"]
    client.put_object(Bucket=BUCKET, Key="one", Body=b"next", IfMatch=etag)
    assert code(client.put_object, Key="one", Body=b"late", IfMatch=etag) == ("PreconditionFailed", 412)
    assert download(client, "one") == b"next"


def test_a_key_that_is_overwritten_is_always_complete(client):
    versions = [bytes([number]) * (3 * MIB) for number in range(4)]
    client.put_object(Bucket=BUCKET, Key="again", Body=versions[0])
    done = threading.Event()

    def overwrite():
        for number in range(40):
            client.put_object(Bucket=BUCKET, Key="again", Body=versions[number % 4])
        done.set()

    with ThreadPoolExecutor(1) as writer:
        ended = writer.submit(overwrite)
        while not done.is_set() and not ended.done():
            assert download(client, "again") in versions
        ended.result()


def test_a_slow_reader_gets_the_object_as_it_was_at_the_time_of_the_request(client):
    """A slow reader receives the old bytes of an object that is replaced during the read.

    The server sends pages of its file without a copy. The server must not reuse the space of these pages before the
    read ends.
    """
    host, _, port = client.meta.endpoint_url.rpartition("//")[2].partition(":")
    data, keys = os.urandom(250_000), [f"slow/{number}" for number in range(8)]
    for key in keys:
        client.put_object(Bucket=BUCKET, Key=key, Body=data)
    file = os.open(file_of(client.meta.endpoint_url), os.O_RDWR)
    # Data read from the disk come in large pages, which several objects share.
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)
    with contextlib.ExitStack() as ends:
        answers = []
        for key in keys:
            reader = ends.enter_context(contextlib.closing(http.client.HTTPConnection(host, int(port))))
            reader.request("GET", f"/{BUCKET}/{key}")
            answers.append(ends.enter_context(reader.getresponse()))
        for key in keys:
            client.put_object(Bucket=BUCKET, Key=key, Body=b"")
        assert [key for key, answer in zip(keys, answers, strict=True) if answer.read() != data] == []


def test_listings_are_complete_in_order_and_by_directories(client):
    keys = sorted(f"list/{number % 7}/{number:04}" for number in range(1205))
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda key: client.put_object(Bucket=BUCKET, Key=key, Body=b""), keys))
    pages = client.get_paginator("list_objects_v2")
    found = [o["Key"] for page in pages.paginate(Bucket=BUCKET, Prefix="list/") for o in page["Contents"]]
    assert found == keys
    by_directory = list(pages.paginate(Bucket=BUCKET, Prefix="list/", Delimiter="/", PaginationConfig={"PageSize": 3}))
    directories = [p["Prefix"] for page in by_directory for p in page.get("CommonPrefixes", [])]
    assert directories == [f"list/{number}/" for number in range(7)]
    assert all("Contents" not in page for page in by_directory)


def test_space_goes_back_when_nobody_holds_it_and_all_of_it_with_the_process():
    with object_server() as endpoint:
        client = boto3.client(
            "s3", endpoint_url=endpoint, region_name="x", aws_access_key_id="a", aws_secret_access_key="a"
        )
        pid, file = server_of(endpoint), file_of(endpoint)
        uploaded(client, "space", [(1, PART), (2, PART)])
        assert file.stat().st_blocks * 512 >= 2 * len(PART)
        client.put_object(Bucket=BUCKET, Key="space", Body=b"small")
        eventually(lambda: file.stat().st_blocks * 512 < MIB, "the space of what was overwritten is given back")
        os.kill(pid, signal.SIGKILL)


def file_of(endpoint):
    """Return the /proc path of the file in which the server stores its objects."""
    files = [fd for fd in Path(f"/proc/{server_of(endpoint)}/fd").iterdir() if "deleted" in os.readlink(fd)]
    (file,) = [fd for fd in files if int(fd.name) > 2]
    return file


def server_of(endpoint):
    """Return the id of the process that listens on an endpoint."""
    port = f":{int(endpoint.rpartition(':')[2]):04X} "
    (inode,) = [line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines() if port in line[:25]
                and line.split()[3] == "0A"]  # fmt: skip
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and process.name != str(os.getpid()):
            try:
                if any(os.readlink(fd) == f"socket:[{inode}]" for fd in (process / "fd").iterdir()):
                    return int(process.name)
            except OSError:
                continue
    raise AssertionError("nobody listens there")
