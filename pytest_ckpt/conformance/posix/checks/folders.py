"""MKDIR: many make the same folder at once; one does, and all can work in it right away (semantics 18)."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance import races
from pytest_ckpt.conformance.races import PAUSE_SECONDS, processes, two_clients

if TYPE_CHECKING:
    from pytest_ckpt.conformance.context import CheckContext, Findings
    from pytest_ckpt.conformance.races import Racers

_FOLDERS = 500
_PATIENCE_SECONDS = 10.0


def race(context: CheckContext, findings: Findings) -> None:
    """Have processes of this host make the same folders."""
    with processes(context) as racers:
        _race(context, findings, racers)


def race_second(context: CheckContext, findings: Findings) -> None:
    """Have two clients make the same folders."""
    with two_clients(context) as racers:
        _race(context, findings, racers)


def _race(context: CheckContext, findings: Findings, racers: Racers) -> None:
    made = {racer.name: 0 for racer, _ in racers}
    files = {racer.name: f"from-{racer.name.replace(' ', '-')}" for racer, _ in racers}
    wanted = [f"step-{number:06d}" for number in range(context.count(_FOLDERS, minimum=25))]
    for names, results in races.race(racers, wanted, "folders:make_folders", lambda who: {"file": files[who]}):
        for name in names:
            makers = [who for who, result in results.items() if name in result["made"]]
            if len(makers) != 1:
                findings.wrong(
                    "mkdir with several winners" if makers else "mkdir without a winner",
                    where=str(context.folder / name),
                    seen=f"{' and '.join(makers) or 'no one'} made it",
                    expected="exactly one of them, EEXIST for the others",
                )
        for who, result in results.items():
            made[who] += len(result["made"])
            for call, name, error in result["errors"]:
                unusable = call != "mkdir"
                findings.wrong(
                    "folder that was just made cannot be used" if unusable else "error in a race for a folder",
                    where=f"{call}({context.folder / name}) by {who}",
                    seen=error,
                    expected="success" if unusable else "success, or EEXIST",
                )
        missing = _missing(context, [f"{name}/{files[who]}" for who, done in results.items() for name in done["used"]])
        for file in missing:
            findings.wrong(
                "file missing in a folder that several made",
                where=str(context.folder / file),
                seen=f"no such file, {_PATIENCE_SECONDS:g} s after it was made",
                expected="what every process has made there",
            )
        if missing:
            break  # Each such look has its patience.
        findings.trials += len(names)
    findings.facts |= {f"folders made by {who}": f"{count:,}" for who, count in made.items()}


def _missing(context: CheckContext, files: list[str]) -> list[str]:
    """Return the files that are not there; new ones may be late in being seen, which is STALE's subject."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        missing = [file for file in files if not (context.folder / file).exists()]
        if not missing or time.monotonic() > until:
            return missing
        time.sleep(0.01)


def make_folders(path: str, *, names: list[str], file: str) -> dict[str, Any]:
    """Make each folder unless it is there, and at once a file in it."""
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
            time.sleep(random.random() * PAUSE_SECONDS)
    return {"made": made, "used": used, "errors": errors}
