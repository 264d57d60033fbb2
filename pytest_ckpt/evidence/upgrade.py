"""Documents of an older schema as today's, in memory: the files of a run folder stay as its run wrote them.

A document is checked against the schema that it was written by (``templates/report-<n>.schema.json``), then upgraded
one schema at a time. An upgrade renames and restates; it adds no fact.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.proofs import COLD_BASES
from pytest_ckpt.facts.subject import DEFAULT_ENGINE, Subject
from pytest_ckpt.facts.targets import MOUNTED
from pytest_ckpt.targets.posix.mounts import Mount

TODAY = 2
"""The number of today's schema of report, plan and the records of a run folder."""

Kind = Literal["report", "measurement", "observation", "event", "session", "plan"]
"""A document of a run folder; ``event`` is one line of events.jsonl."""

_REPORT = re.compile(r"pytest-ckpt/report/([1-9][0-9]{0,3})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """The schema that the documents of a run folder follow.

    ``engine`` is the run's, ``subjects`` are the texts of its checkpoints: those of schema 1 left the engine out.
    """

    number: int
    engine: str = DEFAULT_ENGINE
    subjects: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The name under which `schemas.faults` knows the report of this schema."""
        return "report" if self.number == TODAY else f"report-{self.number}"

    def measurement_file(self, subject: Subject) -> str:
        """Return the name of the file of a measurement, below ``measurements``."""
        return f"{subject.layout if self.number == 1 else subject.slug}.json"


NOW = Schema(number=TODAY)


def schema_of(report: Any) -> Schema | None:
    """Return the schema of a run's folder, from its report; None for a document that names no schema known here."""
    name = report.get("schema") if isinstance(report, Mapping) else None
    found = _REPORT.fullmatch(name) if isinstance(name, str) else None
    number = int(found[1]) if found else 0
    if not 1 <= number <= TODAY:
        return None
    engine = next(
        (s.get("value") for s in _places(report, ["settings", "*"]) if s.get("option") == "--ckpt-engine"), ""
    )
    subjects = (c.get("subject") for c in _places(report, ["checkpoints", "*"]))
    return Schema(
        number=number,
        engine=str(engine or DEFAULT_ENGINE),
        subjects=frozenset(s for s in subjects if isinstance(s, str)),
    )


def upgraded(kind: Kind, document: Any, schema: Schema) -> Any:
    """Return a document of a schema as one of today's; today's is returned as it is.

    Raises LookupError, TypeError, ValueError or AttributeError for a document that does not follow its schema.
    """
    if schema.number == TODAY:
        return document
    return _from_1(kind, copy.deepcopy(document), schema)


def upgraded_line(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of a history with today's texts of subjects: an engine other than the default is part of them."""
    return {**line, "subjects": [_with_engine(s, s["conditions"].get("engine")) for s in line["subjects"]]}


def _with_engine(found: Mapping[str, Any], engine: str | None) -> dict[str, Any]:
    text = str(found["subject"])
    is_old = engine not in (None, "", DEFAULT_ENGINE) and "/" not in text
    return {**found, "subject": f"{text}/{engine}" if is_old else text}


def _from_1(kind: Kind, document: Any, schema: Schema) -> Any:
    for place, old, new in _RENAMED_1[kind]:
        for found in _places(document, place):
            if old in found:
                found[new] = found.pop(old)
    for place in _FAILURES_1.get(kind, ()):
        for failure in _places(document, place):
            failure["operation"] = _reference_1(failure.get("operation") or "", schema)
    for place in _BLOCKED_1.get(kind, ()):
        for observation in _places(document, place):
            observation["blocked"] = _blocked_1(observation["blocked"])
    for place in _ENVIRONMENTS_1.get(kind, ()):
        for environment in _places(document, place):
            _environment_1(environment)
    for verdict in _places(document, ("requirements", "*")) if kind == "report" else ():
        verdict.setdefault("reason", _reason_1(verdict, document))
        # Then nothing but a count of cached pages proved a load cold.
        verdict.setdefault("basis", "seen" if (verdict["id"], verdict["outcome"]) == ("COLD", "met") else "")
    if kind == "event" and document.get("event") == "start":
        document["operation"] = _reference_1(f"{document.pop('subject')} {document['operation']}", schema)
    if kind == "event" and document.get("event") == "pattern":
        document |= {"found": document.get("found"), "not_run": document.get("not_run") or ""}
    for place in _SUBJECTS_1[kind]:
        for found in _places(document, place):
            if isinstance(text := found.get("subject"), str):
                found["subject"] = _subject_1(text, schema)
    for gates in _places(document, ("gates",)) if kind in ("report", "session") else ():
        gates.setdefault("cold_bases", list(COLD_BASES))
    if kind == "report":
        # A field that schema 1 did not have gets its default, which is what its absence meant.
        for name, record in (("measurements", Measurement), ("observations", Observation)):
            document[name] = [to_plain(from_plain(record, found)) for found in document.get(name, ())]
    if kind in ("report", "plan"):
        document["schema"] = f"pytest-ckpt/{kind}/{TODAY}"
    return document


def _subject_1(text: str, schema: Schema) -> str:
    """Return today's text of a subject; the subject of a check of the target's behaviour stays."""
    return f"{text}/{schema.engine}" if text in schema.subjects and schema.engine != DEFAULT_ENGINE else text


_COUNTED_1 = re.compile(r"(save|load|delete|storm|shifted|joined|split|neighbour|mixed|endurance|near_full) (\d+)")
_ACTIONS_1 = dict.fromkeys(("storm", "shifted", "joined", "split"), "load") | dict.fromkeys(
    ("neighbour", "endurance"), "save"
)
# The turns of "mixed" in which ranks saved while samples were read.
_SAVES_OF_MIXED_1 = (2, 3, 6)


def _reference_1(text: str, schema: Schema) -> dict[str, Any] | None:
    """Return the reference that a text of schema 1 stands for, such as ``llama3-8b-full load 2: residency``.

    None for what ranks did outside an operation of a subject. Raises ValueError for a text of no run.
    """
    name, _, rest = text.partition(" ")
    if name not in schema.subjects:
        return None
    found: dict[str, Any] = {"scenario": "", "action": "", "index": None, "level": 0.0}
    what, _, stage = rest.partition(": ")
    if stage.startswith("ballast to "):
        share = float(stage.removeprefix("ballast to ").removesuffix("%")) / 100
        found |= {"scenario": "near_full", "level": share}
        stage = "ballast"
    elif counted := _COUNTED_1.fullmatch(what):
        word, digits = counted[1], counted[2]
        index = int(digits)
        if word in ("save", "load", "delete"):
            found |= {"action": word, "index": index}
        elif word == "near_full":
            # The level in percent, then one digit for the save at this level.
            found |= {
                "scenario": word,
                "action": "save",
                "index": int(digits[-1]),
                "level": int(digits[:-1] or "0") / 100,
            }
        else:
            action = _ACTIONS_1.get(word) or ("save" if index in _SAVES_OF_MIXED_1 else "read")
            found |= {"scenario": word, "action": action, "index": index}
    elif stage:
        found["scenario"] = what
    else:
        stage = what
    return {"subject": _subject_1(name, schema), **found, "stage": stage or "operation"}


def _environment_1(environment: dict[str, Any]) -> None:
    """Restate what hosts and target are; a target of schema 1 was a folder on a mounted file system."""
    environment.setdefault("second_client", "")
    environment.setdefault("plugins", [])
    for host in _places(environment, ("hosts", "*")):
        if "target_is_folder" in host:
            host["target_is_reached"] = host.pop("target_is_folder")
    if not isinstance(old := environment.get("target"), dict):
        return
    kind, total, free = old.get("file_system") or "", old.get("total_bytes"), old.get("free_bytes")
    mount = Mount(mount_point="", file_system=kind, source="", options="")
    environment["target"] = {
        "location": old.get("path") or "",
        "kind": kind,
        "gate_kind": mount.gate_kind if kind else "",
        "is_local": old.get("local"),
        "capacity": None
        if total is None or free is None
        else {"total_bytes": total, "used_bytes": total - free, "free_bytes": free},
        "capabilities": sorted(MOUNTED),
        **{name: old.get(name) or "" for name in ("source", "mount_point", "options")},
        "plugin": "",
    }


_NO_TEST_1 = "Its test did not run: it was deselected, or the session ended before it."
_REASONS_1 = {"met": "met", "failed": "over limit"}


def _reason_1(verdict: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """Return a reason code for a verdict of schema 1, which had a sentence alone."""
    if str(verdict.get("because")).endswith(_NO_TEST_1):
        return "no test"
    if any(r.get("id") == verdict.get("id") and r.get("plugin") for r in _places(report, ("catalogue", "*"))):
        return "plugin"
    return _REASONS_1.get(str(verdict.get("outcome")), "not measured")


def _blocked_1(failure: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    return {
        "call": failure.get("phase", ""),
        "path": failure.get("file", ""),
        **{name: failure.get(name, "") for name in ("host", "message", "stack")},
    }


_Place = tuple[str, ...]
_Renamed = tuple[tuple[_Place, str, str], ...]


def _places(document: Any, steps: _Place | list[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects at a place; ``*`` stands for every item of a list. A place that is not there has none."""
    if not steps:
        if isinstance(document, dict):
            yield document
    elif steps[0] == "*":
        for item in document if isinstance(document, list) else ():
            yield from _places(item, steps[1:])
    elif isinstance(document, dict):
        yield from _places(document.get(steps[0]), steps[1:])


def _below(place: str, rows: _Renamed) -> _Renamed:
    return tuple(((*place.split("."), *inner), old, new) for inner, old, new in rows)


# Rows of place, name of the field in schema 1, name in schema 2.
_CACHE_1: _Renamed = ((("readings", "*"), "asks", "requires_drop"),)
_NEIGHBOUR_1: _Renamed = (((), "beside_seconds", "contended_seconds"),)
_MIXED_1: _Renamed = (
    ((), "beside_p99_seconds", "contended_p99_seconds"),
    ((), "beside_reads", "contended_reads"),
)
_ENDURANCE_1: _Renamed = (((), "asked_seconds", "requested_seconds"), ((), "began_seconds", "start_seconds"))
_NEAR_FULL_1: _Renamed = ((("levels", "*"), "asked", "requested"),)
_MEASUREMENT_1: _Renamed = (
    *_below("cache", _CACHE_1),
    *_below("patterns.neighbour", _NEIGHBOUR_1),
    *_below("patterns.mixed", _MIXED_1),
    *_below("patterns.endurance", _ENDURANCE_1),
    *_below("patterns.near_full", _NEAR_FULL_1),
)
_PLAN_1: _Renamed = (
    (("checkpoints", "*"), "beside", "scenarios"),
    (("checkpoints", "*", "demand"), "subject", "layout"),
)
_RENAMED_1: Mapping[Kind, _Renamed] = {
    "report": (*_PLAN_1, *_below("measurements.*", _MEASUREMENT_1)),
    "measurement": _MEASUREMENT_1,
    "observation": (),
    # What rank 0 says of a pattern lies under "found", whichever it is.
    "event": (
        *_below("cache", _CACHE_1),
        *_below("found", (*_NEIGHBOUR_1, *_MIXED_1, *_ENDURANCE_1, *_NEAR_FULL_1)),
    ),
    "session": (),
    "plan": _PLAN_1,
}
# Places of objects with a subject, of failures of ranks, and of observations with a call that blocked.
_SUBJECTS_1: Mapping[Kind, tuple[_Place, ...]] = {
    "report": tuple(
        (name, "*")
        for name in ("requirements", "checkpoints", "measurements", "certified_cluster", "training", "waivers")
    ),
    "measurement": ((),),
    "observation": (),
    "event": ((),),
    "session": (("waivers", "*"),),
    "plan": (("checkpoints", "*"),),
}
_FAILURES_1: Mapping[Kind, tuple[_Place, ...]] = {
    "report": (("measurements", "*", "failure"),),
    "measurement": (("failure",),),
}
_ENVIRONMENTS_1: Mapping[Kind, tuple[_Place, ...]] = {"report": (("environment",),), "session": (("environment",),)}
_BLOCKED_1: Mapping[Kind, tuple[_Place, ...]] = {"report": (("observations", "*"),), "observation": ((),)}
