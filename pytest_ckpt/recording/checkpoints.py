"""Derives the pattern of a save from the files of an existing checkpoint. All functions are pure.

A pattern is the sequence of file operations of a save. The file names of DCP, Megatron, DeepSpeed, safetensors and
torch show which rank wrote which file. Files do not show which calls wrote them. So the pattern contains large
sequential writes and one fsync per file, and the label of the pattern states this.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from pytest_ckpt.facts.pattern import (
    FORM,
    MAXIMUM_FILES,
    MAXIMUM_FILES_OF_RANK,
    MAXIMUM_RANKS,
    Pattern,
    PatternFile,
    Step,
    read_pattern,
)
from pytest_ckpt.recording.listing import MAXIMUM_LISTED, OPTION, Listed
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import counted, format_count

WRITE_BYTES = 16 << 20
"""The size of the assumed writes."""

ASSUMED = "from files: sequential writes of 16 MiB and one fsync a file assumed"
_ONE_CHECKPOINT = "Name the directory of one complete checkpoint."
# The maximum time between the files of one save; remains of another save are further apart.
_MAXIMUM_GAP_SECONDS = 3600.0

_UNFINISHED = re.compile(r"\.(tmp|temp|partial|incomplete|part)$|(^|/)(tmp|\.tmp)[^/]*$|\.orbax-checkpoint-tmp")
_OF_RANK = re.compile(r"(?:^|[^a-z])rank[_-]?(\d+)|(?:^|/)rng_state_(\d+)\.pth$")
_SHARD = re.compile(r"(?:^|/)(?:shard-(\d+)-)?([^/]*?)-(\d{5})-of-(\d{5})\.(safetensors|bin)$")
# Files that a save writes after the data files.
_LAST = re.compile(r"(^|/)(\.metadata|metadata\.json|latest[^/]*|[^/]*\.index\.json|checkpoint|zero_to_\w+\.py)$")


class _Format(NamedTuple):
    """A checkpoint format, which is recognized by the names of its data files.

    ``files`` matches the name of a data file. ``home`` returns the checkpoint's directory for the name of a data file.
    """

    name: str
    files: re.Pattern[str]
    home: Callable[[str], str]


def _directory(name: str) -> str:
    return name.rpartition("/")[0]


_FORMATS = (
    _Format("DCP or Megatron", re.compile(r"(?:^|/)__(?P<rank>\d+)_\d+\.distcp$"), _directory),
    _Format(
        "DeepSpeed",
        re.compile(
            r"(?:^|/)(?:bf16_|fp16_)?zero_pp_rank_(?P<data>\d+)_mp_rank_(?P<model>\d+)_(?:optim|model)_states\.pt$"
        ),
        _directory,
    ),
    _Format(
        "Megatron, legacy",
        re.compile(r"(?:^|/)mp_rank_(?P<model>\d+(?:_\d+)*)/[^/]+\.pt$"),
        lambda name: _directory(_directory(name)),
    ),
    _Format("safetensors", re.compile(r"(?:^|/)[^/]+\.safetensors$"), _directory),
)
# In DeepSpeed without ZeRO-3, the first data-parallel rank writes the model.
_OF_FIRST_DATA_RANK = re.compile(r"(?:^|/)(?:mp_rank_(\d+)|layer_\d+-model_(\d+))[_-]model_states\.pt$")
# Formats that may be in different directories of one checkpoint: a trainer writes its model next to the engine's
# states.
_TOGETHER = {"safetensors"}


def pattern_of_checkpoint(files: Sequence[Listed], label: str, created_by: str) -> Pattern:
    """Return the pattern of the save that wrote these files.

    Raises UsageError if the files are not the files of exactly one checkpoint.
    """
    files = sorted(files)
    if not any(file.bytes for file in files):
        raise UsageError(f"{OPTION}: {_number_of(files)}, and none has data.", _ONE_CHECKPOINT)
    if len(files) > MAXIMUM_FILES:
        many = f"over {format_count(MAXIMUM_LISTED)}" if len(files) > MAXIMUM_LISTED else format_count(len(files))
        raise UsageError(
            f"{OPTION}: {many} files are there, and a pattern has at most {format_count(MAXIMUM_FILES)}.",
            "Name the directory of one checkpoint. If one checkpoint has that many files, describe its model "
            "(--ckpt-model) and choose an engine that writes such files.",
        )
    _refuse_several(files)
    _refuse_unfinished(files)
    ranks = _ranks(files)
    _refuse_gaps(ranks, files)
    label = f"{label}; {ASSUMED}" if label else ASSUMED
    last = {file.name for file in files if ranks[file.name] == 0 and _LAST.search(file.name)}
    ordered = sorted(files, key=lambda file: (ranks[file.name], file.name in last, file.name))
    steps = [
        step
        for number, file in enumerate(ordered)
        for step in _steps(number, file.bytes, ranks[file.name], phase=int(file.name in last))
    ]
    steps.sort(key=lambda step: (step.phase, step.rank))
    found = Pattern(
        form=FORM,
        created_by=created_by,
        label=label,
        ranks=max(ranks.values()) + 1,
        files=tuple(PatternFile(rank=ranks[file.name], bytes=file.bytes) for file in ordered),
        steps=tuple(steps),
    )
    try:
        return read_pattern(found.to_text())
    except ValueError as error:
        raise UsageError(f"{OPTION}: its files make no pattern: {error}.", _ONE_CHECKPOINT) from None


def ranks_are_named(files: Sequence[Listed]) -> bool:
    """Return whether the names of the data files contain ranks.

    If no name contains a rank, all files belong to one rank.
    """
    return any(_rank_in(file.name, 1) is not None for file in files)


def _steps(number: int, size: int, rank: int, phase: int) -> Iterator[Step]:
    create = Step(phase=phase, rank=rank, lane=0, call="create", file=number)
    whole, rest = divmod(size, WRITE_BYTES)
    yield create
    if whole:
        yield replace(create, call="write", bytes=WRITE_BYTES, count=whole)
    if rest:
        yield replace(create, call="write", offset=size - rest, bytes=rest)
    yield replace(create, call="fsync")
    yield replace(create, call="close")


def _formats(files: Sequence[Listed]) -> dict[str, set[str]]:
    """Return {name of format: checkpoint directories of this format} for the files."""
    homes: dict[str, set[str]] = defaultdict(set)
    for file in files:
        for form in _FORMATS:
            if form.files.search(file.name):
                homes[form.name].add(form.home(file.name))
    return homes


def _refuse_several(files: Sequence[Listed]) -> None:
    """Raise UsageError if the files belong to several checkpoints or jobs."""
    homes = _formats(files)
    for form, directories in homes.items():
        if len(directories) > 1:
            named = ", ".join(repr(directory) for directory in sorted(directories)[:3])
            raise UsageError(
                f"{OPTION}: it has checkpoints of {form} in {len(directories)} directories, such as {named}.",
                _ONE_CHECKPOINT,
            )
    if len(mixed := sorted(set(homes) - _TOGETHER)) > 1:
        raise UsageError(f"{OPTION}: files of {' and of '.join(mixed)} are there, as two jobs write.", _ONE_CHECKPOINT)
    lengths = {match[4] for file in files if (match := _SHARD.search(file.name)) and match[5] == "safetensors"}
    if len(lengths) > 1:
        counts = " and of ".join(str(int(length)) for length in sorted(lengths))
        raise UsageError(f"{OPTION}: shards of {counts} are there, as two saves write.", _ONE_CHECKPOINT)
    times = sorted(file.changed for file in files)
    gap = max((after - before for before, after in pairwise(times)), default=0.0)
    if gap > _MAXIMUM_GAP_SECONDS:
        raise UsageError(
            f"{OPTION}: its files were written in two groups, {gap / 3600:.1f} h apart, as two saves do.",
            "Remove the files of the other save from a copy of the directory, or name another checkpoint.",
        )


def _refuse_unfinished(files: Sequence[Listed]) -> None:
    """Raise UsageError if the save of the checkpoint did not end."""
    remedy = "Name a checkpoint whose save ended."
    if open_ones := [file.name for file in files if _UNFINISHED.search(file.name)]:
        raise UsageError(
            f"{OPTION}: {counted(len(open_ones), 'temporary file')} there, such as '{open_ones[0]:.80}': the save did "
            "not end.",
            remedy,
        )
    names = {file.name for file in files}
    data = [file for file in files if _FORMATS[0].files.search(file.name)]
    if data and f"{_directory(data[0].name)}/.metadata".removeprefix("/") not in names:
        raise UsageError(f"{OPTION}: .metadata is missing, which the save writes last: it did not end.", remedy)
    shards: dict[str, tuple[set[int], int]] = {}
    for file in files:
        match = _SHARD.search(file.name)
        # Numbers in shards of ranks (shard-00002-model-…) count the files over all ranks.
        if match and not match[1]:
            shards.setdefault(match[2], (set(), int(match[4])))[0].add(int(match[3]))
    for seen, count in shards.values():
        if len(seen) < count:
            raise UsageError(f"{OPTION}: {len(seen)} of {count} shards are there: the save did not end.", remedy)


def _rank_in(name: str, model_ranks: int) -> int | None:
    """Return the rank in a file name; None if the name contains no rank.

    DeepSpeed's names contain a data rank and a model rank, from which the rank is computed. ``model_ranks`` is the
    number of model ranks.
    """
    for form in _FORMATS:
        if match := form.files.search(name):
            found = match.groupdict()
            if "rank" in found:
                return int(found["rank"])
            if "data" in found:
                return int(found["data"]) * model_ranks + int(found["model"])
    if match := _OF_FIRST_DATA_RANK.search(name):
        return int(match[1] or match[2])
    if match := _SHARD.search(name):
        return int(match[1]) - 1 if match[1] else None
    if match := _OF_RANK.search(name):
        return int(match[1] or match[2])
    return None


def _ranks(files: Sequence[Listed]) -> dict[str, int]:
    """Return {file name: rank}. If a file name contains no rank, the rank is 0."""
    models = {int(m["model"]) for file in files if (m := _FORMATS[1].files.search(file.name))}
    legacy = sorted({m["model"] for file in files if (m := _FORMATS[2].files.search(file.name))})
    found = {}
    for file in files:
        if match := _FORMATS[2].files.search(file.name):
            found[file.name] = legacy.index(match["model"])
        else:
            found[file.name] = max(0, _rank_in(file.name, max(models, default=0) + 1) or 0)
    return found


def _refuse_gaps(ranks: Mapping[str, int], files: Sequence[Listed]) -> None:
    """Raise UsageError if there are too many ranks, if a rank has no data, or if a rank has too many files."""
    count = max(ranks.values()) + 1
    if count > MAXIMUM_RANKS:
        raise UsageError(
            f"{OPTION}: its files are of {format_count(count)} ranks, and a pattern has at most "
            f"{format_count(MAXIMUM_RANKS)}.",
            "Name a checkpoint of fewer ranks: a replay repeats its ranks.",
        )
    data: Counter[int] = Counter()
    for file in files:
        data[ranks[file.name]] += file.bytes
    if empty := [rank for rank in range(count) if not data[rank]]:
        raise UsageError(
            f"{OPTION}: {counted(len(empty), 'rank')} of {count} left no data, the first is rank {empty[0]}: the save "
            "did not end, or files were lost.",
            "Name a checkpoint whose save ended.",
        )
    most = max(Counter(ranks.values()).values())
    if most > MAXIMUM_FILES_OF_RANK:
        raise UsageError(
            f"{OPTION}: one rank has {format_count(most)} files, and a pattern has at most "
            f"{format_count(MAXIMUM_FILES_OF_RANK)} of a rank.",
            _ONE_CHECKPOINT,
        )


def _number_of(files: Sequence[Listed]) -> str:
    return counted(len(files), "file") if files else "the directory is empty"
