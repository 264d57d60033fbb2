"""OBJECT-DIGEST: bytes that are not what their checksum says are refused; checksums that were sent are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.conformance.objects.content import content
from pytest_ckpt.targets.objects.checksums import MD5, checksum

if TYPE_CHECKING:
    from pytest_ckpt.conformance.context import Book
    from pytest_ckpt.conformance.objects.context import ObjectContext
    from pytest_ckpt.conformance.objects.session import Reply

_ROUNDS = 10
_CHECKSUMS = ("x-amz-checksum-crc32", "x-amz-checksum-crc32c", "x-amz-checksum-crc64nvme", "x-amz-checksum-sha256")
_HEADERS = (MD5, *_CHECKSUMS)


def whole(context: ObjectContext, book: Book) -> None:
    """Put objects with wrong and right digests, new ones and over others."""
    here = context.here
    for number in range(context.count(_ROUNDS)):
        for header in _HEADERS:
            name = f"{header}-{number}"
            data, other = content(context.seed, name, 1), content(context.seed, name, 2)
            wrong, right = _headers(header, other), _headers(header, data)
            book.trials += 1
            _must_refuse(book, here.put(name, data, wrong), header)
            if left := here.get(name):
                book.wrong("refused object is there", where=left.where, seen=f"{len(left.data):,} bytes",
                           expected="no object")  # fmt: skip
            _must_take(book, here.put(name, data, right), header)
            _must_refuse(book, here.put(name, other, right), header)
            if here.get(name).data != data:
                book.wrong("refused object is there", where=here.url(name), seen="other bytes than before",
                           expected="the object that was there")  # fmt: skip


def part(context: ObjectContext, book: Book) -> None:
    """Send parts with wrong and right digests."""
    here = context.here
    for number in range(context.count(_ROUNDS)):
        for header in _HEADERS:
            name = f"{header}-{number}"
            data, other = content(context.seed, name, 1), content(context.seed, name, 2)
            said = {} if header == MD5 else {"x-amz-checksum-algorithm": _algorithm(header)}
            book.trials += 1
            upload = here.begin(name, said)
            right = _headers(header, data)
            sent = here.part(name, upload, 1, data, right)
            _must_take(book, sent, header)
            _must_refuse(book, here.part(name, upload, 1, other, right), header)
            _must_refuse(book, here.part(name, upload, 2, other, right), header)
            here.abort(name, upload)


def kept(context: ObjectContext, book: Book) -> None:
    """Put objects with checksums, and ask for them."""
    here = context.here
    for header in _CHECKSUMS:
        data = content(context.seed, header, 1)
        here.put(header, data, _headers(header, data)).needed(f"an object with {header}")
        book.trials += 1
        if (seen := here.head(header).headers.get(header, "")) != checksum(header, data):
            book.wrong(
                "checksum not kept",
                where=f"HEAD of {here.url(header)} with x-amz-checksum-mode: ENABLED",
                seen=f"{header}: {seen}" if seen else f"no {header}",
                expected=f"{checksum(header, data)}, as it was sent",
            )


def _headers(header: str, data: bytes) -> dict[str, str]:
    said = {} if header == MD5 else {"x-amz-sdk-checksum-algorithm": _algorithm(header)}
    return {header: checksum(header, data), **said}


def _algorithm(header: str) -> str:
    return header.rpartition("-")[2].upper()


def _must_refuse(book: Book, answer: Reply, header: str) -> None:
    if answer.status not in (400, 422):
        book.wrong("wrong digest accepted" if answer else "wrong refusal", where=f"{header} of {answer.where}",
                   seen=answer.said, expected="400 BadDigest")  # fmt: skip


def _must_take(book: Book, answer: Reply, header: str) -> None:
    if not answer:
        book.wrong("right digest refused", where=f"{header} of {answer.where}", seen=answer.said, expected="success")
