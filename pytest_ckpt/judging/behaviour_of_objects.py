"""The requirements on how an object store behaves; ``behaviour`` has their judge. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.judging.behaviour import Behaviour

if TYPE_CHECKING:
    from pytest_ckpt.facts.targets import Capability

_OBJECTS: frozenset[Capability] = frozenset({"objects"})
_PARTS: frozenset[Capability] = frozenset(("objects", "parts of S3"))

BEHAVIOURS_OF_OBJECTS = (
    Behaviour(
        id="OBJECT-COMMIT",
        title="Who sees the marker finds the checkpoint",
        severity="required",
        source="S3: strong read-after-write consistency; our limit: none missing, none cut",
        needs=_OBJECTS,
    ),
    Behaviour(
        id="OBJECT-VISIBLE",
        title="A change is seen at once, everywhere",
        severity="required",
        source="S3: strong read-after-write consistency of GET, HEAD and LIST",
        needs=_OBJECTS,
    ),
    Behaviour(
        id="OBJECT-CREATE",
        title="One creator of an object wins",
        severity="required",
        source="S3: conditional writes (If-None-Match: *)",
        needs=_OBJECTS,
    ),
    Behaviour(
        id="OBJECT-UPDATE",
        title="One update of an object wins",
        severity="required",
        source="S3: conditional writes (If-Match)",
        needs=_OBJECTS,
    ),
    Behaviour(
        id="OBJECT-MULTIPART",
        title="An upload in parts is whole, or nothing",
        severity="required",
        source="S3: multipart upload",
        needs=_OBJECTS,
    ),
    Behaviour(
        id="OBJECT-LIMITS",
        title="Parts have the limits of S3",
        severity="required",
        source="S3: multipart upload limits: parts 1 to 10,000, 5 MiB at least but for the last",
        needs=_PARTS,
    ),
    Behaviour(
        id="OBJECT-DIGEST",
        title="Damaged bytes are refused on arrival",
        severity="required",
        source="S3: checking object integrity (Content-MD5, CRC-32, CRC-32C, CRC-64/NVME, SHA-256)",
        needs=_OBJECTS,
    ),
    Behaviour(
        id="OBJECT-RANGE",
        title="A range is exactly that range",
        severity="required",
        source="RFC 9110, section 14 (Range); S3: GetObject with If-Match",
        needs=_OBJECTS,
    ),
    Behaviour(
        id="OBJECT-OVERWRITE",
        title="An overwritten object is one writer's, whole",
        severity="required",
        source="S3: atomic updates of single keys",
        needs=_OBJECTS,
    ),
    Behaviour(
        id="OBJECT-LIST",
        title="A listing names every object, once",
        severity="required",
        source="S3: ListObjectsV2, in the order of the keys' bytes (directory buckets list in none)",
        needs=_OBJECTS,
    ),
    Behaviour(
        id="OBJECT-LARGE",
        title="Large objects are whole and read anywhere",
        severity="required",
        source="S3: multipart upload limits: objects up to 5 TiB and beyond",
        needs=_OBJECTS,
    ),
    Behaviour(
        id="OBJECT-CROWD",
        title="Many clients find a checkpoint at once",
        severity="required",
        source="our limit: 60 s for the slowest of 64; S3: 503 asks a client to come again",
        needs=_OBJECTS,
    ),
    Behaviour(
        id="OBJECT-LIVE",
        title="No request takes long",
        severity="required",
        source="our acceptance case: at most 300 s",
        needs=_OBJECTS,
    ),
)
