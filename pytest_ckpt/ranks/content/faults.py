"""Classifies a wrong page: flipped, torn, zeros, stale, misplaced, foreign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_ckpt.ranks.content.generator import PAGE_BYTES, TensorKey
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from pytest_ckpt.facts.proofs import FaultKind
    from pytest_ckpt.ranks.content.generator import Bytes, Content

# Storage corrupts in sectors and bits: at most this many differing bytes in a page are called flipped bits, and
# a page that is right up to a multiple of a sector and wrong behind it was torn.
_FLIPPED_BYTES = 16
_SECTOR_BYTES = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One stretch of a tensor that is wrong in one way. ``offset`` and ``bytes`` are in the tensor."""

    kind: FaultKind
    offset: int
    bytes: int
    detail: str


def compare(
    content: Content, data: Bytes, place: TensorKey, offset: int = 0, *, maximum: int = 20
) -> tuple[int, list[Finding]]:
    """Compare bytes that were read with what was written there.

    ``data`` are the tensor's bytes from ``offset`` on. Return how many pages are wrong, and the first ``most``
    stretches, neighbouring pages of the same kind joined.
    """
    bad = content.differing_pages(data, place, offset)
    findings: list[Finding] = []
    for start, stop in bad:
        finding = _classify(content, data[start:stop], place, offset + start)
        last = findings[-1] if findings else None
        if last and last.kind == finding.kind and last.offset + last.bytes == finding.offset:
            findings[-1] = Finding(
                kind=last.kind, offset=last.offset, bytes=last.bytes + finding.bytes, detail=last.detail
            )
        elif len(findings) == maximum:
            break
        else:
            findings.append(finding)
    return len(bad), findings


def _classify(content: Content, seen: Bytes, place: TensorKey, offset: int) -> Finding:
    kind, detail = _kind(content, seen, place, offset)
    return Finding(kind=kind, offset=offset, bytes=len(seen), detail=detail)


def _kind(content: Content, seen: Bytes, place: TensorKey, offset: int) -> tuple[FaultKind, str]:
    expected = content.expected(place, offset, len(seen))
    wrong = np.flatnonzero(expected != seen)
    if not seen.any():
        return "zeros", "the page holds zeros"
    if len(wrong) <= _FLIPPED_BYTES:
        bits = int(np.unpackbits(expected[wrong] ^ seen[wrong]).sum())
        differ = f"{counted(bits, 'bit differs', 'bits differ')} in {counted(len(wrong), 'byte')}"
        return "flipped", f"{differ}, the first at byte {offset + int(wrong[0])}"
    if len(seen) == PAGE_BYTES and (origin := content.origin(np.ascontiguousarray(seen))):
        there, page = origin
        if (there.rank, there.tensor, page) == (place.rank, place.tensor, offset // PAGE_BYTES):
            return "stale", f"the page is that of checkpoint {there.checkpoint} at the same place"
        where = f"rank {there.rank}, tensor {there.tensor}, offset {page * PAGE_BYTES} of checkpoint {there.checkpoint}"
        return "misplaced", f"the page belongs to {where}"
    # Pages of the file and of the tensor need not be aligned with each other, so neither is the place of a tear.
    first = int(wrong[0])
    rest = seen[first:]
    if first >= _SECTOR_BYTES or not rest.any():
        behind = "zeros" if not rest.any() else "other bytes"
        return "torn", f"the page is right up to byte {offset + first} and holds {behind} behind it"
    return "foreign", "the page holds bytes that were never written by this run at a page's place"
