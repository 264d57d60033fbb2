"""EXCLUSIVE: a name that is created with O_EXCL has exactly one creator (semantics 8)."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.races import PAUSE_SECONDS, processes, race, two_clients
from pytest_ckpt.conformance.reading import read_file

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ckpt.conformance.context import CheckContext, Findings
    from pytest_ckpt.conformance.races import Racers

_NAMES = 1_000


def create(context: CheckContext, findings: Findings) -> None:
    """Have processes of this host race for names."""
    with processes(context) as racers:
        _race(context, findings, racers)


def create_second(context: CheckContext, findings: Findings) -> None:
    """Have two clients race for names."""
    with two_clients(context) as racers:
        _race(context, findings, racers)


def _race(context: CheckContext, findings: Findings, racers: Racers) -> None:
    won = {racer.name: 0 for racer, _ in racers}
    wanted = [f"lock-{number:06d}" for number in range(context.count(_NAMES, minimum=50))]
    for names, results in race(racers, wanted, "exclusive:create_names", lambda who: {"who": who}):
        for name in names:
            winners = [who for who, result in results.items() if name in result["won"]]
            for who in winners:
                won[who] += 1
            _judge(context, findings, name, winners, set(won))
        findings.trials += len(names)
        for who, result in results.items():
            for name, error in result["errors"].items():
                findings.wrong(
                    "error in a race for a name",
                    where=f"open({name}, O_CREAT | O_EXCL) by {who}",
                    seen=error,
                    expected="success, or EEXIST",
                )
    findings.facts |= {f"names won by {who}": f"{count:,}" for who, count in won.items()}


def _judge(context: CheckContext, findings: Findings, name: str, winners: list[str], racers: set[str]) -> None:
    path = context.folder / name
    if len(winners) > 1:
        findings.wrong(
            "O_EXCL with several winners",
            where=str(path),
            seen=f"{' and '.join(winners)} were told that they had created it",
            expected="exactly one of them, EEXIST for the others",
        )
    elif not winners:
        findings.wrong(
            "O_EXCL without a winner", where=str(path), seen="no one created it", expected="exactly one winner"
        )
    elif (text := _text(path)) in racers - set(winners):
        findings.wrong(
            "file of the winner of O_EXCL was replaced",
            where=str(path),
            seen=f"the words of {text}",
            expected=f"those of {winners[0]}, which created it",
        )


def _text(path: Path) -> str:
    """Return the words in a file; none if this client does not find the name yet, which is STALE's subject."""
    try:
        return read_file(path).decode(errors="replace")
    except FileNotFoundError:
        return ""


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
