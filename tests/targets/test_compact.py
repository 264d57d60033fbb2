"""The compact target behaves like other file systems, and stores checkpoints in little memory."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pytest_ckpt.ranks.content import Content, TensorKey
from tests.support.machine import need_fuse
from tests.support.targets.misbehaving import Target, misbehaving

PAGE_BYTES = 4096
CONTENT = Content(7)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    need_fuse()
    with misbehaving(tmp_path_factory.mktemp("compact"), compact=True) as mounted:
        yield mounted


def checkpoint(number: int, pages: int) -> bytes:
    return CONTENT.expected(TensorKey(checkpoint=number, rank=1, tensor=3), 0, pages * PAGE_BYTES).tobytes()


def test_a_checkpoint_needs_no_space_of_the_backing_directory_and_comes_back(target: Target) -> None:
    path = target.path / "checkpoint"
    # Two checkpoints, so that blocks are used again with other content.
    for number in (1, 2):
        path.write_bytes(checkpoint(number, 4096))
        assert path.read_bytes() == checkpoint(number, 4096)
    seen = os.stat(target.backing / "checkpoint")
    assert (seen.st_size, seen.st_blocks) == (4096 * PAGE_BYTES, 0)
    path.unlink()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_written_where_is_read_again(target: Target, seed: int) -> None:
    chance = random.Random(seed)
    path, model = target.path / "mixed", bytearray()
    content = checkpoint(seed + 1, 1024)
    with path.open("w+b", buffering=0) as file:
        for _ in range(150):
            size = chance.choice([1, 100, PAGE_BYTES, 3 * PAGE_BYTES, 300 * PAGE_BYTES])
            offset = chance.choice([chance.randrange(1 << 22), chance.randrange(1 << 10) * PAGE_BYTES])
            kind = chance.randrange(5)
            if kind == 0:
                os.ftruncate(file.fileno(), offset)
                model = model[:offset] + bytes(max(0, offset - len(model)))
                continue
            start = min(offset, len(content) - size)
            data = content[start : start + size] if kind < 4 else chance.randbytes(size)
            os.pwrite(file.fileno(), data, offset)
            model += bytes(max(0, offset + size - len(model)))
            model[offset : offset + size] = data
        assert file.read() == model
        path.unlink()
        # A file without a name exists while it is open.
        file.seek(0)
        assert file.read() == model


def test_a_changed_bit_is_kept(target: Target) -> None:
    data = np.frombuffer(checkpoint(5, 256), dtype=np.uint8).copy()
    data[100 * PAGE_BYTES + 17] ^= 4
    path = target.path / "flipped"
    path.write_bytes(data.tobytes())
    assert path.read_bytes() == data.tobytes()
    path.unlink()


def test_a_name_that_is_replaced_shows_the_new_file(target: Target) -> None:
    old, new = target.path / "old", target.path / "new"
    old.write_bytes(checkpoint(8, 64))
    new.write_bytes(checkpoint(9, 32))
    with old.open("rb", buffering=0) as file:
        new.rename(old)
        assert old.read_bytes() == checkpoint(9, 32)
        assert file.read() == checkpoint(8, 64)
    assert path_names(target) == ["old"]
    old.unlink()


def path_names(target: Target) -> list[str]:
    return sorted(path.name for path in Path(target.path).iterdir())
