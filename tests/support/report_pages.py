"""Functions that write each kind of HTML page of the project from invented data, for tests and pictures."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.history import entry
from pytest_ckpt.report.html import write_certificate
from tests.support import synthetic_run
from tests.support.synthetic_results import SyntheticRun, published

HOSTILE = """<script>alert("1")</script> 'é 日本' & {{ 7*7 }} ]]> \u202e\u0007 </style><img src=x onerror=alert(1)>"""
_LONG = HOSTILE + " \u0627\u0644\u0639\u0631\u0628\u064a\u0629 " + "very-long-without-a-break-" * 12


def hostile(text: str = _LONG) -> dict[str, Any]:
    """Return a report in which ``text`` is appended to every string from hosts, vendors and users.

    The default ``text`` contains markup and control characters that attack pages and terminals.
    """
    document = synthetic_run.not_certified(
        models="llama3-8b,llama3-70b,llama3-405b",
        options={"ckpt_suite": "performance,contention,endurance,conformance"},
        fails_after=2,
        text=text,
    )
    document["measurements"][1]["patterns"] |= {"joined": None, "not_run": {"joined": "One rank" + text}}
    document["run"]["id"] = "run " + text
    document["left_behind"] = ["/mnt/made-up/pytest-ckpt-old" + text]
    document["environment"]["target"]["source"] += text
    document["environment"]["plugins"] = [
        {"name": text, "version": text, "hooks": ["ckpt_environment"], "facts": {text: text}}
    ]
    document["sections"] = [
        {"plugin": text, "title": text, "paragraphs": [text], "head": [text, "b"], "rows": [[text, text]]}
    ]
    return document


# Reports with all grades in many variants, written as certificates.
DOCUMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "certified": synthetic_run.certified,
    "not certified": synthetic_run.not_certified,
    "incomplete": synthetic_run.incomplete,
    "rehearsal": synthetic_run.rehearsal,
    "1,024 ranks": synthetic_run.thousand_ranks,
    "hostile": hostile,
    "nothing ran": synthetic_run.nothing_ran,
    "contract only": synthetic_run.contract_only,
}


@cache
def _text_of(name: str) -> str:
    return json.dumps(DOCUMENTS[name]())


def document(name: str) -> dict[str, Any]:
    """Return a copy of the report ``name`` in `DOCUMENTS`."""
    made: dict[str, Any] = json.loads(_text_of(name))
    return made


def certificate(name: str, directory: Path) -> Path:
    """Write the certificate of the report ``name`` in `DOCUMENTS`, and return its file."""
    page = directory / "certificate.html"
    write_certificate(document(name), page)
    return page


def judged_again(directory: Path) -> Path:
    """Write a run directory and evaluate it with ``pytest-ckpt judge``; return the page."""
    synthetic_run.write_run(directory / "run")
    return _command(directory, "again", "judge", "run", "--cluster=24000")


def judged_result(directory: Path) -> Path:
    """Evaluate one published result with ``pytest-ckpt judge``; return the page.

    Only the times of rank 0 are published. The loads from number 6 on are so fast that they may come from a cache.
    """
    run = SyntheticRun(seconds=lambda kind, n, _rank: 5.0 if kind == "save" else (9.0 if n < 6 else 3.0))
    run.write(directory / "made-up-system", ranks=[0])
    return _command(directory, "result", "judge", "made-up-system", "--cluster=16000")


def judged_tree(directory: Path) -> Path:
    """Evaluate a tree of three published results with ``pytest-ckpt judge``; return the page.

    The first result meets the limits. The second result is too slow. The third result contains only rank 0's times, and
    some of its loads may come from a cache.
    """
    places = {
        "example-array-1": (SyntheticRun(), None),
        "example-array-2": (
            SyntheticRun(seconds=lambda kind, n, _rank: 31.0 if kind == "save" and n == 7 else 12.0),
            None,
        ),
        "example-array-3": (SyntheticRun(seconds=lambda kind, n, _rank: 6.0 if kind == "save" or n < 6 else 2.0), [0]),
    }
    return _tree(directory, places)


def judged_hostile_tree(directory: Path) -> Path:
    """Evaluate a tree of published results whose names contain markup; return the page."""
    names = ("array", "</style><script>alert(1)< & ü".replace("/", "_"), "a" * 90)
    return _tree(directory, {name: (SyntheticRun(), None if name == "array" else [0]) for name in names})


def _tree(directory: Path, places: dict[str, tuple[SyntheticRun, list[int] | None]]) -> Path:
    for number, (system, (run, ranks)) in enumerate(places.items()):
        place = published(directory / "made-up", "made-up", system, "llama3-8b", "20260301_120000")
        dataclasses.replace(run, started=run.started + timedelta(days=number)).write(place, ranks=ranks)
    return _command(directory, "table", "judge", "made-up", "--cluster=16000")


def trend(directory: Path) -> Path:
    """Return the trend page of forty nightly runs. The last eight runs are slower."""
    line = entry(synthetic_run.write_run(directory / "run"))
    nights = []
    for number in range(40):
        night = json.loads(json.dumps(line))
        wobble = (1 + number * 7 % 11 / 500) * (1.2 if number >= 32 else 1.0)
        night |= {
            "id": f"made-up-{number:03}",
            "started": f"2031-{1 + number // 28:02}-{1 + number % 28:02}T02:00:00+00:00",
        }
        for subject in night["subjects"]:
            subject["save_seconds"] = [4.1 * wobble * (1 + i / 20) for i in range(3)]
            subject["load_seconds"] = [2.2 * (1 + number * 5 % 7 / 300) * (1 + i / 20) for i in range(3)]
        nights.append(json.dumps(night) + "\n")
    (directory / "made-up-history").mkdir()
    (directory / "made-up-history" / "history.jsonl").write_text("".join(nights))
    return _command(directory, "trend", "trend", "made-up-history")


def diff(directory: Path) -> Path:
    """Compare two runs; return the page.

    The second run is slower, and has another release of torch and other mount options.
    """
    ten = {"ckpt_operations": "10"}
    synthetic_run.write_run(directory / "first", options=ten, run_id="made-up-before")
    synthetic_run.write_run(
        directory / "second",
        save=0.13,
        seed=2,
        target={"options": "rw,relatime,sync"},
        versions={"torch": "2.14.0"},
        options=ten,
        run_id="made-up-after",
        started="2031-05-07T07:08:09+00:00",
    )
    return _command(directory, "diff", "diff", "first", "second")


PAGES: dict[str, Callable[[Path], Path]] = {
    **{f"certificate: {name}": lambda directory, name=name: certificate(name, directory) for name in DOCUMENTS},
    "judge of a run": judged_again,
    "judge of a published result": judged_result,
    "judge of a tree": judged_tree,
    "judge of a hostile tree": judged_hostile_tree,
    "trend": trend,
    "diff": diff,
}


def _command(directory: Path, name: str, *words: str) -> Path:
    """Run a subcommand of pytest-ckpt in a directory, and return the page that it wrote."""
    page = directory / f"{name}.html"
    with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(directory):
        code = main([*words, f"--html={page}"])
    assert code in (0, 1, 8), code
    return page
