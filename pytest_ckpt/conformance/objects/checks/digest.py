"""OBJECT-DIGEST: bytes that are not what their checksum says are refused; checksums that were sent are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.conformance.objects.content import content
from pytest_ckpt.targets.objects.checksums import MD5, checksum

if TYPE_CHECKING:
    from pytest_ckpt.conformance.context import Findings
    from pytest_ckpt.conformance.objects.context import ObjectContext
    from pytest_ckpt.conformance.objects.session import Reply

_ROUNDS = 10


def whole(context: ObjectContext, findings: Findings) -> None:
    """Put objects with wrong and right digests, new ones and over others."""
    here = context.here
    for header in here.digests:
        for number in range(context.count(_ROUNDS)):
            name = f"{header}-{number}"
            data, other = content(context.seed, name, 1), content(context.seed, name, 2)
            wrong, right = _headers(header, other), _headers(header, data)
            findings.trials += 1
            is_refused = _must_refuse(findings, here.put(name, data, wrong), header)
            if is_refused and (left := here.get(name)):
                findings.wrong("refused object is there", where=left.where, seen=f"{len(left.data):,} bytes",
                           expected="no object")  # fmt: skip
            _must_take(findings, here.put(name, data, right), header)
            # A store that ignores a digest is named once for it.
            if not is_refused:
                break
            _must_refuse(findings, here.put(name, other, right), header)
            if here.get(name).data != data:
                findings.wrong("refused object is there", where=here.url(name), seen="other bytes than before",
                           expected="the object that was there")  # fmt: skip


def part(context: ObjectContext, findings: Findings) -> None:
    """Send parts with wrong and right digests."""
    here = context.here
    for header in here.digests:
        fields = {} if header == MD5 else {"x-amz-checksum-algorithm": _algorithm(header)}
        for number in range(context.count(_ROUNDS)):
            name = f"{header}-{number}"
            data, other = content(context.seed, name, 1), content(context.seed, name, 2)
            findings.trials += 1
            upload = here.begin(name, fields)
            wrong, right = _headers(header, other), _headers(header, data)
            is_refused = _must_refuse(findings, here.part(name, upload, 1, data, wrong), header)
            _must_take(findings, here.part(name, upload, 1, data, right), header)
            here.abort(name, upload)
            if not is_refused:
                break


def kept(context: ObjectContext, findings: Findings) -> None:
    """Put objects with checksums, and ask for them."""
    here = context.here
    for header in here.kept_digests:
        data = content(context.seed, header, 1)
        here.put(header, data, _headers(header, data)).needed(f"an object with {header}")
        findings.trials += 1
        if (seen := here.head(header).headers.get(header, "")) != checksum(header, data):
            findings.wrong(
                "checksum not kept",
                where=f"HEAD of {here.url(header)} with x-amz-checksum-mode: ENABLED",
                seen=f"{header}: {seen}" if seen else f"no {header}",
                expected=f"{checksum(header, data)}, as it was sent",
            )


def _headers(header: str, data: bytes) -> dict[str, str]:
    fields = {} if header == MD5 else {"x-amz-sdk-checksum-algorithm": _algorithm(header)}
    return {header: checksum(header, data), **fields}


def _algorithm(header: str) -> str:
    return header.rpartition("-")[2].upper()


def _must_refuse(findings: Findings, answer: Reply, header: str) -> bool:
    """Note an answer that is no refusal of a digest; return whether the store refused at all."""
    if answer.status not in (400, 422):
        findings.wrong("wrong digest accepted" if answer else "wrong refusal", where=f"{header} of {answer.where}",
                   seen=answer.outcome, expected="400 BadDigest")  # fmt: skip
    return not answer


def _must_take(findings: Findings, answer: Reply, header: str) -> None:
    if not answer:
        findings.wrong(
            "right digest refused", where=f"{header} of {answer.where}", seen=answer.outcome, expected="success"
        )
