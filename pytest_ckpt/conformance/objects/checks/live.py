"""OBJECT-LIVE: no request that a checkpoint makes takes long, one by one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_ckpt.conformance.objects.content import content
from pytest_ckpt.targets.objects.parts import MINIMUM_PART_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.conformance.context import Findings
    from pytest_ckpt.conformance.objects.context import ObjectContext

T = TypeVar("T")

_ROUNDS = 10


def requests(context: ObjectContext, findings: Findings) -> None:
    """Time every kind of request.

    A request that the store does not answer raises after some attempts: it is named with its object.
    """
    here = context.here
    slowest: dict[str, float] = {}

    def timed(what: str, act: Callable[..., T], *words: Any) -> T:
        began = time.monotonic()
        answer = act(*words)
        slowest[what] = max(slowest.get(what, 0.0), time.monotonic() - began)
        findings.trials += 1
        return answer

    for number in range(context.count(_ROUNDS)):
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
