"""Waivers: failures that a buyer has accepted, each with requirement, subject, reason and end date. Pure.

A waived requirement is marked as waived everywhere. A waived requirement no longer causes the exit code of a failed or
incomplete run. A run with a waived required requirement is not certified.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.support.errors import nearest
from pytest_ckpt.support.user_files import parse_toml

_KEYS = ("requirement", "subject", "reason", "expires")


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiver:
    """One waiver. ``subject`` is ``*`` for all subjects. ``expires`` is the last valid day, as YYYY-MM-DD."""

    requirement: str
    subject: str
    reason: str
    expires: str

    def covers(self, verdict: Verdict) -> bool:
        """Whether the waiver applies to the requirement and subject of a verdict."""
        return self.requirement == verdict.id and self.subject in ("*", verdict.subject)

    def is_over(self, day: str) -> bool:
        """Whether the waiver has expired on ``day``, which begins with YYYY-MM-DD."""
        return day[:10] > self.expires


def read_waivers(text: str, known: Mapping[str, Collection[str]]) -> tuple[Waiver, ...]:
    """Return the waivers in a TOML text with ``[[waive]]`` tables. Raises ValueError if the text is invalid.

    ``known`` is {requirement of the run: its subjects}. An unknown requirement or subject is an error.
    """
    table = parse_toml(text)
    for name in table:
        if name != "waive":
            raise ValueError(f"'{name}' is not a known key{nearest(name, ['waive'])}; entries begin with [[waive]]")
    entries = table.get("waive", [])
    if not isinstance(entries, list) or not entries:
        raise ValueError("it has no entries; each entry begins with [[waive]]")
    return tuple(_entry(number, entry, known) for number, entry in enumerate(entries, start=1))


def waive(verdicts: Iterable[Verdict], waivers: Sequence[Waiver], day: str) -> list[Verdict]:
    """Return the verdicts. A verdict "failed" or "not run" becomes "waived" if a waiver covers it on ``day``.

    The sentence of a waived verdict begins with the waiver. The reason code is unchanged.
    """
    return [_waived(v, waivers, day) if v.outcome in ("failed", "not run") else v for v in verdicts]


def expired(waivers: Iterable[Waiver], day: str) -> list[str]:
    """Return a sentence for every expired waiver."""
    return [
        f"The waiver of {w.requirement} for {_all(w.subject)} ended on {w.expires} and does not count."
        for w in waivers
        if w.is_over(day)
    ]


def _waived(verdict: Verdict, waivers: Sequence[Waiver], day: str) -> Verdict:
    for waiver in waivers:
        if waiver.covers(verdict) and not waiver.is_over(day):
            because = (
                f"Waived until {waiver.expires}: {waiver.reason.rstrip('.')}. It {_was(verdict)}: {verdict.because}"
            )
            return dataclasses.replace(verdict, outcome="waived", because=because)
    return verdict


def _was(verdict: Verdict) -> str:
    return "failed" if verdict.outcome == "failed" else "was not run"


def _all(subject: str) -> str:
    return "all subjects" if subject == "*" else subject


def _is_day(text: str) -> bool:
    parts = text.split("-")
    return [len(part) for part in parts] == [4, 2, 2] and all(p.isascii() and p.isdecimal() for p in parts)


def _entry(number: int, entry: Any, known: Mapping[str, Collection[str]]) -> Waiver:
    where = f"entry {number}"
    if not isinstance(entry, dict):
        raise ValueError(f"{where} is not a table")
    for name in entry:
        if name not in _KEYS:
            raise ValueError(f"{where}: '{name}' is not a known key{nearest(name, _KEYS)}")
    for name in _KEYS:
        if not str(entry.get(name, "")).strip():
            raise ValueError(f"{where} has no {name}; each needs {', '.join(_KEYS)}")
    requirement, subject, expires = str(entry["requirement"]), str(entry["subject"]), str(entry["expires"])
    if requirement not in known:
        raise ValueError(f"{where}: '{requirement}' is not a requirement of this run{nearest(requirement, known)}")
    if subject != "*" and subject not in known[requirement]:
        there = known[requirement]
        raise ValueError(
            f"{where}: {requirement} has no subject '{subject}' in this run{nearest(subject, there)}; it has "
            f"{', '.join(there)}, and * selects all"
        )
    if not _is_day(expires):
        raise ValueError(f"{where}: expires is '{expires}'; a day such as 2027-03-31 is expected")
    return Waiver(requirement=requirement, subject=subject, reason=str(entry["reason"]), expires=expires)
