"""Several at once for the same names: processes of this host, or two clients of the storage."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.posix.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_ckpt.conformance.context import CheckContext

    Racers = list[tuple[Client, str]]

_PROCESSES = 4
# Racers start together. Whoever wins then pauses for a moment, so that the others catch up and go ahead: without it,
# the first to start would win all.
_AT_ONCE = 25
PAUSE_SECONDS = 0.0005


@contextmanager
def processes(context: CheckContext) -> Iterator[Racers]:
    """Give processes of this host, each with the folder as it sees it."""
    with ExitStack() as started:
        yield [
            (started.enter_context(closing(Client(name=f"process {number}", tell=context.tell))), str(context.folder))
            for number in range(_PROCESSES)
        ]


@contextmanager
def two_clients(context: CheckContext) -> Iterator[Racers]:
    """Give a process of this host and the second client."""
    with closing(Client(name="the first client", tell=context.tell)) as here:
        yield [(here, str(context.folder)), context.second()]


def race(
    racers: Racers, names: list[str], action: str, details: Callable[[str], dict[str, Any]]
) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Have all do the same to the same names, some at once; yield those names and what each racer answers.

    ``details`` returns what a racer of that name is told beside the names.
    """
    for racer, folder in racers:
        racer.sees(folder)  # So it has started: who is late does not race.
    for first in range(0, len(names), _AT_ONCE):
        some = names[first : first + _AT_ONCE]
        # In turn, each is the first to be told.
        racers = racers[1:] + racers[:1]
        for racer, folder in racers:
            racer.start(action, folder, names=some, **details(racer.name))
        yield some, {racer.name: racer.finish() for racer, _ in racers}
