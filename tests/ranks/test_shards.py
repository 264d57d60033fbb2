"""One rank loads files of several ranks, complete or in parts, with each engine. Every byte is compared."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ckpt.facts.engines import built_in
from pytest_ckpt.ranks.content import Content
from pytest_ckpt.ranks.engines.factory import ShardsInTurn, engine_maker
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.sizing.files import shard_files
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.sizing.reading import joined, split, storm
from tests.support.posix_files import clock_of, committed_in, draft_in

# Requests are smaller than most files, so a file needs several.
OPTIONS = EngineOptions(request_bytes=64 << 10)
REPLICAS = layout("llama3-405b", mode="full", scale=1e-6)
ONE_COPY = layout("llama3-8b", mode="open", processes=3, scale=1e-4)


@pytest.fixture(params=["torch", "stream", "safetensors"])
def engine(request):
    return request.param


def content():
    return Content(7)


def engine_for(engine, shard, **part):
    make = engine_maker(built_in(engine).make)
    return make(shard=shard, content=content(), group=None, activity=Activity(), options=replace(OPTIONS, **part))


def save(engine, directory, of, ranks):
    # Rank 0 writes the index, which every rank reads.
    for rank in {0, *ranks} if engine == "safetensors" else ranks:
        saving = engine_for(engine, of.rank(rank))
        saving.fill(5)
        saving.save(draft_in(directory), clock_of())


def load(engine, directory, pieces, steps_of_others=0):
    """Load pieces twice, as a rank does; return (number of loaded bytes, number of compared bytes, faults).

    ``steps_of_others`` is the number of load steps that other ranks have in addition to the steps of this rank.
    """
    loader = ShardsInTurn([functools.partial(engine_for, engine, p.shard, part=p.part, parts=p.parts) for p in pieces])
    committed = committed_in(directory)
    checks, loaded = [], 0
    for _again in range(2):
        loader.expect(5)
        for step in range(loader.load_steps() + steps_of_others):
            loaded += loader.load(committed, step, clock_of())
            checks.append(loader.verify(5))
    loader.release()
    return loaded, sum(c.bytes_checked for c in checks), [fault for c in checks for fault in c.faults]


def names(engine, shard):
    return [file.name for file in shard_files(shard, built_in(engine).files)]


def damage(engine, file: Path):
    """Flip all bits of the byte at three quarters of a file. In a torch file, `place_in` selects the byte."""
    flip(file, file.stat().st_size * 3 // 4 if engine == "safetensors" else place_in(file))


def place_in(file: Path):
    """Return the offset of the last tensor byte in the first three quarters of a torch file."""
    from torch._C import PyTorchFileReader  # noqa: PLC0415 - every worker collects this module, and torch takes seconds

    reader = PyTorchFileReader(str(file))
    records = [n for n in reader.get_all_records() if n.startswith("data/")]
    spans = [(reader.get_record_offset(n), reader.get_record_size(n)) for n in records]
    quarter = file.stat().st_size * 3 // 4
    start, size = max(span for span in spans if span[0] <= quarter)
    return min(quarter, start + size - 1)


def flip(file: Path, place):
    with file.open("r+b") as out:
        out.seek(place)
        (byte,) = out.read(1)
        out.seek(place)
        out.write(bytes([byte ^ 255]))


def test_a_replica_reads_the_model_of_the_first_and_its_own_optimizer(engine, tmp_path):
    save(engine, tmp_path, REPLICAS, (1, 257))
    pieces = storm(REPLICAS).of(257)
    size = 2 * sum(p.shard.bytes for p in pieces)
    assert load(engine, tmp_path, pieces) == (size, size, [])
    damaged = {names(engine, REPLICAS.rank(1))[0], names(engine, REPLICAS.rank(257))[-1]}
    for name in damaged:
        damage(engine, tmp_path / name)
    _, _, faults = load(engine, tmp_path, pieces)
    assert {f.file for f in faults} == damaged


@pytest.mark.parametrize("steps_of_others", [0, 3])
def test_two_shards_are_loaded_in_turn_and_those_who_have_more_are_waited_for(engine, tmp_path, steps_of_others):
    save(engine, tmp_path, ONE_COPY, (0, 1))
    size = 2 * (ONE_COPY.rank(0).bytes + ONE_COPY.rank(1).bytes)
    assert load(engine, tmp_path, joined(ONE_COPY).of(0), steps_of_others) == (size, size, [])


def test_a_reader_without_data_waits(engine, tmp_path):
    assert load(engine, tmp_path, (), 4) == (0, 0, [])


def test_two_readers_of_a_file_read_all_of_it_and_the_one_whose_half_is_damaged_finds_it(engine, tmp_path):
    save(engine, tmp_path, ONE_COPY, range(3))
    halves = [load(engine, tmp_path, split(ONE_COPY).of(rank)) for rank in (0, 1)]
    assert sum(loaded for loaded, _, _ in halves) == sum(checked for _, checked, _ in halves) == 2 * ONE_COPY.bytes
    assert [faults for _, _, faults in halves] == [[], []]
    # Both readers read almost equally much; a tensor of one element cannot be halved.
    assert min(loaded for loaded, _, _ in halves) > 0.9 * ONE_COPY.bytes
    file = tmp_path / names(engine, ONE_COPY.rank(1))[-1]
    damage(engine, file)
    found = [load(engine, tmp_path, split(ONE_COPY).of(rank))[2] for rank in (0, 1)]
    assert {f.file for faults in found for f in faults} == {file.name}
    if engine == "stream":
        assert [bool(faults) for faults in found] == [False, True]


@pytest.mark.parametrize("kept", [0.9, 0.4, 0.0])
def test_a_file_that_was_cut_off_is_found_by_one_of_its_readers(engine, tmp_path, kept):
    save(engine, tmp_path, ONE_COPY, range(3))
    file = tmp_path / names(engine, ONE_COPY.rank(1))[-1]
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * kept)])
    found = [load(engine, tmp_path, split(ONE_COPY).of(rank)) for rank in (0, 1)]
    assert any(faults for _, _, faults in found)
    assert sum(checked for _, checked, _ in found) < 2 * ONE_COPY.bytes
