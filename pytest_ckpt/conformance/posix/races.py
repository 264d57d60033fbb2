"""MKDIR and EXCLUSIVE: races for the same names between processes of this host, or between two clients.

MKDIR: if several processes create the same directory concurrently, one process succeeds. All processes can use the
directory immediately. EXCLUSIVE: if several processes create the same file with O_EXCL, exactly one succeeds.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.client import Client
from pytest_ckpt.conformance.content import read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_ckpt.conformance.context import CheckContext, Findings

_Racers = list[tuple[Client, str]]
_PROCESSES = 4
# Racers start together. The winner then pauses briefly so that the others catch up; otherwise the first to start would
# win every race.
_AT_ONCE = 25
_PAUSE_SECONDS = 0.0005


@contextmanager
def _processes(context: CheckContext) -> Iterator[_Racers]:
    """Yield several client processes on this host, each with the path of the check's directory."""
    with ExitStack() as started:
        yield [
            (
                started.enter_context(closing(Client(name=f"process {number}", report_call=context.report_call))),
                str(context.directory),
            )
            for number in range(_PROCESSES)
        ]


@contextmanager
def _two_clients(context: CheckContext) -> Iterator[_Racers]:
    """Yield a client process on this host and the second client, each with its path of the check's directory."""
    with closing(Client(name="the first client", report_call=context.report_call)) as here:
        yield [(here, str(context.directory)), context.second()]


def _race(
    racers: _Racers, names: list[str], action: str, details: Callable[[str], dict[str, Any]]
) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Send the same request for the same names to all racers (clients) concurrently, in batches of names.

    Yield (names of a batch, {name of a racer: its answer}). ``action`` is the request. ``details`` receives the name of
    a racer and returns additional details of its request.
    """
    for racer, directory in racers:
        racer.sees(directory)  # The racer has started: a late start would not be a race.
    for first in range(0, len(names), _AT_ONCE):
        some = names[first : first + _AT_ONCE]
        # Each racer in turn receives the request first.
        racers = racers[1:] + racers[:1]
        for racer, directory in racers:
            racer.start(action, directory, names=some, **details(racer.name))
        yield some, {racer.name: racer.finish() for racer, _ in racers}


_DIRECTORIES = 500
_PATIENCE_SECONDS = 10.0


def make_directory(context: CheckContext, findings: Findings) -> None:
    """Let several processes of this host create the same directories concurrently."""
    with _processes(context) as racers:
        _directory_race(context, findings, racers)


def make_directory_second(context: CheckContext, findings: Findings) -> None:
    """Let two clients create the same directories concurrently."""
    with _two_clients(context) as racers:
        _directory_race(context, findings, racers)


def _directory_race(context: CheckContext, findings: Findings, racers: _Racers) -> None:
    made = {racer.name: 0 for racer, _ in racers}
    files = {racer.name: f"from-{racer.name.replace(' ', '-')}" for racer, _ in racers}
    wanted = [f"step-{number:06d}" for number in range(context.count(_DIRECTORIES, minimum=25))]
    for names, results in _race(
        racers, wanted, "races:make_directories", lambda racer_name: {"file": files[racer_name]}
    ):
        for name in names:
            makers = [racer_name for racer_name, result in results.items() if name in result["made"]]
            if len(makers) != 1:
                findings.wrong(
                    "mkdir with several winners" if makers else "mkdir without a winner",
                    where=str(context.directory / name),
                    seen=f"{' and '.join(makers) or 'no one'} made it",
                    expected="exactly one of them, EEXIST for the others",
                )
        for racer_name, result in results.items():
            made[racer_name] += len(result["made"])
            for call, name, error in result["errors"]:
                unusable = call != "mkdir"
                findings.wrong(
                    "directory that was just made cannot be used" if unusable else "error in a race for a directory",
                    where=f"{call}({context.directory / name}) by {racer_name}",
                    seen=error,
                    expected="success" if unusable else "success, or EEXIST",
                )
        missing = _missing_files(
            context, [f"{name}/{files[racer_name]}" for racer_name, done in results.items() for name in done["used"]]
        )
        for file in missing:
            findings.wrong(
                "file missing in a directory that several made",
                where=str(context.directory / file),
                seen=f"no such file, {_PATIENCE_SECONDS:g} s after it was made",
                expected="the files that every process has created there",
            )
        if missing:
            break  # Each look has its own timeout.
        findings.trials += len(names)
    findings.facts |= {f"directories made by {racer_name}": f"{count:,}" for racer_name, count in made.items()}


def _missing_files(context: CheckContext, files: list[str]) -> list[str]:
    """Return the files that this client does not see within 10 s. Only the requirement STALE judges shorter delays."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        missing = [file for file in files if not (context.directory / file).exists()]
        if not missing or time.monotonic() > until:
            return missing
        time.sleep(0.01)


def make_directories(path: str, *, names: list[str], file: str) -> dict[str, Any]:
    """Create each directory if it is missing, and immediately create a file in it.

    Return {made: names of directories that this call created, used: names of directories in which this call created a
    file, errors: (call, name, error) of each failed call}.
    """
    made, used, errors = [], [], []
    for name in names:
        try:
            os.mkdir(f"{path}/{name}")  # noqa: PTH102
            made.append(name)
        except FileExistsError:
            pass
        except OSError as error:
            errors.append(("mkdir", name, f"{error.strerror} (errno {error.errno})"))
        try:
            os.close(os.open(f"{path}/{name}/{file}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            used.append(name)
        except OSError as error:
            errors.append(("open", f"{name}/{file}", f"{error.strerror} (errno {error.errno})"))
        if made[-1:] == [name]:
            time.sleep(random.random() * _PAUSE_SECONDS)
    return {"made": made, "used": used, "errors": errors}


_NAMES = 1_000


def create(context: CheckContext, findings: Findings) -> None:
    """Let several processes of this host create the same files with O_EXCL concurrently."""
    with _processes(context) as racers:
        _create_race(context, findings, racers)


def create_second(context: CheckContext, findings: Findings) -> None:
    """Let two clients create the same files with O_EXCL concurrently."""
    with _two_clients(context) as racers:
        _create_race(context, findings, racers)


def _create_race(context: CheckContext, findings: Findings, racers: _Racers) -> None:
    won = {racer.name: 0 for racer, _ in racers}
    wanted = [f"lock-{number:06d}" for number in range(context.count(_NAMES, minimum=50))]
    for names, results in _race(racers, wanted, "races:create_names", lambda racer_name: {"racer_name": racer_name}):
        for name in names:
            winners = [racer_name for racer_name, result in results.items() if name in result["won"]]
            for racer_name in winners:
                won[racer_name] += 1
            _judge_winners(context, findings, name, winners, set(won))
        findings.trials += len(names)
        for racer_name, result in results.items():
            for name, error in result["errors"].items():
                findings.wrong(
                    "error in a race for a name",
                    where=f"open({name}, O_CREAT | O_EXCL) by {racer_name}",
                    seen=error,
                    expected="success, or EEXIST",
                )
    findings.facts |= {f"names won by {racer_name}": f"{count:,}" for racer_name, count in won.items()}


def _judge_winners(context: CheckContext, findings: Findings, name: str, winners: list[str], racers: set[str]) -> None:
    path = context.directory / name
    if len(winners) > 1:
        findings.wrong(
            "O_EXCL with several winners",
            where=str(path),
            seen=f"{' and '.join(winners)} got success from creating it",
            expected="exactly one of them, EEXIST for the others",
        )
    elif not winners:
        findings.wrong(
            "O_EXCL without a winner", where=str(path), seen="no one created it", expected="exactly one winner"
        )
    elif (text := _winner_in(path)) in racers - set(winners):
        findings.wrong(
            "file of the winner of O_EXCL was replaced",
            where=str(path),
            seen=f"the words of {text}",
            expected=f"those of {winners[0]}, which created it",
        )


def _winner_in(path: Path) -> str:
    """Return the text of a file; empty if this client does not see the file yet.

    Only the requirement STALE judges such a delay.
    """
    try:
        return read_file(path).decode(errors="replace")
    except FileNotFoundError:
        return ""


def create_names(path: str, *, names: list[str], racer_name: str) -> dict[str, Any]:
    """Try to create each file with O_EXCL, and write the text ``racer_name`` into each created file.

    Return {won: names of files that this call created, errors: {name: error}}.
    """
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
            os.write(descriptor, racer_name.encode())
        finally:
            os.close(descriptor)
        time.sleep(random.random() * _PAUSE_SECONDS)
    return {"won": won, "errors": errors}
