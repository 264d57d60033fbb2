"""EXCLUSIVE: a name that is created with O_EXCL has exactly one creator (semantics 8)."""

from __future__ import annotations

import os
import random
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.client import Client

if TYPE_CHECKING:
    from pytest_ckpt.conformance.place import Book, Place

_NAMES = 1_000
_PROCESSES = 4
# The racers start together. Whoever wins then pauses for a moment, so that the others catch up and go ahead: without
# it, the first to start would win all.
_AT_ONCE = 25
PAUSE_SECONDS = 0.0005


def create(place: Place, book: Book) -> None:
    """Have processes of this host race for names."""
    with ExitStack() as started:
        racers = [
            started.enter_context(closing(Client(name=f"process {number}", tell=place.tell)))
            for number in range(_PROCESSES)
        ]
        _race(place, book, [(racer, str(place.folder)) for racer in racers])


def create_second(place: Place, book: Book) -> None:
    """Have two clients race for names."""
    with closing(Client(name="the first client", tell=place.tell)) as here:
        _race(place, book, [(here, str(place.folder)), place.second()])


def _race(place: Place, book: Book, racers: list[tuple[Client, str]]) -> None:
    wanted = place.count(_NAMES, least=50)
    won = {racer.name: 0 for racer, _ in racers}
    for racer, folder in racers:
        racer.sees(folder)  # So it has started: who is late does not race.
    for first in range(0, wanted, _AT_ONCE):
        names = [f"lock-{number:06d}" for number in range(first, min(first + _AT_ONCE, wanted))]
        # In turn, each is the first to be told.
        racers = racers[1:] + racers[:1]
        for racer, folder in racers:
            racer.start("exclusive:create_names", folder, names=names, who=racer.name)
        results = {racer.name: racer.finish() for racer, _ in racers}
        for name in names:
            winners = [who for who, result in results.items() if name in result["won"]]
            for who in winners:
                won[who] += 1
            _judge(place, book, name, winners, set(won))
        book.trials += len(names)
        for who, result in results.items():
            for name, error in result["errors"].items():
                book.wrong(
                    "error in a race for a name",
                    where=f"open({name}, O_CREAT | O_EXCL) by {who}",
                    seen=error,
                    expected="success, or EEXIST",
                )
    book.facts |= {f"names won by {who}": f"{count:,}" for who, count in won.items()}


def _judge(place: Place, book: Book, name: str, winners: list[str], racers: set[str]) -> None:
    path = place.folder / name
    if len(winners) > 1:
        book.wrong(
            "O_EXCL with several winners",
            where=str(path),
            seen=f"{' and '.join(winners)} were told that they had created it",
            expected="exactly one of them, EEXIST for the others",
        )
    elif not winners:
        book.wrong("O_EXCL without a winner", where=str(path), seen="no one created it", expected="exactly one winner")
    elif path.exists() and (text := path.read_text(errors="replace")) in racers - set(winners):
        book.wrong(
            "file of the winner of O_EXCL was replaced",
            where=str(path),
            seen=f"the words of {text}",
            expected=f"those of {winners[0]}, which created it",
        )


def create_names(path: str, *, names: list[str], who: str) -> dict[str, Any]:
    """Try to create each name; write into those that were won who did."""
    won, errors = [], {}
    for name in names:
        try:
            descriptor = os.open(f"{path}/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            continue
        except OSError as error:
            errors[name] = f"{error.strerror} (errno {error.errno})"
            continue
        won.append(name)
        try:
            os.write(descriptor, who.encode())
        finally:
            os.close(descriptor)
        time.sleep(random.random() * PAUSE_SECONDS)
    return {"won": won, "errors": errors}
