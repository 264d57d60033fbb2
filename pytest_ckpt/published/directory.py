"""Lists the runs below a directory of results, and reads the files of each run. Implausible files are left out."""

from __future__ import annotations

import json
import os
import re
import stat
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_ckpt.published.facts import Facts, SystemDescription, facts_of, separation_of, system_of
from pytest_ckpt.published.times import RankTimes, logged_times, rank_times
from pytest_ckpt.published.traffic import Counters, counters_of
from pytest_ckpt.support.strict_json import too_many_values

STATISTICS = "_per_epoch_stats.json"
LOG, SUMMARY, CONFIGURATION, SEPARATION = "dlio.log", "summary.json", "dlio_config", "fs_separation.json"
DIVISIONS = ("closed", "open")
"""The directory names of the divisions of a submission; their names are case-sensitive (Rules.md 2.1.2)."""

_STATISTICS = re.compile(r"(0|[1-9]\d{0,6})_per_epoch_stats\.json", re.ASCII)
_METADATA = re.compile(r".+_metadata(?:\.\w+)?\.json")
_SERIES = re.compile(r".+_timeseries\.json")
# Commands of mlpstorage that do not measure: recognised by a field of the metadata, or else by the directory's name.
_SIZING = ("datasize", "datagen", "configview")
# A rank's file of 20 operations has 5 kB; a file larger than this is not a rank's file.
_MAXIMUM_BYTES = 32 << 20
# Hydra's files have about 5 kB; parsing a file of this size takes a second.
_MAXIMUM_YAML_BYTES = 256 << 10
# Rank 0's log of 20 operations has about 20 kB; with all messages of libraries, it is smaller than this.
_MAXIMUM_LOG_BYTES = 256 << 20
# More ranks than any layout has.
_MAXIMUM_RANKS = 16_384


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """A notice for the reader about one file or directory. ``path`` is the file or directory."""

    path: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLocation:
    """The location of a run in a directory tree.

    ``submitter``, ``system`` and ``division`` (``closed`` or ``open``) are parts of the path; a part that the path does
    not contain is empty. ``description`` is the file that describes the system; None outside a published tree.
    """

    directory: Path
    submitter: str
    system: str
    model_directory: str
    division: str = ""
    description: Path | None = None

    @property
    def is_published_tree(self) -> bool:
        """Whether the path has the structure of published results."""
        return bool(self.system)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFiles:
    """The readable content of one run directory.

    ``is_training`` is true if the run belongs to the training benchmark. ``is_sizing`` is true if the run's command,
    such as ``datasize``, measures nothing. ``rank0_from_log`` is true if rank 0's times come from its log.
    """

    place: RunLocation
    facts: Facts
    ranks: dict[int, RankTimes]
    rank0_from_log: bool
    messages: tuple[Message, ...]
    counters: Counters = field(default_factory=dict)
    is_training: bool = False
    is_sizing: bool = False


def find_runs(directory: Path, overlooked: Callable[[Message], None] = lambda _message: None) -> list[Path]:
    """Return the run directories at and below ``directory``, sorted by name.

    Links to directories are not followed. ``overlooked`` is called with a message for each link to a directory and for
    each unreadable directory.
    """
    found = []

    def closed(error: OSError) -> None:
        overlooked(Message(path=str(error.filename), text=f"it cannot be read: {error.strerror}."))

    for here, directories, files in os.walk(directory, onerror=closed):
        directories.sort()
        statistics = any(map(_STATISTICS.fullmatch, files))
        if statistics or LOG in files or SUMMARY in files or any(map(_METADATA.fullmatch, files)):
            found.append(Path(here))
        for name in directories:
            if _is_link(Path(here, name)):
                overlooked(
                    Message(path=str(Path(here, name)), text="it is a link to a directory, and was not followed.")
                )
        if statistics:
            directories.clear()
        elif CONFIGURATION in directories:
            directories.remove(CONFIGURATION)
    return found


def _is_link(path: Path) -> bool:
    try:
        return path.is_symlink()
    except OSError:
        # Walking into the directory will fail in the same way, and this is reported.
        return False


def location_of(directory: Path) -> RunLocation:
    """Return the location of a run from a path such as ``SUBMITTER/results/SYSTEM/checkpointing/MODEL/TIME``.

    For another path, submitter and system are empty.
    """
    parts = directory.absolute().parts
    for kind in ("checkpointing", "training"):
        if kind in parts[1:-1]:
            at = len(parts) - 2 - parts[-2::-1].index(kind)
            published = at >= 3 and parts[at - 2] == "results"
            return RunLocation(
                directory=directory,
                submitter=parts[at - 3] if published else "",
                system=parts[at - 1] if published else "",
                model_directory=parts[at + 1],
                division=parts[at - 4] if published and at > 4 and parts[at - 4] in DIVISIONS else "",
                description=Path(*parts[: at - 2], "systems", f"{parts[at - 1]}.yaml") if published else None,
            )
    return RunLocation(directory=directory, submitter="", system="", model_directory=directory.parent.name)


def read_run(directory: Path, on_file: Callable[[], None] = lambda: None) -> RunFiles:
    """Return the content of one run directory. ``on_file`` is called before each rank's file is read.

    Raises OSError if the directory no longer exists.
    """
    messages: list[Message] = []
    names = sorted(entry.name for entry in os.scandir(directory) if not entry.is_dir())
    place = location_of(directory)
    facts, metadata = _facts(directory, names, messages)
    nothing = RunFiles(place=place, facts=facts, ranks={}, rank0_from_log=False, messages=())
    if facts.kind_of_benchmark not in ("", "checkpointing"):
        return replace(nothing, is_training=True)
    if (facts.disclosed.command or directory.absolute().parent.name) in _SIZING:
        return replace(nothing, is_sizing=True)
    ranks: dict[int, RankTimes] = {}
    for name in names:
        if name.endswith(STATISTICS) and not _STATISTICS.fullmatch(name):
            messages.append(Message(path=str(directory / name), text="left out: DLIO names no rank's file like this."))
    for rank, name in sorted((int(m[1]), m[0]) for m in map(_STATISTICS.fullmatch, names) if m):
        if rank >= _MAXIMUM_RANKS:
            messages.append(Message(path=str(directory / name), text="left out: no run has so many ranks."))
            continue
        on_file()
        content, fault = read_json(directory / name)
        if fault:
            messages.append(Message(path=str(directory / name), text=fault))
            continue
        times = rank_times(content)
        if times.is_training or (
            not times.timings and not times.faults and place.model_directory and _trains(directory)
        ):
            return replace(nothing, is_training=True)
        messages += [Message(path=str(directory / name), text=f"{text}.") for text in times.faults]
        if not times.timings and not times.faults:
            messages.append(Message(path=str(directory / name), text="it contains no operation."))
        if times.timings:
            ranks[rank] = times
    rank0_from_log = False
    if 0 not in ranks and (directory / LOG).is_file():
        times = _logged(directory / LOG, messages)
        if times.timings:
            ranks[0], rank0_from_log = times, True
            messages.append(Message(path=str(directory / LOG), text="rank 0's times were read from this log."))
    messages += [Message(path=str(directory), text=text) for text in facts.contradictions]
    counters = _counters(directory, names, metadata, messages)
    facts = replace(facts, system=_description(place, messages))
    return RunFiles(
        place=place,
        facts=facts,
        ranks=ranks,
        rank0_from_log=rank0_from_log,
        messages=tuple(messages),
        counters=counters,
    )


def read_json(path: Path) -> tuple[Any, str]:
    """Return (content, "") of a JSON file, or (None, reason) if the file cannot be used."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            return None, "it is not a file."
        if found.st_size > _MAXIMUM_BYTES:
            return None, "it is far too large for what it should be."
        data = path.read_bytes()
    except OSError as error:
        return None, f"it cannot be read: {error.strerror}."
    if not data.strip():
        return None, "it is empty."
    if crowded := too_many_values(data):
        return None, f"{crowded}."
    try:
        return json.loads(data), ""
    except (ValueError, RecursionError) as error:
        return None, f"it is not JSON, or cut off: {error}."


def _facts(directory: Path, names: list[str], messages: list[Message]) -> tuple[Facts, Any]:
    """Return (facts, metadata): the facts in a run's files, and mlpstorage's metadata. The metadata may be None."""

    def content(name: str) -> Any:
        found, fault = read_json(directory / name)
        if fault:
            messages.append(Message(path=str(directory / name), text=fault))
        return found

    metadata = next((content(name) for name in names if _METADATA.fullmatch(name)), None)
    facts = facts_of(
        metadata,
        _yaml(directory / CONFIGURATION / "config.yaml", messages),
        _yaml(directory / CONFIGURATION / "overrides.yaml", messages),
        content(SUMMARY) if SUMMARY in names else None,
    )
    return replace(facts, separation=separation_of(content(SEPARATION) if SEPARATION in names else None)), metadata


def _description(place: RunLocation, messages: list[Message]) -> SystemDescription | None:
    return None if place.description is None else system_of(_yaml(place.description, messages))


def _counters(directory: Path, names: list[str], metadata: Any, messages: list[Message]) -> Counters:
    """Return the kernel counters of the hosts.

    If the file with the time series is unreadable, add a message to ``messages``.
    """
    series = None
    for name in filter(_SERIES.fullmatch, names):
        series, fault = read_json(directory / name)
        if fault:
            messages.append(Message(path=str(directory / name), text=f"received bytes were not read: {fault}"))
    return counters_of(metadata, series)


def _yaml(path: Path, messages: list[Message]) -> Any:
    if not path.is_file():
        return None
    from ruamel.yaml import YAML  # noqa: PLC0415 - many directories have none
    from ruamel.yaml.error import YAMLError, YAMLWarning  # noqa: PLC0415

    # For invalid YAML the parser raises other errors too: "!!int" without digits raises IndexError.
    no_yaml = (YAMLError, ValueError, TypeError, LookupError, AssertionError, RecursionError)

    try:
        if path.stat().st_size > _MAXIMUM_YAML_BYTES:
            raise ValueError("it is far too large for what it should be")
        reader = YAML(typ="safe", pure=True)
        # Hydra writes YAML with PyYAML, for which "on" is true and a float may lack its point.
        reader.version = (1, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", YAMLWarning)
            return reader.load(path.read_text(encoding="utf-8"))
    except OSError as error:
        messages.append(Message(path=str(path), text=f"it cannot be read: {error.strerror}."))
    except no_yaml as error:
        messages.append(Message(path=str(path), text=f"it is not YAML: {' '.join(str(error).split())}."))
    return None


def _logged(path: Path, messages: list[Message]) -> RankTimes:
    def lines() -> Iterator[str]:
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from file

    try:
        if path.stat().st_size > _MAXIMUM_LOG_BYTES:
            messages.append(Message(path=str(path), text="it is far too large for what it should be."))
            return logged_times(())
        return logged_times(lines())
    except OSError as error:
        messages.append(Message(path=str(path), text=f"it cannot be read: {error.strerror}."))
        return logged_times(())


def _trains(directory: Path) -> bool:
    return "training" in directory.absolute().parts
