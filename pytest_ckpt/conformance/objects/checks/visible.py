"""OBJECT-VISIBLE: GET, HEAD and LIST show another client at once what was put, overwritten or deleted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.objects.content import SIZE_OF_VERSION, content

if TYPE_CHECKING:
    from pytest_ckpt.conformance.context import Findings
    from pytest_ckpt.conformance.objects.context import ObjectContext
    from pytest_ckpt.conformance.objects.session import Session

_NAMES = 100
_NONE, _OTHER = 0, -1
_CHANGES = (
    (1, "put, after it was looked for in vain", "new object not seen"),
    (2, "overwritten", "old object after an overwrite"),
    (3, "overwritten again", "old object after an overwrite"),
    (_NONE, "deleted", "deleted object still seen"),
    (4, "put again after its deletion", "new object not seen"),
)


def get(context: ObjectContext, findings: Findings) -> None:
    """Look by GET."""
    _look(context, findings, "GET")


def head(context: ObjectContext, findings: Findings) -> None:
    """Look by HEAD."""
    _look(context, findings, "HEAD")


def listing(context: ObjectContext, findings: Findings) -> None:
    """Look by LIST."""
    _look(context, findings, "LIST")


def _look(context: ObjectContext, findings: Findings, how: str) -> None:
    """Change objects on one client and look on both; they change places with every object."""
    for number in range(context.count(_NAMES, minimum=4)):
        name = f"object-{number:04d}"
        lookers = {
            "this client": partial(state, context.here, name, how=how),
            "the second client": partial(context.other.ask, "visible:state", name, how=how),
        }
        writer = list(lookers)[number % 2]
        # Who has looked for a name in vain may remember that.
        for look in lookers.values():
            look()
        for version, change, kind in _CHANGES:
            if writer == "this client":
                change_to(context.here, name, version=version)
            else:
                context.other.ask("visible:change_to", name, version=version)
            for looker, look in lookers.items():
                seen = look()
                findings.trials += 1
                if seen != version:
                    findings.wrong(
                        kind if seen in (_NONE, *(v for v, _, _ in _CHANGES)) else "bytes that nobody put",
                        where=f"{how} of {context.here.url(name)} by {looker}, {change} by {writer}",
                        seen=_words(seen),
                        expected=_words(version),
                    )


def change_to(session: Session, name: str, *, version: int) -> None:
    """Put a version of an object, or delete it."""
    if version == _NONE:
        session.delete(name).needed("a deletion")
    else:
        session.put(name, content(session.seed, name, version)).needed("an object")


def state(session: Session, name: str, *, how: str) -> int:
    """Return which version of an object is seen: 0 for none, -1 for bytes that are no version."""
    versions = [version for version, _, _ in _CHANGES if version]
    if how == "GET":
        reply = session.get(name)
        if reply.status == 404:
            return _NONE
        data = reply.needed("an object").data
        return next((v for v in versions if data == content(session.seed, name, v)), _OTHER)
    if how == "HEAD":
        reply = session.head(name)
        if reply.status == 404:
            return _NONE
        size = int(reply.needed("an object").headers.get("content-length", 0))
    else:
        sizes = [size for found, size, _ in session.listed(name) if found == name]
        if not sizes:
            return _NONE
        size = sizes[0]
    return size - SIZE_OF_VERSION if size - SIZE_OF_VERSION in versions else _OTHER


def _words(version: int) -> str:
    return {_NONE: "no object", _OTHER: "something else"}.get(version, f"version {version}")
