"""Certificates of several runs: no attack on one of them makes a verdict better than the runs allow."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.manifest import digests
from pytest_ckpt.evidence.unfinished import is_unfinished
from tests.support import made_up_run
from tests.support.fuzz.families import Family, met, pages_asked_for, remake
from tests.support.fuzz.mutations import mutate
from tests.support.fuzz.originals import one_late, unproven

_CODES = (0, 1, 4, 8)
_DAYS = {"late": 1, "good": 2, "unproven": 3, "large": 4, "one-late": 5, "again": 6}


class CombinedRuns(Family):
    """Folders of runs of one target, given to judge and verify together."""

    name = "combined"

    def prepare(self, originals: Path) -> None:
        """Make runs of several days, and the certificates of some of them."""
        large = {"ckpt_model": "llama3-70b", "ckpt_processes": "8"}
        ways: dict[str, dict[str, Any]] = {
            "late": {"save": 100.0},
            "good": {},
            "unproven": {"change": unproven},
            "large": {"options": large},
            "one-late": {"change": one_late},
            "again": {"options": large, "save": 100.0},
        }
        for name, words in ways.items():
            day = _DAYS[name]
            made_up_run.make_run(originals / name, seed=day, started=f"2031-05-{day:02d}T01:00:00+00:00", **words)
        self.originals = originals
        self.alone = {name: self._judged(originals / name) for name in _DAYS}
        self.digests = {name: digests(originals / name) for name in _DAYS}

    def _judged(self, *folders: Path) -> tuple[int | None, Any]:
        outcome = self.sandbox.run(lambda: main(["judge", *map(str, folders), "--json"]), ())
        return outcome.code, json.loads(outcome.out)

    def attempt(self, rng: Random, home: Path) -> tuple[list[str], list[str]]:
        names = rng.sample(sorted(_DAYS), rng.randint(2, 3))
        places = {name: home / f"run-{name}" for name in names}
        outside, out = home / "outside", home / "out"
        outside.mkdir()
        out.mkdir()
        (outside / "file").write_text("{}")
        for name, place in places.items():
            shutil.copytree(self.originals / name, place)
        folders = [str(place) for place in places.values()]
        found: list[str] = []
        if rng.random() < 0.5:
            return self._changed_run(rng, home, places, folders, found)
        made = out / "made"
        self.command(["judge", *folders, f"--out={made}"], home, _CODES, found)
        if not (made / "report.json").exists():
            return [*names, "nothing was written"], found
        done = [*names, "the certificate", *mutate(rng, made, outside)]
        if is_remade := rng.random() < 0.5:
            remake(made)
            done.append("manifest written anew")
        before = self._report(home, folders, found)
        outcome = self.command(["verify", str(made), *folders, *rng.choice([[], ["--json"]])], home, (0, 1, 4), found)
        if outcome.code == 0 and before and self._is_other(made, before):
            found.append(f"verify says that a changed certificate is unchanged (remade: {is_remade})")
        return done, found

    def _changed_run(
        self, rng: Random, home: Path, places: Mapping[str, Path], folders: list[str], found: list[str]
    ) -> tuple[list[str], list[str]]:
        """Change one of the runs and combine them all."""
        name = rng.choice(sorted(places))
        done = [*places, name, *mutate(rng, places[name], home / "outside")]
        if is_remade := rng.random() < 0.3 and not is_unfinished(places[name]):
            remake(places[name])
            done.append("manifest written anew")
        rng.shuffle(folders)
        words = pages_asked_for(rng, home / "out")
        outcome = self.command(["judge", *folders, *words], home, _CODES, found)
        if is_remade or "--json" not in words or not outcome.out:
            return done, found
        document = json.loads(outcome.out)
        allowed = set().union(*(met(self.alone[of][1]) for of in places))
        if document["grade"] == "certified":
            found.append("it is certified")
        if outcome.code == 0 and (better := met(document) - allowed):
            found.append(f"met now, and by none of the runs: {sorted(better)}")
        if outcome.code == 0 and digests(places[name]) != self.digests[name]:
            found += self._only_what_counts(places[name], name)
        return done, found

    def _only_what_counts(self, place: Path, name: str) -> list[str]:
        """Return what was changed of the facts of a run that passes all the same."""
        facts = ("report.json", "measurements/", "observations/")
        now, then = digests(place), self.digests[name]
        changed = [f for f in now.keys() | then.keys() if now.get(f) != then.get(f) and f.startswith(facts)]
        return [f"it passes with changed facts: {sorted(changed)[:5]}"] if changed else []

    def _report(self, home: Path, folders: list[str], found: list[str]) -> Any:
        outcome = self.command(["judge", *folders, "--json"], home, _CODES, found)
        return json.loads(outcome.out) if outcome.out else None

    def _is_other(self, made: Path, before: Any) -> bool:
        try:
            return bool(json.loads((made / "report.json").read_text()) != before)
        except (OSError, ValueError):
            return True
