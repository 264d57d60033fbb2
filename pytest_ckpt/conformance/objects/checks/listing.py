"""OBJECT-LIST: a listing names every object, once, in order, whatever its key."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.objects.content import content

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.conformance.context import Findings
    from pytest_ckpt.conformance.objects.context import ObjectContext
    from pytest_ckpt.conformance.objects.session import Session

_KEYS, _MORE_THAN_A_PAGE = 5_000, 1_050
_FOLDERS = 70
_SMALL_PAGE = 97
_ODD = (
    "with space", "plus+and%20percent", "a&b<c>d'e\"f", "ümlaut-日本語-🐘", "UPPER-and-lower", "upper-AND-LOWER",
    "two//slashes", "../dots", "./dot", "a/../b", "ends-with-slash/", "~tilde!(x)*;:@=,?#[]", "-", "a", "a/", "a/b",
)  # fmt: skip


def pages(context: ObjectContext, findings: Findings) -> None:
    """List more objects than a page has, in pages of several sizes, while others are written."""
    here, count = context.here, context.count(_KEYS, minimum=_MORE_THAN_A_PAGE)
    names = [f"keys/{number % _FOLDERS:02d}/{number:06d}" for number in range(count)]
    shuffled = random.Random(context.seed).sample(names, count)
    half = count // 2
    context.other.start("listing:put_all", "", names=shuffled[half:])
    put_all(here, "", names=shuffled[:half])
    context.other.finish(patience=600.0)
    wanted = sorted(names)
    # Who writes other objects meanwhile must not move those that are there between pages.
    context.other.start("listing:keep_writing", "keys/50-meanwhile")
    try:
        for size, of in ((0, "the store's own size"), (_SMALL_PAGE, f"at most {_SMALL_PAGE} keys")):
            found = [name for name, _, _ in here.listed("keys/", size=size) if "meanwhile" not in name]
            _compare(findings, f"listing of {here.url('keys/')} in pages of {of}", found, wanted)
    finally:
        written = context.other.stop()
    folders = [f"keys/{number:02d}/" for number in range(_FOLDERS)]
    found = [folder for folder in here.folders("keys/", size=13) if "meanwhile" not in folder]
    _compare(findings, f"listing of {here.url('keys/')} up to the next slash", found, folders)
    _compare(findings, f"listing of {here.url('keys/05/')}", [name for name, _, _ in here.listed("keys/05/")],
             [name for name in wanted if name.startswith("keys/05/")])  # fmt: skip
    findings.facts |= {"objects": f"{count:,}", "written meanwhile": f"{written:,}"}


def put_all(session: Session, _name: str, *, names: list[str]) -> None:
    """Put small objects, several at once."""
    for answer in session.at_once(lambda name: session.put(name, name.encode()), names):
        answer.needed("an object")


def keep_writing(session: Session, name: str, *, stopped: Callable[[], bool]) -> int:
    """Put objects until told to stop; return how many."""
    done = 0
    while not stopped():
        session.put(f"{name}-{done:06d}", b"x").needed("an object")
        done += 1
    return done


def names(context: ObjectContext, findings: Findings) -> None:
    """Put objects with odd keys, and find and read each on both clients."""
    here = context.here
    longest = "long/" + "n" * (here.room_for_names - len("odd/long/"))
    wanted = sorted((f"odd/{name}" for name in (*_ODD, longest)), key=lambda name: name.encode())
    put = []
    for name in wanted:
        findings.trials += 1
        answer = here.put(name, content(context.seed, name, 1))
        if answer:
            put.append(name)
        else:
            findings.wrong("key refused", where=answer.where, seen=answer.outcome, expected="an object of that key")
    for name in put:
        got = {"this client": right(here, name), "the second client": context.other.ask("listing:right", name)}
        for who, is_right in got.items():
            if not is_right:
                findings.wrong(
                    "object not found by its key",
                    where=f"{here.url(name)} by {who}",
                    seen="none, or another",
                    expected="the object that was put",
                )
    _compare(findings, f"listing of {here.url('odd/')}", [name for name, _, _ in here.listed("odd/")], put)
    prefix = "odd/plus+and%"
    _compare(findings, f"listing of {here.url(prefix)}", [name for name, _, _ in here.listed(prefix)],
             [name for name in put if name.startswith(prefix)])  # fmt: skip


def right(session: Session, name: str) -> bool:
    """Return whether an object has the bytes that were put."""
    return session.get(name).data == content(session.seed, name, 1)


def _compare(findings: Findings, where: str, found: list[str], wanted: list[str]) -> None:
    findings.trials += 1
    counts = Counter(found)
    missing = [name for name in wanted if name not in counts]
    doubled = [name for name, count in counts.items() if count > 1]
    strange = sorted(set(counts) - set(wanted))
    for kind, names_of, expected in (
        ("key missing in a listing", missing, "every object"),
        ("key listed twice", doubled, "every object once"),
        ("key of no object in a listing", strange, "what was put, no other"),
    ):
        if names_of:
            more = f" and {len(names_of) - 1:,} more" if len(names_of) > 1 else ""
            findings.wrong(kind, where=where, seen=f"{names_of[0]!r}{more}", expected=expected)
    if not (missing or doubled or strange) and found != wanted:
        place = next(i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
        findings.wrong("keys in wrong order", where=where, seen=f"{found[place]!r} as number {place + 1:,}",
                   expected=f"{wanted[place]!r}: the order of the keys' bytes")  # fmt: skip
