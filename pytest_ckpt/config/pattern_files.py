"""Patterns (recorded file calls of jobs): built-in patterns by name, and users' files."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.engines import EngineSpec
from pytest_ckpt.facts.file_rules import AS_RECORDED, JobPattern
from pytest_ckpt.facts.pattern import Pattern, read_pattern
from pytest_ckpt.facts.strategies import STRATEGIES
from pytest_ckpt.support import resources
from pytest_ckpt.support.errors import UsageError, nearest
from pytest_ckpt.support.units import format_seconds
from pytest_ckpt.support.user_files import read_user_bytes, user_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

OPTION = "--ckpt-engine=replay:file"
SHIPPED = (
    "torch-save",
    "dcp",
    "dcp-async",
    "dcp-threads",
    "safetensors",
    "hugging-face",
    "deepspeed-zero1",
    "deepspeed-zero3",
    "megatron",
    "nvrx-async",
    "nvrx-local",
    "torchtitan",
    "torchtitan-async",
    "tensorflow",
    "lightning",
    "trainer",
    "orbax",
)
"""Names of the built-in patterns. Each was recorded from a save by the library itself."""

# With these strategies a save contains all bytes of a checkpoint unchanged.
_REPLAYED = {s.name for s in STRATEGIES if not (s.saves_deltas or s.compresses)}
_MICROSECONDS = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedPattern:
    """A pattern with its file name, its text, and the digest of the text."""

    file: str
    sha256: str
    text: str
    pattern: Pattern


def load_pattern(word: str, option: str = OPTION) -> LoadedPattern:
    """Return the built-in pattern with the name ``word``, or the pattern in the file ``word``. Raises UsageError."""
    path = shipped_path(word) if word in SHIPPED else user_path(word, option)
    if word not in SHIPPED and "/" not in word and not word.endswith(".json"):
        raise UsageError(
            f"{option} {word}: unknown pattern{nearest(word, SHIPPED)}.",
            f"Name a file that pytest-ckpt record wrote{_known()}.",
        )
    if not _NAME.fullmatch(path.name):
        raise UsageError(
            f"{option} {word}: the name of the file is printed in the certificate.",
            "Give it a name of at most 64 letters, digits, dots, hyphens and underscores.",
        )
    try:
        data = read_user_bytes(path)
        text = data.decode("utf-8")
        found = read_pattern(text)
    except OSError as error:
        raise UsageError(
            f"{option} {word}: it cannot be read: {error.strerror}.", "Name a file that pytest-ckpt record wrote."
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{option} {word}: it is not UTF-8: {error.reason} at byte {error.start}.",
            "Name a file that pytest-ckpt record wrote, as it is.",
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{option} {word}: {error}.", "Name a file that pytest-ckpt record wrote, as it is.") from None
    return LoadedPattern(file=path.name, sha256=hashlib.sha256(data).hexdigest(), text=text, pattern=found)


def with_pattern(
    engines: Sequence[EngineSpec], word: str, strategies: Iterable[str], pace: str, deadline_seconds: float
) -> tuple[EngineSpec, ...]:
    """Return the engines; engines that replay a job contain the pattern (recorded file calls) of the job.

    ``word`` names the pattern. ``pace`` states whether a replay repeats the pauses of the job. After
    ``deadline_seconds`` without progress, a rank is reported as hung. Raises UsageError for an invalid pattern or an
    unsuitable strategy.
    """
    replaying = [engine for engine in engines if engine.replays]
    if not replaying:
        return tuple(engines)
    if not word:
        raise UsageError(
            f"--ckpt-engine {replaying[0].name} needs the pattern of a job.",
            f"Say {OPTION}=job.pattern.json, which pytest-ckpt record writes{_known()}.",
        )
    if others := set(strategies) - _REPLAYED:
        raise UsageError(
            f"--ckpt-strategy {min(others)} with --ckpt-engine {replaying[0].name}: the job's calls are the save, and "
            "the record does not show which bytes it would have left out or compressed.",
            f"Take --ckpt-strategy={' or '.join(s.name for s in STRATEGIES if s.name in _REPLAYED)}.",
        )
    return tuple(
        _with_pattern(engine, word, pace, deadline_seconds) if engine.replays else engine for engine in engines
    )


def _with_pattern(engine: EngineSpec, word: str, pace: str, deadline_seconds: float) -> EngineSpec:
    if engine.files.pattern:
        return engine
    found = load_pattern(word)
    if pace == AS_RECORDED:
        _check_pauses(found, word, deadline_seconds)
    kept = JobPattern(file=found.file, sha256=found.sha256, text=found.text, pace=pace)
    return engine._replace(files=engine.files._replace(pattern=kept))


def _check_pauses(found: LoadedPattern, word: str, deadline_seconds: float) -> None:
    """Raise UsageError if a pattern contains no pauses, or if its longest pause is ``deadline_seconds`` or longer.

    A rank in such a long pause would be reported as hung.
    """
    longest = max(step.pause_us for step in found.pattern.steps) / _MICROSECONDS
    if not longest:
        raise UsageError(
            f"--ckpt-engine=replay:timing {AS_RECORDED}: {OPTION} {word} contains no pauses.",
            "Record the job again, without --no-pauses, or leave --ckpt-engine=replay:timing out.",
        )
    if longest >= deadline_seconds:
        raise UsageError(
            f"--ckpt-engine=replay:timing {AS_RECORDED}: a thread of the job pauses for "
            f"{format_seconds(longest)}, and a rank "
            f"that is silent for --ckpt-io-timeout {format_seconds(deadline_seconds)} is taken for hung.",
            f"Say --ckpt-io-timeout above {format_seconds(longest)}, or leave --ckpt-engine=replay:timing out.",
        )


def shipped_path(name: str) -> Path:
    """Return the path of a built-in pattern."""
    return resources.directory("templates") / "job_patterns" / f"{name}.json"


def _known() -> str:
    return f", or one of {', '.join(SHIPPED)}" if SHIPPED else ""
