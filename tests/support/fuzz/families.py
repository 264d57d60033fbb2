"""Families of attacks: each family is one kind of input, with attacks on it and checks of the commands.

A family creates original inputs once. An attack copies an original, changes the copy, and passes the copy to commands.
The attack returns (descriptions of the changes, violations).
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.history import append_run
from pytest_ckpt.evidence.manifest import ATTESTATION, MANIFEST, digests, write_manifest
from pytest_ckpt.evidence.signing import Signer
from pytest_ckpt.evidence.unfinished import is_unfinished
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.proofs import Fault
from tests.support import synthetic_run
from tests.support.fuzz.mutations import mutate
from tests.support.fuzz.sandbox import Outcome, Sandbox
from tests.support.synthetic_results import SyntheticRun, describe, published
from tests.support.synthetic_run import write_run

_USAGE = 4
_PYTHON = re.compile(
    r"invalid literal|object has no attribute|NoneType|unhashable|not subscriptable|not iterable|KeyError|TypeError|"
    r"IndexError|AttributeError|codec can't|<class '|object at 0x|Errno|unsupported operand|"
    r"instances of '|cannot be interpreted|must be an iterable"
)


class Family(ABC):
    """Base class of the families. A family is one kind of input and the attacks on this input."""

    name: str
    # The directories that attacks change, for families that have them.
    originals: Sequence[Path]

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    @abstractmethod
    def prepare(self, originals: Path) -> None:
        """Create the original inputs below this directory."""

    @abstractmethod
    def attempt(self, rng: Random, home: Path) -> tuple[list[str], list[str]]:
        """Run one attack in an empty directory; return (descriptions of the changes, violations as sentences)."""

    def changed(self, rng: Random, home: Path) -> tuple[Path, Path, list[str]]:
        """Copy a random original into ``home``, and change the copy.

        Return (original, copy, descriptions of the changes).
        """
        original = rng.choice(self.originals)
        directory, outside = home / "changed", home / "outside"
        shutil.copytree(original, directory)
        outside.mkdir()
        (outside / "file").write_text("{}")
        return original, directory, [original.name, *mutate(rng, directory, outside)]

    def command(self, words: Sequence[str], home: Path, codes: Sequence[int], found: list[str]) -> Outcome:
        """Run the command ``words``, add its violations to ``found``, and return its outcome.

        The command may write only below ``home/out``. ``codes`` are the permitted exit codes.
        """
        outcome = self.sandbox.run(lambda: main(list(words)), (home / "out",))
        found += reported(words, outcome, codes)
        return outcome


def reported(words: Sequence[str], outcome: Outcome, codes: Sequence[int]) -> list[str]:
    """Return violations of the rules that apply to every command. ``codes`` are the permitted exit codes."""
    command = " ".join(words)[:300]
    faults = [f"{command!r}: {fault}" for fault in outcome.faults]
    if outcome.code not in codes and not outcome.faults:
        faults.append(f"{command!r} ended with {outcome.code}: {outcome.err[-600:]}")
    # A plan is also printed if the run would not start.
    elif outcome.code == _USAGE and ((outcome.out and words[0] != "plan") or "error: " not in outcome.err.lower()):
        faults.append(f"{command!r} ended with {_USAGE} and said {outcome.out[:200]!r}, {outcome.err[:200]!r}")
    elif "--json" in words and outcome.out:
        try:
            json.loads(outcome.out, parse_constant=_none)
        except ValueError as error:
            faults.append(f"{command!r} printed what is not JSON: {error}")
    return faults


def _none(constant: str) -> None:
    raise ValueError(f"{constant} is not a number of JSON")


def met(document: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return (requirement, subject) of every verdict that is met or waived."""
    return {(v["id"], v["subject"]) for v in document["requirements"] if v["outcome"] in ("met", "waived")}


class RunDirectories(Family):
    """Attacks on run directories that the commands judge, verify, diff, trend and plan read."""

    name = "directories"

    def prepare(self, originals: Path) -> None:
        """Create runs: good runs, bad runs, signed runs, and a run whose controller was killed."""
        make_runs(originals)
        self.originals = sorted(p for p in originals.iterdir() if p.is_dir() and p.name != "history")
        self.history = originals / "history"
        self.before, self.digests = {}, {directory.name: digests(directory) for directory in self.originals}
        for directory in self.originals:
            outcome = self.sandbox.run(lambda directory=directory: main(["judge", str(directory), "--json"]), ())  # type: ignore[misc]
            self.before[directory.name] = (outcome.code, json.loads(outcome.out))

    def attempt(self, rng: Random, home: Path) -> tuple[list[str], list[str]]:
        original, directory, done = self.changed(rng, home)
        out = home / "out"
        out.mkdir()
        is_remade = rng.random() < 0.5
        if is_remade and not is_unfinished(directory):
            remake(directory)
            done.append("manifest written anew")
        found: list[str] = []
        way = rng.random()
        if way < 0.5:
            self._judge(rng, directory, home, original.name, found, is_remade=is_remade)
        elif way < 0.75:
            outcome = self.command(["verify", str(directory), *_json(rng)], home, (0, 1, 4, 8), found)
            if outcome.code == 0 and not is_remade and digests(directory) != self.digests[original.name]:
                found.append("verify says that a changed directory is unchanged")
            if outcome.code == 0 and is_remade:
                self._judge(rng, directory, home, original.name, found, is_remade=False, words=("--json",))
        elif way < 0.85:
            pair = [str(directory), str(rng.choice(self.originals))]
            rng.shuffle(pair)
            self.command(["diff", *pair, *random_output_options(rng, out)], home, (0, 4), found)
        elif way < 0.95:
            self._trend(rng, directory, home, found)
        else:
            place = rng.choice(["--ckpt-target", "--ckpt-config", "--ckpt-hosts"])
            inside = rng.choice([".", "report.json", "plan.json", "launches", "session.json"])
            value = f"{'@' if place == '--ckpt-hosts' else ''}{directory / inside}"
            self.command(["plan", "--cluster=64", f"{place}={value}", *_json(rng)], home, (0, 4), found)
        return done, found

    def _judge(
        self,
        rng: Random,
        directory: Path,
        home: Path,
        name: str,
        found: list[str],
        *,
        is_remade: bool,
        words: Sequence[str] = (),
    ) -> None:
        """Judge a copy of the original directory ``name`` with the options ``words``, and add violations to ``found``.

        If ``is_remade`` is true, the attacker has also regenerated the manifest, and a verdict may improve. Otherwise
        an improved verdict is a violation.
        """
        words = words or random_output_options(rng, home / "out")
        outcome = self.command(["judge", str(directory), *words], home, (0, 1, 4, 8), found)
        code, before = self.before[name]
        if outcome.code == 0 and code != 0 and not is_remade:
            found.append(f"judge ended with 0, and with {code} before")
        if "--json" not in words or not outcome.out or is_remade:
            return
        document = json.loads(outcome.out)
        if document["grade"] == "certified":
            found.append("it is certified")
        if outcome.code == 0 and (better := met(document) - met(before)):
            found.append(f"met now: {sorted(better)}")

    def _trend(self, rng: Random, directory: Path, home: Path, found: list[str]) -> None:
        history = home / "history"
        shutil.copytree(self.history, history)
        runs = sorted((history / "runs").iterdir())
        place = rng.choice(runs)
        shutil.rmtree(place)
        directory.rename(place)
        if rng.random() < 0.5:
            mutate(rng, history, home / "outside")
        words = ["trend", str(history), *random_output_options(rng, home / "out")]
        self.command([*words, "--fail-on-regression=10%"], home, (0, 1, 4), found)


def remake(directory: Path) -> None:
    """Regenerate the manifest, as an attacker would, and remove the signature, which no longer matches."""
    manifest = directory / MANIFEST
    if manifest.is_dir() and not manifest.is_symlink():
        return
    manifest.unlink(missing_ok=True)
    (directory / ATTESTATION).unlink(missing_ok=True) if not (directory / ATTESTATION).is_dir() else None
    write_manifest(directory)


def _json(rng: Random) -> list[str]:
    return rng.choice([[], ["--json"]])


def random_output_options(rng: Random, out: Path) -> list[str]:
    """Return random output options of ``judge``: none, --json, or --html with a file below ``out``."""
    return rng.choice([[], ["--json"], ["--json"], ["--json"], [f"--html={out / 'page.html'}"]])


class PublishedTrees(Family):
    """Attacks on published results that the command judge reads."""

    name = "published"

    def prepare(self, originals: Path) -> None:
        """Create published results of one system and of several systems.

        In some results, an operation of one rank is too slow.
        """
        make_published(originals)
        self.originals = sorted(originals.iterdir())
        self.before = {}
        for directory in self.originals:
            words = ["judge", str(directory), "--cluster=16000", "--json"]
            outcome = self.sandbox.run(lambda words=words: main(words), ())  # type: ignore[misc]
            self.before[directory.name] = _rows(json.loads(outcome.out))

    def attempt(self, rng: Random, home: Path) -> tuple[list[str], list[str]]:
        original, directory, done = self.changed(rng, home)
        out = home / "out"
        out.mkdir()
        found: list[str] = []
        words = ["judge", str(directory), "--cluster=16000", *random_output_options(rng, out)]
        outcome = self.command(words, home, (1, 4, 8), found)
        if "--json" in words and outcome.out:
            document = json.loads(outcome.out)
            after, before = _rows(document), self.before[original.name]
            # A verdict is identified by its requirement, even if the system is renamed.
            better = {name for name, of in after.items() if of - before.get(name, set()) and _is_failed(name, before)}
            if better and not outcome.faults:
                found.append(f"met now: {sorted(better)}")
            grades = {document.get("grade"), *(row["grade"] for row in document.get("results", ()))}
            if "certified" in grades:
                found.append("it is certified")
        return done, found


class Rules(PublishedTrees):
    """Attacks on published results that ``judge --rules`` compares with the rules of a submission."""

    name = "rules"

    def attempt(self, rng: Random, home: Path) -> tuple[list[str], list[str]]:
        _, directory, done = self.changed(rng, home)
        found: list[str] = []
        edition = rng.choice(["mlperf-v3", "mlperf-v4"])
        # Each original has rules that its files do not prove; no attack may create one that meets all rules.
        self.command(["judge", str(directory), f"--rules={edition}", *_json(rng)], home, (1, 4, 8), found)
        return done, found


class Exports(RunDirectories):
    """Attacks on run directories that a command exports as MLPerf Storage results."""

    name = "exports"

    def prepare(self, originals: Path) -> None:
        """Create runs at full size, because only such runs can be exported."""
        full = {"ckpt_mode": "full", "ckpt_ranks": "8", "ckpt_profile": "acceptance", "ckpt_operations": "3"}
        write_run(originals / "full", options=full, save=5.0, load=4.0)
        write_run(originals / "late", options=full, save=400.0, load=400.0)
        self.originals = sorted(originals.iterdir())

    def attempt(self, rng: Random, home: Path) -> tuple[list[str], list[str]]:
        _, directory, done = self.changed(rng, home)
        out = home / "out"
        if rng.random() < 0.5 and not is_unfinished(directory):
            remake(directory)
            done.append("manifest written anew")
        found: list[str] = []
        outcome = self.command(["export", str(directory), "--mlperf", str(out)], home, (0, 4), found)
        if outcome.code == 0:
            judged = self.command(["judge", str(out), "--cluster=64", "--json"], home, (1, 4, 8), found)
            if judged.out and "certified" in str(json.loads(judged.out).get("grade")).split("not certified"):
                found.append("the export is certified")
            held = self.command(["judge", str(out), "--rules=mlperf-v3", "--json"], home, (1, 4), found)
            if held.code == 4 and judged.code != 4:
                found.append("the rules are not held against what can be judged")
        return done, found


def _rows(document: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return {requirement: systems or subjects that met it}."""
    if "results" in document:
        rows = [(r["subject"], name, outcome) for r in document["results"] for name, outcome in r["outcomes"].items()]
    else:
        rows = [(v["subject"], v["id"], v["outcome"]) for v in document["requirements"]]
    fields: dict[str, set[str]] = {}
    for subject, name, outcome in rows:
        fields.setdefault(name, set())
        if outcome == "met":
            fields[name].add(subject)
    return fields


def _is_failed(name: str, before: Mapping[str, set[str]]) -> bool:
    """Return true if no subject met the requirement ``name`` before the attack.

    No subject may meet such a requirement after the attack.
    """
    return not before.get(name)


def python_jargon(text: str) -> list[str]:
    """Return words of a message that only Python programmers understand, such as "KeyError"."""
    return sorted(set(_PYTHON.findall(text)))


def clear(home: Path) -> None:
    """Remove the directory of an attack, even if directories in it are nested very deeply."""
    shutil.rmtree(home, ignore_errors=True)
    if home.exists():
        os.system(f"rm -rf -- '{home}'")  # too deep for Python's recursion


KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
_FLIPPED = Fault(kind="flipped", rank=0, host="n1", checkpoint=1, file="f", tensor="t", offset=0, bytes=1, detail="")
_SEALED = ("report.json", MANIFEST, "certificate.html", "junit.xml")


def make_runs(home: Path) -> None:
    """Write run directories and a history of four runs below ``home``."""
    synthetic_run.write_run(home / "good")
    synthetic_run.write_run(home / "late", save=100.0, load=100.0)
    synthetic_run.write_run(home / "unproven", change=unproven)
    synthetic_run.write_run(home / "one-late", change=one_late)
    synthetic_run.write_run(home / "two", options={"ckpt_model": "llama3-8b,llama3-70b", "ckpt_ranks": "8"}, save=100.0)
    synthetic_run.write_run(home / "signed", signer=Signer(key=KEY), options={"ckpt_sign": "/keys/key.pem"}, save=100.0)
    killed = home / "killed"
    synthetic_run.write_run(killed, save=100.0)
    for name in _SEALED:
        (killed / name).unlink()
    for number in range(1, 5):
        run = home / f"night-{number}"
        document = synthetic_run.write_run(run, seed=number, started=f"2031-05-{number:02d}T01:00:00+00:00")
        append_run(home / "history", document, run)
        shutil.rmtree(run)


def unproven(found: Measurement) -> Measurement:
    """Return a copy of a measurement with bad proofs: a wrong byte, cached loads, and one file without fsync."""
    assert found.integrity
    assert found.durability
    assert found.cache
    loads = [dataclasses.replace(o, resident_bytes=o.mapped_bytes) if o.kind == "load" else o for o in found.operations]
    return dataclasses.replace(
        found,
        operations=tuple(loads),
        integrity=dataclasses.replace(found.integrity, fault_count=1, faults=(_FLIPPED,)),
        durability=dataclasses.replace(found.durability, files_synced=found.durability.files - 1),
        cache=dataclasses.replace(found.cache, resident_fraction=1.0),
    )


def one_late(found: Measurement) -> Measurement:
    """Return a copy of a measurement in which one rank is very slow in two operations.

    An attack that changes only a few values could improve this result.
    """
    operations = list(found.operations)
    for number in (1, 4):
        o = operations[number]
        operations[number] = dataclasses.replace(
            o,
            seconds=1e5,
            slowest_rank=1,
            rank_seconds=(o.rank_seconds[0], 1e5),
            rank0_seconds=o.rank_seconds[0],
            phases=dict.fromkeys(o.phases, 1e5),
        )
    return dataclasses.replace(found, operations=tuple(operations))


def make_published(home: Path) -> None:
    """Write published results below ``home``: directories with one result each, and a tree of several systems."""

    def one_late(kind: str, number: int, rank: int, late: int = 4) -> float:
        return 400.0 if (number, rank) == (late, 3) else (5.0 if kind == "save" else 4.0) + 0.01 * rank + 0.003 * number

    def last_late(kind: str, number: int, rank: int) -> float:
        return one_late(kind, number, rank, 10)

    parts = ("summary", "config", "metadata", "snapshots", "separation", "series")
    SyntheticRun(seconds=lambda *_: 400.0).write(home / "late" / "20260301_120000", parts=parts)
    SyntheticRun(seconds=one_late).write(home / "one-late" / "20260301_120000", parts=parts)
    SyntheticRun(seconds=last_late).write(home / "last-late" / "20260301_120000", parts=parts)
    SyntheticRun(seconds=one_late).write(home / "rank-0" / "20260301_120000", ranks=[0], parts=(*parts, "log"))
    tree, start = home / "tree", SyntheticRun().started
    run = SyntheticRun(seconds=one_late, saves=10, loads=0)
    run.write(published(tree, "Maker", "array", "llama3-8b", "20260301_120000"), parts=parts)
    later = SyntheticRun(seconds=one_late, saves=0, loads=10, started=start + timedelta(hours=1))
    later.write(published(tree, "Maker", "array", "llama3-8b", "20260301_130000"), parts=parts)
    big = SyntheticRun(model="llama3-70b", processes=8, seconds=one_late, started=start + timedelta(days=1))
    big.write(published(tree, "Other", "box", "llama3-70b", "20260302_120000"), parts=parts)
    describe(tree, "Maker", "array")
