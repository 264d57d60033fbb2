"""Behaviour of an object store that checkpoint software relies on, one requirement per test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.judging.behaviour import without_anomaly
from pytest_ckpt.judging.requirement import requirement

if TYPE_CHECKING:
    from pytest_ckpt.facts.observation import Observation
    from pytest_ckpt.judging.decision import Decision

_CACHES = (
    "Look for a cache between client and store (proxy, gateway, content network), and at replicas that answer late."
)
_OF_STORE = 'Run the command after "to reproduce", and send its log to the vendor of the store.'


@requirement(
    "OBJECT-COMMIT",
    title="A visible marker means a complete checkpoint",
    source="S3: strong read-after-write consistency; our limit: no object is missing or cut off",
    needs=("objects",),
    next_step=_CACHES,
    help="A check of the object store failed",
)
def test_a_visible_marker_means_a_complete_checkpoint(observation: Observation, maximum: float | None) -> Decision:
    """A client that sees the marker of a checkpoint finds every object that the marker names, complete.

    An object store has no rename, so a checkpoint is committed by its last object, the marker. Clients in two processes
    wait for the marker, then read the objects that it names. A missing shard makes a restore fail, or restores old
    weights.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "OBJECT-VISIBLE",
    title="Every client sees a change immediately",
    source="S3: strong read-after-write consistency of GET, HEAD and LIST",
    needs=("objects",),
    next_step=_CACHES,
    help="A check of the object store failed",
)
def test_a_change_is_visible_immediately_on_every_client(observation: Observation, maximum: float | None) -> Decision:
    """After an object is put, overwritten or deleted, GET, HEAD and LIST of every client show the change immediately.

    A job on another node may restore a checkpoint right after its save. In the test, the clients look for each object
    before it exists, and read the object's old bytes before an overwrite. If a cache then still reports the object as
    missing, the job finds no checkpoint. If a cache returns the old bytes, the job restores an old checkpoint.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "OBJECT-CREATE",
    title="One creator of an object wins",
    severity="advisory",
    source="S3: conditional writes (If-None-Match: *)",
    needs=("objects",),
    next_step="Keep locks and pointers elsewhere, or use a version of the store that supports If-None-Match.",
    help="A check of the object store failed",
)
def test_exactly_one_creator_of_an_object_succeeds(observation: Observation, maximum: float | None) -> Decision:
    """Of many clients that create the same object with If-None-Match, exactly one succeeds; the others get an error.

    Software takes locks and commits checkpoints in this way. If two clients succeeded, both would write the same
    checkpoint. A store that ignores If-None-Match overwrites a committed checkpoint. The test creates objects in one
    request and by multipart uploads.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "OBJECT-UPDATE",
    title="One update of an object wins",
    severity="advisory",
    source="S3: conditional writes (If-Match)",
    needs=("objects",),
    next_step="Keep locks and pointers elsewhere, or use a version of the store that supports If-Match.",
    help="A check of the object store failed",
)
def test_exactly_one_update_of_an_object_succeeds(observation: Observation, maximum: float | None) -> Decision:
    """Of many clients that update an object with If-Match, exactly one succeeds; an older ETag is refused.

    Software changes its pointer to the newest checkpoint in this way. If two clients succeeded, one of the updates
    would be lost without an error.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "OBJECT-MULTIPART",
    title="An upload in parts is complete or invisible",
    source="S3: multipart upload",
    needs=("objects",),
    next_step=_OF_STORE,
    help="A check of the object store failed",
)
def test_a_multipart_upload_is_atomic(observation: Observation, maximum: float | None) -> Decision:
    """A multipart upload is invisible until it is completed; then it becomes an object of the listed parts.

    Every large shard is saved in this way. The test sends parts out of order, sends some parts again, and ends a
    process before it completes its upload. An object that appears early, or contains a wrong part, is a damaged
    checkpoint. If no listing shows an abandoned upload, the upload cannot be removed, and it occupies space
    permanently.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "OBJECT-LIMITS",
    title="Parts have the limits of S3",
    source="S3: multipart upload limits: parts 1 to 10,000, at least 5 MiB each except the last",
    needs=("objects", "parts of S3"),
    next_step="Set the part size and number of parts of your transfer manager to the limits of this store.",
    help="A check of the object store failed",
)
def test_parts_have_the_limits_of_s3(observation: Observation, maximum: float | None) -> Decision:
    """Part numbers from 1 to 10,000 are accepted; other numbers, too small parts and missing parts are refused with
    S3's error.

    Transfer managers compute the size of parts from these limits, and choose the next step by the error.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "OBJECT-DIGEST",
    title="Damaged bytes are refused on arrival",
    source="S3: checking object integrity (Content-MD5, CRC-32, CRC-32C, CRC-64/NVME, SHA-256)",
    needs=("objects",),
    next_step="Ask for a version of the store that checks digests; until then compare every byte after a save.",
    help="A check of the object store failed",
)
def test_damaged_bytes_are_refused_on_arrival(observation: Observation, maximum: float | None) -> Decision:
    """An object or part whose bytes do not match the digest sent with it is refused and is not stored.

    Clients send digests so that damage in transit is detected at the save, not at the restore. The test sends wrong
    values of Content-MD5, CRC-32, CRC-32C, CRC-64/NVME and SHA-256. On request, the store must also return the
    checksums that it received.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "OBJECT-RANGE",
    title="A range is exactly that range",
    source="RFC 9110, section 14 (Range); S3: GetObject with If-Match",
    needs=("objects",),
    next_step=_CACHES,
    help="A check of the object store failed",
)
def test_a_range_request_returns_exactly_that_range(observation: Observation, maximum: float | None) -> Decision:
    """A read of a range returns exactly its bytes; ranges that are read with one ETag belong to one version.

    Restores read shards in ranges, from many clients. If a range is shifted or belongs to another version, the job
    restores wrong weights without an error.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "OBJECT-OVERWRITE",
    title="An overwritten object is complete, from one writer",
    source="S3: atomic updates of single keys",
    needs=("objects",),
    next_step=_OF_STORE,
    help="A check of the object store failed",
)
def test_an_overwritten_object_contains_one_writers_bytes(observation: Observation, maximum: float | None) -> Decision:
    """While 16 writers overwrite one object, and afterwards, every read returns the complete bytes of one writer.

    Software overwrites objects when it updates a pointer or repeats a save. An object that mixes the bytes of two
    writers is a damaged checkpoint.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "OBJECT-LIST",
    title="A listing names every object, once",
    source="S3: ListObjectsV2, in the order of the keys' bytes (directory buckets list without order)",
    needs=("objects",),
    next_step="Ask for a version of the store that lists correctly; until then find checkpoints by their marker.",
    help="A check of the object store failed",
)
def test_a_listing_contains_every_object_once(observation: Observation, maximum: float | None) -> Decision:
    """A listing of more than 1,000 objects names each exactly once, in order, even while other objects are written.

    Software finds and removes checkpoints by listings. If a listing omits a key, a restore misses a shard, or the
    object is never removed. The test also uses delimiters, keys of 1,024 bytes, keys in other alphabets and keys with
    special characters.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "OBJECT-LARGE",
    title="Large objects are complete and readable at every offset",
    source="S3: multipart upload limits: objects up to 5 TiB and beyond",
    needs=("objects",),
    next_step="Keep objects below the limit of this store, or use a version of it with a larger limit.",
    help="A check of the object store failed",
)
def test_large_objects_are_complete_on_every_client(observation: Observation, maximum: float | None) -> Decision:
    """An object above 5 GiB is accepted in parts; every client reads the right size, and the right bytes beyond 4 GiB.

    Shards and consolidated models of this size are common. If the store keeps an offset or a size in 32 bits, a restore
    reads other weights without an error, or the save fails at its last request.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "OBJECT-CROWD",
    title="Many clients find a checkpoint at the same time",
    source="our limit: 60 s for the slowest of 64; S3: after 503 a client tries again",
    needs=("objects",),
    next_step="Raise the number of concurrent connections and requests of gateways, or add gateways.",
    help="A check of the object store failed",
)
def test_many_clients_find_a_checkpoint_concurrently(observation: Observation, maximum: float | None) -> Decision:
    """If many clients look for one checkpoint at the same moment, all find it, and no request is refused.

    After a restart every rank of a job lists the checkpoint and reads its marker in the same second. The store may
    answer 503 at first. If the store still refuses the repeated requests, or shows only a part of the checkpoint, the
    job cannot start.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "OBJECT-LIVE",
    title="No request takes long",
    source="our acceptance case: at most 300 s",
    needs=("objects",),
    next_step="Look at the named request, at the logs of the gateway and the store, and at the network at that time.",
    help="A check of the object store failed",
)
def test_every_request_ends_in_time(observation: Observation, maximum: float | None) -> Decision:
    """No request that a checkpoint makes takes more than 300 s, and every request gets an answer.

    Every kind of request is timed separately. If the store does not answer a request, the check ends the request and
    names the requested object.
    """
    return without_anomaly(observation, maximum)
