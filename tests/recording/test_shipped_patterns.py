"""The built-in patterns match the calls of the installed libraries, and a replay makes the same calls."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from pytest_ckpt.config.pattern_files import SHIPPED, load_pattern
from pytest_ckpt.facts.pattern import OPENS, Pattern, read_pattern
from pytest_ckpt.sizing.files import replayed_files
from pytest_ckpt.sizing.models import layout
from tests.support.library_jobs import JOBS, is_installed, record_job
from tests.support.synthetic_job_patterns import RENAMED, TWO_RANKS
from tests.support.traced_jobs import need_strace, traced_save

WHOLE = layout("llama3-8b", mode="open", processes=1, scale=1 / 10_000)
FAST = "safetensors"
# These have pools of threads, or ranks that do not wait for each other, so the order of the last calls varies.
OF_CHANCE = {"orbax", "deepspeed-zero1", "deepspeed-zero3"}


def shape(pattern: Pattern) -> list[object]:
    """Return the facts that are equal in all recordings of a job: files, steps, and approximate sizes.

    Some files contain their own path, so their sizes vary. Sizes are therefore in units of 64 KiB, and sizes of small
    files are 0.
    """
    files: list[object] = [
        (f.rank, f.kept, 0 if pattern.is_small(n) else f.bytes >> 16) for n, f in enumerate(pattern.files)
    ]
    steps = [
        (s.phase, s.rank, s.lane, s.call, s.file, s.count)
        + ((0, 0) if s.file >= 0 and pattern.is_small(s.file) else (s.offset >> 16, s.bytes >> 16))
        for s in pattern.steps
    ]
    return [*files, *steps, pattern.ranks]


def by_file(pattern: Pattern) -> list[object]:
    """Return, for each file or directory, the calls that change it or make it durable, in order.

    Ranks, threads and reads are omitted, because they vary by chance.
    """
    made = defaultdict(list)
    for s in pattern.steps:
        if s.call in {"open", "open to read", "read", "close"}:
            continue
        is_data = s.file >= 0 and not pattern.is_small(s.file)
        made[s.file].append((s.call, s.count, (s.offset, s.bytes) if is_data else None))
    return sorted(map(repr, made.values()))


def marked(names: tuple[str, ...]) -> list[object]:
    return [pytest.param(name, marks=() if name == FAST else pytest.mark.thorough) for name in names]


def test_every_shipped_pattern_has_a_job_and_its_version() -> None:
    assert set(SHIPPED) == set(JOBS)
    for name in SHIPPED:
        assert load_pattern(name).pattern.label.split()[0] == JOBS[name][0]


@pytest.mark.parametrize("name", marked(SHIPPED))
def test_a_library_makes_the_calls_of_its_shipped_pattern(name: str, tmp_path: Path) -> None:
    need_strace()
    if not is_installed(JOBS[name][0]):
        pytest.skip(f"{JOBS[name][0]} is not installed")
    recorded = read_pattern(record_job(name, tmp_path).read_text())
    alike = by_file if name in OF_CHANCE else shape
    assert alike(recorded) == alike(load_pattern(name).pattern)


MADE_UP = {"made up": TWO_RANKS, "renamed three times": RENAMED}


@pytest.mark.parametrize("name", [*MADE_UP, *SHIPPED])
def test_a_replay_makes_the_same_calls(name: str, tmp_path: Path) -> None:
    need_strace()
    text = MADE_UP.get(name) or load_pattern(name).text
    found = traced_save(tmp_path, "replay", WHOLE, pattern=text)
    made = defaultdict(list)
    for act in found.acts:
        made[act.file].append((act.call, act.offset, act.bytes))
    by_name = {Path(path).name: made[number] for path, number in found.numbers.items()}
    pattern = read_pattern(text)
    for file in replayed_files(text, 0, WHOLE.rank(0).bytes):
        if not file.kept:
            continue
        wanted: list[tuple[str, int, int]] = []
        for step in (s for s in pattern.steps if s.file == file.number):
            for n in range(step.count):
                start, stop = (file.at(step.offset + k * step.bytes) for k in (n, n + 1))
                wanted.append((step.call, start, stop - start))
        # The report lists the additional calls at the end separately.
        assert by_name[file.name] == [*wanted, ("open to read", 0, 0), ("fsync", 0, 0), ("close", 0, 0)]
    assert sum(act.call in OPENS for act in found.acts) >= len(by_name)
