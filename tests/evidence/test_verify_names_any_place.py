"""A change of one value in one file, with the manifest written anew by whoever changed it: ``verify`` names it.

Where it cannot, the place stands in `UNHELD`, and docs/evidence.md says why.
"""

from __future__ import annotations

import copy
import json
import shutil

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence import verification
from pytest_ckpt.evidence.manifest import write_manifest
from pytest_ckpt.evidence.verification import verify_folder
from tests.support import CHECKOUT, made_up_run
from tests.support.forging import edit, places, put
from tests.support.selection import first_few

EVENTS, PLAN, SESSION, REPORT = "events.jsonl", "plan.json", "session.json", "report.json"
FACTS = f"measurements/{made_up_run.SUBJECT}.json"

# A place ends with a dot where all below it is meant.
UNHELD = {
    REPORT: (
        "exit_code", "run.finished", "run.folder", "run.seconds", "left_behind", "sections", "stages.",
        "environment.hosts.*.ranks",
    ),
    SESSION: ("area", "small", "added"),
    FACTS: ("hosts", "hosts.*", "launch", "seed", "failure", "stages.", "stages"),
    EVENTS: (),
    PLAN: (),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "run"
    made_up_run.make_run(folder)
    return folder


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "run")


@pytest.fixture(autouse=True)
def pages_are_written_anew(monkeypatch):
    """By whoever changes the folder: so nothing is found by them."""
    monkeypatch.setattr(verification, "_PAGES", {})


def named(folder):
    """Return every detail of what ``verify`` finds broken."""
    return [d for c in verify_folder(folder, None) if c.outcome == "broken" for d in (c.description, *c.details)]


def change_line(folder, kind, change, which=0):
    """Change the event of a kind, the ``which``-th of these, and write the manifest anew."""
    lines = [json.loads(line) for line in (folder / EVENTS).read_text().splitlines()]
    change([line for line in lines if line["event"] == kind][which], lines)
    (folder / EVENTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_manifest(folder)


EVENT_CHANGES = {
    "a moment before that of the line before": (
        "start", 1, lambda e, _: e.update(seconds=0.5), "was told after 0.5 s, and the line before after"),
    "a moment when the run was over": (
        "measured", -1, lambda e, _: e.update(seconds=1e6), "and the run had 61.500000 s"),
    "ranks that were ready at another moment": (
        "ready", 0, lambda e, _: e.update(seconds=1.5), "the stages launch and import of"),
    "a moment that is none": ("start", 0, lambda e, _: e.update(seconds="soon"), "does not say when it was told"),
    "fewer bytes compared": (
        "integrity", 0, lambda e, _: e["integrity"].update(bytes_checked=7), "bytes were compared, 7 before"),
    "more bytes compared": (
        "integrity", 0, lambda e, _: e["integrity"].update(bytes_checked=10**12), "bytes were compared, 0 before"),
    "other bytes to compare": (
        "integrity", 0, lambda e, _: e["integrity"].update(bytes_expected=1), "were to be compared, and"),
    "faults that are found no more": (
        "integrity", 0, lambda e, _: e["integrity"].update(fault_count=3), "faults that were found before are gone"),
    "another name of an event": ("imported", 0, lambda e, _: e.update(event="ready"), "a launch begins with"),
    "an event that is none": ("ready", 0, lambda e, _: e.update(event="steady"), "is none of a run"),
    "another operation started": (
        "start", 0, lambda e, _: e["operation"].update(index=2), "has ended, and llama3-8b-open-2 save 2 was started"),
    "a stage of an operation started": (
        "start", 0, lambda e, _: e["operation"].update(stage="verify"), "is no operation of the subject's own"),
    "an operation of another subject": (
        "start", 0, lambda e, _: e["operation"].update(subject="llama3-70b-open-8"), "tells of llama3-70b-open-8"),
    "a line twice": ("measured", 0, lambda e, lines: lines.append(e), "nothing is being measured"),
    "a line too few": ("start", 0, lambda e, lines: lines.remove(e), "has ended, and nothing was started"),
    "an added id": ("start", 0, lambda e, _: e.update(id=1), "holds more than its event"),
    "another stage": ("measured", 0, lambda e, _: e["stages"].update(save=0.5), "the stage 'save' of"),
}  # fmt: skip


@pytest.mark.parametrize("name", first_few(EVENT_CHANGES, 6))
def test_an_event_that_was_changed_is_named(run, name):
    kind, which, change, says = EVENT_CHANGES[name]
    change_line(run, kind, change, which)
    assert any(EVENTS in detail and says in detail for detail in named(run)), named(run)


def other_default(report):
    next(s for s in report["settings"] if s["option"] == "--ckpt-processes")["default"] = "other"


DOCUMENT_CHANGES = {
    "a file of a rank": (
        PLAN, lambda p: p["checkpoints"][0]["ranks"][1]["files"][0].update(name="x"),
        f"{PLAN}: rank 1 of llama3-8b-open-2 has other files than its layout"),
    "the bytes of a file of a rank": (
        PLAN, lambda p: p["checkpoints"][0]["ranks"][0]["files"][0].update(bytes=1),
        f"{PLAN}: rank 0 of llama3-8b-open-2 has other files than its layout"),
    "a rank that is not there": (
        PLAN, lambda p: p["checkpoints"][0]["ranks"].pop(), "rank 1 of llama3-8b-open-2 has other files"),
    "more in the plan": (PLAN, lambda p: p.update(id=1), f"{PLAN} holds more than a plan"),
    "the default of an option": (REPORT, other_default, "settings[--ckpt-processes].default: report.json says"),
    "the value of an option that decides nothing": (
        REPORT, lambda r: next(s for s in r["settings"] if s["option"] == "--ckpt-seed").update(value="7"),
        "settings: report.json says"),
    "a setting of no option": (
        REPORT, lambda r: r["settings"].append({"option": "--x", "value": "", "default": "", "source": "default"}),
        "names other options than there are"),
    "an added id": (REPORT, lambda r: r.update(id="x"), "id: no run of this version writes it"),
    "an added id of the run": (REPORT, lambda r: r["run"].update(number=None), "run.number: no run of this version"),
    "an added id of a requirement": (REPORT, lambda r: r["requirements"][0].update(added=None), "no such name"),
    "a disclosure that is gone": (REPORT, lambda r: r["disclosures"].clear(), "disclosures[0]: report.json says"),
    "a requirement of the catalogue": (REPORT, lambda r: r["catalogue"].pop(), "catalogue["),
    "a stage": (REPORT, lambda r: r["stages"].update(save=0.1), "stages.save: report.json says 0.1"),
    "what the stages have in all": (REPORT, lambda r: r["stages"].update(other=1.0), "s in all, and the run had"),
    "an added id of a measurement": (FACTS, lambda m: m.update(id=1), f"{FACTS} holds more than a run writes"),
}  # fmt: skip


@pytest.mark.parametrize("name", first_few(DOCUMENT_CHANGES, 6))
def test_a_document_that_was_changed_is_named(run, name):
    file, change, says = DOCUMENT_CHANGES[name]
    edit(run / file, change)
    write_manifest(run)
    assert any(says in detail for detail in named(run)), named(run)


def other(value):
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.5 + 0.001
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, list):
        return [*value, copy.deepcopy(value[0]) if value else "x"]
    return {**value, "added": 1} if isinstance(value, dict) else "x"


def prefix_of(path):
    return ".".join("*" if isinstance(step, int) else step for step in path)


def is_unheld(file, place):
    return any(place == known or (known.endswith(".") and place.startswith(known)) for known in UNHELD[file])


@pytest.mark.thorough
@pytest.mark.parametrize("file", UNHELD)
def test_every_place_is_held_or_said_not_to_be(run, file):
    text = (run / file).read_text()
    lines = text.splitlines() if file == EVENTS else [text]
    seen, unnamed = set(), set()
    for number, line in enumerate(lines):
        for path in places(json.loads(line)):
            document = json.loads(line)
            what = document.get("event", "") if file == EVENTS else ""
            place = prefix_of(path)
            if not path or (what, place) in seen or (file == EVENTS and place == "seconds"):
                continue
            seen.add((what, place))
            inside = document
            for step in path:
                inside = inside[step]
            changed = json.dumps(put(document, path, other(inside)), indent=None if file == EVENTS else 1)
            rows = [*lines[:number], changed, *lines[number + 1 :]]
            (run / file).write_text("\n".join(rows) + "\n")
            write_manifest(run)
            if not named(run):
                unnamed.add(f"{what} {place}".strip())
    assert len(seen) > 10
    assert {place for place in unnamed if not is_unheld(file, place)} == set()


def test_the_page_says_what_is_not_compared():
    page = (CHECKOUT / "docs" / "evidence.md").read_text()
    for word in ("finished", "left_behind", "sections", "area", "small", "a moment that stays between"):
        assert word in page.partition("What `verify` does not compare")[2], word


def test_a_folder_that_nobody_touched_holds(run):
    assert named(run) == []
    assert main(["verify", str(run)]) == 0
