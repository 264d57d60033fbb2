"""The checks of an object store, one row each."""

from __future__ import annotations

from pytest_ckpt.facts.check_row import Check

CHECKS_OF_OBJECTS: tuple[Check, ...] = (
    Check(
        requirement="OBJECT-COMMIT",
        subject="marker",
        room="objects",
        code="commit:marker",
        relies="all that commits by a last object: torch DCP (.metadata), Megatron-Core, NVRx, Orbax",
        how="Objects are put, then a marker that names them, while both clients wait for the marker: who sees it "
        "finds every object, whole; 100 times.",
    ),
    Check(
        requirement="OBJECT-VISIBLE",
        subject="get",
        room="objects",
        code="visible:get",
        relies="every restore on more than one node",
        how="Objects are looked for in vain, put, overwritten, deleted and put again by one client: both clients "
        "GET each state at once.",
    ),
    Check(
        requirement="OBJECT-VISIBLE",
        subject="head",
        room="objects",
        code="visible:head",
        relies="s3torchconnector, s3fs, Orbax (does a checkpoint exist?)",
        how="As OBJECT-VISIBLE get, by HEAD.",
    ),
    Check(
        requirement="OBJECT-VISIBLE",
        subject="list",
        room="objects",
        code="visible:listing",
        relies="whoever looks for the newest checkpoint: Lightning, Orbax, Hugging Face",
        how="As OBJECT-VISIBLE get, by LIST.",
    ),
    Check(
        requirement="OBJECT-CREATE",
        subject="put",
        room="objects",
        code="exclusive:create",
        relies="locks and commits by If-None-Match; pytest-ckpt's own marker",
        how="If-None-Match: * is refused where there is an object; of 16 who create one at once on two clients "
        "one wins, 100 times.",
    ),
    Check(
        requirement="OBJECT-CREATE",
        subject="multipart",
        room="objects",
        code="exclusive:create_of_parts",
        relies="locks and commits by If-None-Match of large objects",
        how="As OBJECT-CREATE put, by CompleteMultipartUpload.",
    ),
    Check(
        requirement="OBJECT-UPDATE",
        subject="put",
        room="objects",
        code="exclusive:update",
        relies="pointers to the newest checkpoint; table formats",
        how="If-Match with an ETag of before is refused; of 16 who update an object at once with its ETag one "
        "wins, 100 times.",
    ),
    Check(
        requirement="OBJECT-MULTIPART",
        subject="hidden",
        room="objects",
        code="multipart:hidden",
        relies="every save of large objects",
        how="Nothing is seen of an upload before its end, after its abort, and after its client was killed; "
        "unfinished uploads are listed.",
    ),
    Check(
        requirement="OBJECT-MULTIPART",
        subject="parts",
        room="objects",
        code="multipart:parts",
        relies="every save of large objects; transfer managers that send parts again",
        how="Parts of different sizes are sent out of order, again and by two clients, and some are not named at "
        "the end: the object is what was named.",
    ),
    Check(
        requirement="OBJECT-LIMITS",
        subject="parts",
        room="objects",
        code="multipart:limits",
        relies="transfer managers, which choose sizes by these limits",
        how="Part numbers 1 and 10,000 are taken, 0 and 10,001 refused, and so are ends that name small, missing "
        "or unsorted parts.",
    ),
    Check(
        requirement="OBJECT-LIMITS",
        subject="many",
        room="objects",
        code="large:many",
        relies="every save of objects above 50 GB",
        how="An object is made of 10,000 parts (in a shorter run of 1,001, numbered to 10,000), most of them copies "
        "by the store, and read at its start, middle and end.",
    ),
    Check(
        requirement="OBJECT-DIGEST",
        subject="object",
        room="objects",
        code="digest:whole",
        relies="AWS SDKs, which send a checksum with every object",
        how="Objects with a wrong Content-MD5, CRC-32, CRC-32C, CRC-64/NVME or SHA-256 are refused and leave what"
        " was there.",
    ),
    Check(
        requirement="OBJECT-DIGEST",
        subject="part",
        room="objects",
        code="digest:part",
        relies="AWS SDKs, which send a checksum with every part",
        how="As OBJECT-DIGEST object, of parts.",
    ),
    Check(
        requirement="OBJECT-DIGEST",
        subject="kept",
        room="objects",
        code="digest:kept",
        relies="whoever compares a checksum without reading the object",
        how="Checksums that were sent with an object come back with HEAD.",
    ),
    Check(
        requirement="OBJECT-RANGE",
        subject="bytes",
        room="objects",
        code="ranges:exact",
        relies="safetensors, s3torchconnector, every reader of shards",
        how="First, last, single, suffix and border-crossing ranges are exactly these bytes; what lies beyond the"
        " end is cut or refused with 416.",
    ),
    Check(
        requirement="OBJECT-RANGE",
        subject="overwritten",
        room="objects",
        code="ranges:overwritten",
        relies="readers of large objects in pieces",
        how="Two ranges of an object that is overwritten meanwhile, read with the same If-Match, are of one "
        "version, or refused with 412.",
    ),
    Check(
        requirement="OBJECT-OVERWRITE",
        subject="writers",
        room="objects",
        code="overwrite:writers",
        relies="pointers to the newest checkpoint; saves that are tried again",
        how="16 writers on two clients overwrite an object at once: every read meanwhile and at the end is one of"
        " theirs, whole.",
    ),
    Check(
        requirement="OBJECT-LIST",
        subject="pages",
        room="objects",
        code="listing:pages",
        relies="clean-up, rotation and search of checkpoints",
        how="More than 1,000 objects are listed in pages while others are written: each once, in order; also up "
        "to a delimiter.",
    ),
    Check(
        requirement="OBJECT-LIST",
        subject="names",
        room="objects",
        code="listing:names",
        relies="names of tensors and users in keys",
        how="Objects with keys of 1,024 bytes, spaces, signs, other alphabets, dots and doubled slashes are "
        "found, read and listed.",
    ),
    Check(
        requirement="OBJECT-LARGE",
        subject="ranges",
        room="objects",
        code="large:ranges",
        relies="saves of a whole model into one object; consolidated checkpoints",
        how="An object above 5 GiB is made of parts, most of them copies by the store; its size and ranges around "
        "2, 4 and 5 GiB are right on both clients.",
    ),
    Check(
        requirement="OBJECT-CROWD",
        subject="marker",
        room="objects",
        code="crowd:marker",
        limit=60.0,
        unit="s",
        relies="every restart: all ranks look for the newest checkpoint at once",
        how="64 connections of two clients LIST a checkpoint, and HEAD and GET its marker, at the same moment: all "
        "see it, none is turned away, and none waits longer than the limit.",
    ),
    Check(
        requirement="OBJECT-LIVE",
        subject="requests",
        room="objects",
        code="live:requests",
        limit=300.0,
        unit="s",
        relies="every training job",
        how="Every kind of request that a checkpoint makes is timed one by one; none takes longer than the limit.",
    ),
)
