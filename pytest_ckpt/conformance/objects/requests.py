"""OBJECT-DIGEST, OBJECT-RANGE and OBJECT-LIVE: checks of single requests.

OBJECT-DIGEST: the store refuses bytes that do not match their checksum, and returns stored checksums. OBJECT-RANGE: a
read of a range returns exactly this range, and all bytes belong to one version. OBJECT-LIVE: all requests of a
checkpoint are answered quickly; the requests are sent one at a time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_ckpt.conformance.objects.session import content, described
from pytest_ckpt.sizing.object_parts import MINIMUM_PART_BYTES
from pytest_ckpt.targets.objects.checksums import MD5, checksum

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.conformance.context import Findings
    from pytest_ckpt.conformance.objects.session import ObjectContext, Reply, Session

_ROUNDS = 10


def digest_of_object(context: ObjectContext, findings: Findings) -> None:
    """Write new objects and replace existing objects, with wrong and with correct digests."""
    here = context.here
    for header in here.digests:
        for number in range(context.count(_ROUNDS)):
            name = f"{header}-{number}"
            data, other = content(context.seed, name, 1), content(context.seed, name, 2)
            wrong, right = _digest_headers(header, other), _digest_headers(header, data)
            findings.trials += 1
            is_refused = _must_refuse_digest(findings, here.put(name, data, wrong), header)
            if is_refused and (left := here.get(name)):
                findings.wrong("refused object is there", where=left.where, seen=f"{len(left.data):,} bytes",
                           expected="no object")  # fmt: skip
            _require_accepted_digest(findings, here.put(name, data, right), header)
            # For a store that ignores this digest, one anomaly is enough.
            if not is_refused:
                break
            _must_refuse_digest(findings, here.put(name, other, right), header)
            if here.get(name).data != data:
                findings.wrong("refused object is there", where=here.url(name), seen="other bytes than before",
                           expected="the object that was there")  # fmt: skip


def digest_of_part(context: ObjectContext, findings: Findings) -> None:
    """Send parts with wrong and correct digests."""
    here = context.here
    for header in here.digests:
        fields = {} if header == MD5 else {"x-amz-checksum-algorithm": _algorithm(header)}
        for number in range(context.count(_ROUNDS)):
            name = f"{header}-{number}"
            data, other = content(context.seed, name, 1), content(context.seed, name, 2)
            findings.trials += 1
            upload = here.begin(name, fields)
            wrong, right = _digest_headers(header, other), _digest_headers(header, data)
            is_refused = _must_refuse_digest(findings, here.part(name, upload, 1, data, wrong), header)
            _require_accepted_digest(findings, here.part(name, upload, 1, data, right), header)
            here.abort(name, upload)
            if not is_refused:
                break


def digest_kept(context: ObjectContext, findings: Findings) -> None:
    """Write objects with checksums, and read the checksums back."""
    here = context.here
    for header in here.kept_digests:
        data = content(context.seed, header, 1)
        here.put(header, data, _digest_headers(header, data)).needed(f"an object with {header}")
        findings.trials += 1
        if (seen := here.head(header).headers.get(header, "")) != checksum(header, data):
            findings.wrong(
                "checksum not kept",
                where=f"HEAD of {here.url(header)} with x-amz-checksum-mode: ENABLED",
                seen=f"{header}: {seen}" if seen else f"no {header}",
                expected=f"{checksum(header, data)}, as it was sent",
            )


def _digest_headers(header: str, data: bytes) -> dict[str, str]:
    fields = {} if header == MD5 else {"x-amz-sdk-checksum-algorithm": _algorithm(header)}
    return {header: checksum(header, data), **fields}


def _algorithm(header: str) -> str:
    return header.rpartition("-")[2].upper()


def _must_refuse_digest(findings: Findings, answer: Reply, header: str) -> bool:
    """Record an anomaly unless the store refused a wrong digest with the correct error.

    Return whether the store refused the digest with any error.
    """
    if answer.status not in (400, 422):
        findings.wrong("wrong digest accepted" if answer else "wrong refusal", where=f"{header} of {answer.where}",
                   seen=answer.outcome, expected="400 BadDigest")  # fmt: skip
    return not answer


def _require_accepted_digest(findings: Findings, answer: Reply, header: str) -> None:
    if not answer:
        findings.wrong(
            "right digest refused", where=f"{header} of {answer.where}", seen=answer.outcome, expected="success"
        )


_TAIL = 1000
_SIZE = MINIMUM_PART_BYTES + _TAIL
_READS, _HALF = 300, 40_000
# Ranges: first, last, one byte, across the border of the parts. An end of None is the end of the object.
_RANGES: tuple[tuple[int, int | None], ...] = (
    (0, 1), (0, 4096), (1, 3), (4095, 4097), (MINIMUM_PART_BYTES - 1, MINIMUM_PART_BYTES),
    (MINIMUM_PART_BYTES - 1, MINIMUM_PART_BYTES + 1), (MINIMUM_PART_BYTES - 500, MINIMUM_PART_BYTES + 500),
    (MINIMUM_PART_BYTES, MINIMUM_PART_BYTES + 1), (_SIZE - 1, _SIZE), (_SIZE - _TAIL, None), (_SIZE - 10, _SIZE + 5000),
    (1_000_000, 2_000_000), (3, None), (0, None),
)  # fmt: skip
_VERSIONS = range(1, 6)
_BEYOND = (_SIZE, _SIZE + 1, 1 << 40)


def range_bytes(context: ObjectContext, findings: Findings) -> None:
    """Read ranges of an object of two parts, and ranges beyond its end."""
    here, name = context.here, "object"
    whole = content(context.seed, name, 1, _SIZE)
    upload = here.begin(name)
    pieces = ((1, whole[:MINIMUM_PART_BYTES]), (2, whole[MINIMUM_PART_BYTES:]))
    etags = [(number, here.part(name, upload, number, data).needed("a part").etag) for number, data in pieces]
    here.end(name, upload, etags).needed("the end of an upload")
    ranges = [
        (f"bytes={first}-{'' if stop is None else stop - 1}", whole[first:stop], first) for first, stop in _RANGES
    ]
    ranges += [(f"bytes=-{count}", whole[-count:], _SIZE - count) for count in (1, 10, _TAIL + 7)]
    for words, expected, first in ranges:
        answer = here.get(name, {"Range": words})
        findings.trials += 1
        text = f"bytes {first}-{first + len(expected) - 1}/{_SIZE}"
        where = f"Range: {words} of {answer.where}, {_SIZE:,} bytes"
        if answer.data != expected:
            findings.wrong("wrong bytes in a range", where=where, seen=_description(answer.outcome, answer.data, whole),
                       expected=f"{len(expected):,} bytes from {first:,}")  # fmt: skip
        elif answer.status != 206 or answer.headers.get("content-range") != text:
            findings.wrong(
                "range answered wrongly",
                where=where,
                seen=f"{answer.outcome} with Content-Range: {answer.headers.get('content-range', 'none')}",
                expected=f"206 with Content-Range: {text}",
            )
    for first in _BEYOND:
        answer = here.get(name, {"Range": f"bytes={first}-"})
        findings.trials += 1
        if answer.status != 416:
            findings.wrong("range beyond the end", where=f"from {first:,} of {answer.where}, {_SIZE:,} bytes",
                       seen=f"{answer.outcome}, {len(answer.data):,} bytes", expected="416 InvalidRange")  # fmt: skip


def _description(stated: str, data: bytes, whole: bytes) -> str:
    at = whole.find(data) if data else -1
    return f"{stated}, {len(data):,} bytes" + (f", those from {at:,}" if at >= 0 else "")


def range_overwritten(context: ObjectContext, findings: Findings) -> None:
    """Read an object in two ranges with If-Match while the other client overwrites the object.

    One more read follows after the last overwrite.
    """
    here, name = context.here, "object"
    etag = _put(here, name, 1)
    _put(here, name, 2)
    late = here.get(name, {"Range": "bytes=0-9", "If-Match": etag})
    findings.trials += 1
    if late.status != 412:
        findings.wrong("condition of a range ignored", where=f"If-Match with an ETag of before, {late.where}",
                   seen=f"{late.outcome}, {len(late.data):,} bytes", expected="412 PreconditionFailed")  # fmt: skip
    reads = context.count(_READS, minimum=30)
    context.other.start("requests:keep_overwriting", name)
    try:
        whole = sum(_read_of_one_version(context, findings, name) for _ in range(reads))
    finally:
        overwrites = context.other.stop()
    # This holds at any speed of the other client: without its writes, the request must not be refused.
    whole += _read_of_one_version(context, findings, name)
    findings.facts |= {"read whole": f"{whole:,} of {reads + 1:,}", "overwritten meanwhile": f"{overwrites:,} times"}


def _read_of_one_version(context: ObjectContext, findings: Findings, name: str) -> bool:
    """Read an object in two ranges with the same If-Match. Return whether the store served both ranges.

    If the ranges belong to different versions, an anomaly is recorded.
    """
    etag = context.here.head(name).needed("an object").etag
    halves = [
        context.here.get(name, {"Range": f"bytes={first}-{first + _HALF - 1}", "If-Match": etag})
        for first in (0, _HALF)
    ]
    findings.trials += 1
    refused = [half for half in halves if not half]
    for half in refused:
        if half.status != 412:
            findings.wrong("wrong refusal", where=half.where, seen=half.outcome, expected="412 PreconditionFailed")
    if refused:
        return False
    data = b"".join(half.data for half in halves)
    if data not in {content(context.seed, name, version, 2 * _HALF) for version in _VERSIONS}:
        findings.wrong(
            "ranges of different versions",
            where=f"two ranges of {halves[0].where} with the same If-Match",
            seen=described(data, context.seed, name, _VERSIONS, 2 * _HALF),
            expected="one version in both, or 412",
        )
    return True


def keep_overwriting(session: Session, name: str, *, stopped: Callable[[], bool]) -> Any:
    """Overwrite an object with different versions until ``stopped`` returns true. Return the number of writes."""
    done = 0
    while not stopped():
        _put(session, name, _VERSIONS[done % len(_VERSIONS)])
        done += 1
    return done


def _put(session: Session, name: str, version: int) -> str:
    return session.put(name, content(session.seed, name, version, 2 * _HALF)).needed("an object").etag


T = TypeVar("T")

_LIVE_ROUNDS = 10


def live(context: ObjectContext, findings: Findings) -> None:
    """Measure the time of each kind of request.

    Raises OSError if the store refuses a request, or does not answer after several attempts.
    """
    here = context.here
    slowest: dict[str, float] = {}

    def timed(what: str, act: Callable[..., T], *words: Any) -> T:
        began = time.monotonic()
        answer = act(*words)
        slowest[what] = max(slowest.get(what, 0.0), time.monotonic() - began)
        findings.trials += 1
        return answer

    for number in range(context.count(_LIVE_ROUNDS)):
        name, data = f"object-{number}", content(context.seed, "object", number, MINIMUM_PART_BYTES)
        timed("put", here.put, name, data).needed("put")
        timed("get", here.get, name).needed("get")
        timed("head", here.head, name).needed("head")
        timed("list", here.listed, name)
        upload = timed("begin upload", here.begin, name)
        part = timed("put part", here.part, name, upload, 1, data).needed("put part")
        timed("end upload", here.end, name, upload, [(1, part.etag)]).needed("end upload")
        timed("delete", here.delete, name).needed("delete")
        timed("abort upload", here.abort, name, here.begin(name)).needed("abort upload")
    findings.measured = max(slowest.values())
    findings.facts |= {f"slowest {what}": f"{seconds:.3f} s" for what, seconds in slowest.items()}
