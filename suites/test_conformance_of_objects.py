"""Behaviour of an object store that checkpoint software relies on, one requirement per test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[[str], None]


@pytest.mark.requirement("OBJECT-COMMIT")
def test_who_sees_the_marker_finds_the_checkpoint(subject: str, judge: Judge) -> None:
    """A client that sees the marker of a checkpoint finds every object that it names, whole.

    There is no rename on an object store: a last object commits a checkpoint. Clients in two processes wait for the
    marker, then read what it names. A shard that is not there yet makes a restore fail, or restores old weights.
    """
    judge(subject)


@pytest.mark.requirement("OBJECT-VISIBLE")
def test_a_change_is_seen_at_once_everywhere(subject: str, judge: Judge) -> None:
    """When an object was put, overwritten or deleted, GET, HEAD and LIST of every client show that at once.

    A job on another node restores what was just saved. The clients have looked for each object before it was there,
    and have read its old bytes: a cache that remembers either gives an old checkpoint, or none.
    """
    judge(subject)


@pytest.mark.requirement("OBJECT-CREATE")
def test_one_creator_of_an_object_wins(subject: str, judge: Judge) -> None:
    """Of many clients that create the same object with If-None-Match, exactly one succeeds; the others are told so.

    Software takes locks and commits in this way. Two winners would write the same checkpoint; a store that ignores the
    condition overwrites a committed one. The test creates objects in one request and in parts.
    """
    judge(subject)


@pytest.mark.requirement("OBJECT-UPDATE")
def test_one_update_of_an_object_wins(subject: str, judge: Judge) -> None:
    """Of many clients that update an object with If-Match, one succeeds; with an ETag of before, none.

    Pointers to the newest checkpoint are moved in this way. With two winners one update is lost without a word.
    """
    judge(subject)


@pytest.mark.requirement("OBJECT-MULTIPART")
def test_an_upload_in_parts_is_whole_or_nothing(subject: str, judge: Judge) -> None:
    """An upload in parts becomes an object at its end, of the parts that are named; before, nobody sees anything.

    Every large shard is saved so. Parts arrive out of order, again, or from a process that is killed. An object that
    shows early, or from a wrong part, is a damaged checkpoint; an upload that no listing shows takes space for ever.
    """
    judge(subject)


@pytest.mark.requirement("OBJECT-LIMITS")
def test_parts_have_the_limits_of_s3(subject: str, judge: Judge) -> None:
    """Part numbers from 1 to 10,000 are accepted; what is beyond, too small or missing is refused with S3's error.

    Transfer managers compute the size of parts from these limits, and decide by the error what to do next.
    """
    judge(subject)


@pytest.mark.requirement("OBJECT-DIGEST")
def test_damaged_bytes_are_refused_on_arrival(subject: str, judge: Judge) -> None:
    """An object or part whose bytes do not match the digest sent with it is refused and leaves nothing.

    Clients send digests so that damage on the way is found at the save, not at the restore. The test sends wrong
    Content-MD5, CRC-32, CRC-32C, CRC-64/NVME and SHA-256; checksums that were sent come back when they are asked for.
    """
    judge(subject)


@pytest.mark.requirement("OBJECT-RANGE")
def test_a_range_is_exactly_that_range(subject: str, judge: Judge) -> None:
    """A range of an object has exactly its bytes; ranges that are read with one ETag are of one version.

    Restores read shards in ranges, from many clients. A range that is shifted, or of another version, gives wrong
    weights without an error.
    """
    judge(subject)


@pytest.mark.requirement("OBJECT-OVERWRITE")
def test_an_overwritten_object_is_one_writer_s_whole(subject: str, judge: Judge) -> None:
    """While 16 writers overwrite one object, every read returns one writer's bytes, whole; so does the last.

    Pointers and saves that are tried again overwrite objects. A mixture of two writers is a damaged checkpoint.
    """
    judge(subject)


@pytest.mark.requirement("OBJECT-LIST")
def test_a_listing_names_every_object_once(subject: str, judge: Judge) -> None:
    """A listing of more than 1,000 objects names each exactly once, in order, also while others are written.

    Software finds, rotates and removes checkpoints by listings. A key that is left out loses a shard or is never
    removed. The test also uses delimiters, and keys of 1,024 bytes, of other alphabets and with odd signs.
    """
    judge(subject)


@pytest.mark.requirement("OBJECT-LARGE")
def test_large_objects_are_whole_and_read_anywhere(subject: str, judge: Judge) -> None:
    """An object above 5 GiB is taken in parts; its size and its ranges beyond 4 GiB are right on every client.

    Shards and consolidated models of this size are common. Where an offset or a size is kept in 32 bits, a restore
    reads other weights without an error, or the save fails at its last request.
    """
    judge(subject)


@pytest.mark.requirement("OBJECT-CROWD")
def test_many_clients_find_a_checkpoint_at_once(subject: str, judge: Judge) -> None:
    """When many clients look for one checkpoint at the same moment, all find it, and none is turned away.

    After a restart every rank of a job lists the checkpoint and reads its marker in the same second. A store may
    answer 503 and be asked again; one that still refuses, or shows less, stops the job.
    """
    judge(subject)


@pytest.mark.requirement("OBJECT-LIVE")
def test_no_request_takes_long(subject: str, judge: Judge) -> None:
    """No request that a checkpoint makes takes more than 300 s, and none is left without an answer.

    Every kind of request is timed on its own. One that the store does not answer is ended, and named with its object.
    """
    judge(subject)
