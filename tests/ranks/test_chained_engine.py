"""Incremental saves of one rank: a full save and deltas (changed pages) restore every byte, and damage is found."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.ranks.content import Content
from pytest_ckpt.ranks.engines.chained import Chain, ChainedEngine
from pytest_ckpt.ranks.engines.protocol import Comparison
from pytest_ckpt.ranks.engines.stream.engine import StreamEngine
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.sizing.deltas import PAGE_BYTES, DeltaRule, index_bytes
from pytest_ckpt.sizing.models import layout
from tests.support.posix_files import clock_of, committed_in, draft_in

CONTENT = Content(7)
SHARD = layout("llama3-8b", mode="full", scale=1 / 1000).rank(3)
RULE = DeltaRule(full_every=4, changed=0.1, operations=4)
NUMBERS = (1, 2, 3)
DELTA = "3.delta"


def chained() -> ChainedEngine:
    options = EngineOptions(request_bytes=256 << 10)
    return ChainedEngine(StreamEngine(SHARD, CONTENT, Activity(), options), SHARD, CONTENT, RULE, options)


@pytest.fixture
def directories(tmp_path: Path) -> dict[int, Path]:
    """Return {checkpoint number: directory} of a full save and two deltas."""
    engine, made = chained(), {}
    for number in NUMBERS:
        made[number] = tmp_path / str(number)
        made[number].mkdir()
        draft = draft_in(made[number])
        engine.fill(number)
        engine.save(draft, clock_of())
        draft.seal()
    engine.release()
    return made


def restored(directories: dict[int, Path], number: int = NUMBERS[-1]) -> tuple[int, list[Comparison]]:
    """Load checkpoint ``number`` from its full save and deltas; return (loaded bytes, results of the comparisons)."""
    engine = chained()
    links = tuple(committed_in(directories[n]) for n in RULE.chain(number))
    checks, loaded = [], 0
    engine.expect(number)
    for step in range(engine.load_steps()):
        loaded += engine.load(Chain(links, RULE.chain(number)), step, clock_of())
        checks.append(engine.verify(number))
    engine.release()
    return loaded, checks


def faults(directories: dict[int, Path]) -> list[tuple[str, str, bool]]:
    _, checks = restored(directories)
    found = [fault for check in checks for fault in check.faults]
    assert sum(check.fault_count for check in checks) >= len(found)
    return [(fault.kind, fault.file, bool(fault.tensor)) for fault in found]


def test_a_delta_is_one_file_of_the_size_that_the_rule_gives(directories: dict[int, Path]) -> None:
    for number in (2, 3):
        (file,) = directories[number].iterdir()
        assert file.name == DELTA
        assert file.stat().st_size == RULE.file_bytes(SHARD, number)
    assert {file.name for file in directories[1].iterdir()} == {file.name for file in SHARD.files}


@pytest.mark.parametrize("number", NUMBERS)
def test_every_byte_of_the_chain_is_loaded_and_compared(directories: dict[int, Path], number: int) -> None:
    loaded, checks = restored(directories, number)
    wanted = SHARD.bytes + sum(RULE.delta_bytes(SHARD, n) for n in RULE.chain(number)[1:])
    assert loaded == sum(check.bytes_checked for check in checks) == wanted
    assert sum(check.fault_count for check in checks) == 0


def flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)


def first_page(number: int) -> int:
    return index_bytes(len(list(RULE.runs(SHARD, number))))


@pytest.mark.parametrize(
    ("damage", "kind", "in_tensor"),
    [
        (lambda file: flip(file, first_page(2) + 100), "flipped", True),
        (lambda file: flip(file, 40), "unreadable", False),
        (lambda file: file.write_bytes(file.read_bytes()[:-PAGE_BYTES]), "short", False),
        (lambda file: file.write_bytes(file.read_bytes() + b"more"), "foreign", False),
        (lambda file: file.write_bytes(bytes(file.stat().st_size)), "unreadable", False),
    ],
    ids=["a page", "the index", "short", "longer", "zeros"],
)
def test_faults_in_a_delta_are_found(
    directories: dict[int, Path], damage: Callable[[Path], object], kind: str, in_tensor: bool
) -> None:
    damage(directories[2] / DELTA)
    assert faults(directories)[0] == (kind, DELTA, in_tensor)


def test_a_delta_that_is_short_until_its_size_is_requested_is_reported_as_short(
    directories: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    known, fstat, preadv, asked = PAGE_BYTES, os.fstat, os.preadv, set()

    def path_of(descriptor: int) -> str:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())

    def ask(descriptor: int) -> os.stat_result:
        asked.add(path_of(descriptor))
        return fstat(descriptor)

    def cut(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        done, path = preadv(descriptor, buffers, offset), path_of(descriptor)
        return done if path in asked or not path.endswith(DELTA) else min(done, max(known - offset, 0))

    monkeypatch.setattr(os, "fstat", ask)
    monkeypatch.setattr(os, "preadv", cut)
    assert faults(directories)[0] == ("short", DELTA, False)


def test_an_older_delta_in_the_place_of_a_newer_one_is_found(directories: dict[int, Path]) -> None:
    (directories[3] / DELTA).write_bytes((directories[2] / DELTA).read_bytes())
    found = faults(directories)
    assert found, "an older delta was taken for a newer one"
    assert {file for _, file, _ in found} == {DELTA}


def test_a_delta_that_is_gone_ends_the_load(directories: dict[int, Path]) -> None:
    (directories[2] / DELTA).unlink()
    with pytest.raises(FileNotFoundError) as error:
        restored(directories)
    assert DELTA in str(error.value)


def test_a_full_save_alone_is_one_of_the_engine(directories: dict[int, Path]) -> None:
    engine = chained()
    committed = committed_in(directories[1])
    checked = 0
    engine.expect(1)
    for step in range(engine.load_steps()):
        engine.load(committed, step, clock_of())
        checked += engine.verify(1).bytes_checked
    engine.release()
    assert checked == SHARD.bytes
