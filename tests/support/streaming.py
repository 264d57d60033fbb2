"""Common code for tests of the engine stream: layouts, and a save and a load with one rank.

The module can also create the engine torch with the same content.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
import weakref
from pathlib import Path
from unittest import mock

import pytest

from pytest_ckpt.facts.event_line import MARK
from pytest_ckpt.ranks.content import Content
from pytest_ckpt.ranks.engines.protocol import expect
from pytest_ckpt.ranks.engines.stream import engine as stream
from pytest_ckpt.ranks.engines.stream.container_layout import container_of
from pytest_ckpt.ranks.engines.stream.engine import StreamEngine
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.sizing.models import RankLayout, ShardFile, Tensor
from pytest_ckpt.targets.posix.direct_io import DirectSupport
from tests.support.posix_files import clock_of, committed_in, draft_in

# The detected support for direct requests holds for all operations of an engine in a test.
WAYS: weakref.WeakKeyDictionary[object, DirectSupport] = weakref.WeakKeyDictionary()
CONTENT = Content(7)
# Small requests, so that small files have many.
REQUEST = 64 << 10


def by_torch(shard):
    """Return the engine torch of a shard.

    The import of torch is inside the function. The import takes seconds, and every worker process imports this module.
    """
    from pytest_ckpt.ranks.engines.torch import TorchEngine  # noqa: PLC0415

    return TorchEngine(shard, CONTENT, Activity())


def shard_of(rank, *files):
    """Return the shard of a rank with these files. A file is a list of (dtype, number of elements) of its tensors."""
    made = []
    for number, shapes in enumerate(files):
        tensors = (Tensor(name=f"tensor/{n}", dtype=dtype, elements=count) for n, (dtype, count) in enumerate(shapes))
        made.append(ShardFile(name=f"file-{number}.pt", tensors=tuple(tensors)))
    return RankLayout(rank=rank, files=tuple(made))


# Tensors of one element, of odd sizes, of sizes just above and below a block, and one of several requests.
ODD = shard_of(
    2,
    [("float16", 1), ("float32", 1), ("float16", 2_047), ("float32", 200_001), ("float16", 2_049)],
    [("float32", 1)],
    [("float16", 77_777), ("float32", 16_384), ("float32", 3)],
)
MIDDLE, MIDDLE_TENSOR, MIDDLE_NUMBER = ODD.files[0], ODD.files[0].tensors[3], 3


def streaming(shard, *, alignment=4096, request=REQUEST, depth=2, activity=None):
    options = EngineOptions(request_bytes=request, depth=depth)
    with mock.patch.object(stream, "container_of", functools.partial(container_of, alignment_bytes=alignment)):
        return StreamEngine(shard, CONTENT, activity or Activity(), options)


def save(engine, directory, checkpoint=1):
    """Save into a directory; return the durability proof and the clock."""
    engine.fill(checkpoint)
    clock = clock_of()
    draft = draft_in(directory, clock, WAYS.setdefault(engine, DirectSupport()))
    engine.save(draft, clock)
    return draft.seal()[1], clock


def load(engine, directory, checkpoint=1):
    """Load in steps and compare after each step; return loaded bytes, compared bytes, and all faults."""
    clock = clock_of()
    committed = committed_in(directory, clock, WAYS.setdefault(engine, DirectSupport()))
    loaded, checks = 0, []
    expect(engine, checkpoint)
    for step in range(engine.load_steps()):
        loaded += engine.load(committed, step, clock)
        checks.append(engine.verify(checkpoint))
    engine.release()
    faults = [fault for check in checks for fault in check.faults]
    assert sum(check.fault_count for check in checks) >= len(faults)
    return loaded, sum(check.bytes_checked for check in checks), faults


def everything(shard):
    """Return the expected result of `load` if all bytes are loaded without a fault."""
    return shard.bytes, shard.bytes, []


def bytes_of(directory):
    return {file.name: file.read_bytes() for file in directory.iterdir()}


def open_files():
    """Return (descriptor, target) of each open file of this process."""
    return {(p.name, str(p.readlink())) for p in Path("/proc/self/fd").iterdir() if p.is_symlink()}


def failure_of(act, capfd):
    """Call ``act``, which must raise OSError; return the error report that a rank sends to the controller."""
    activity = Activity()
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the caller checks which error it is
        act(activity)
    activity.failed(caught.value)
    (line,) = (line for line in capfd.readouterr().err.splitlines() if line.startswith(MARK))
    return json.loads(line.removeprefix(MARK))


@contextlib.contextmanager
def transfers(write=None, read=None):
    """Replace os.pwrite by ``write`` and os.preadv by ``read`` during the block; None means no replacement.

    A replacement receives the number of the call, the real function, and the arguments of the call. Yields {function:
    number of calls so far}.
    """
    counts = {"pwrite": 0, "preadv": 0}
    lock = threading.Lock()

    def front(name, act):
        real = getattr(os, name)

        def call(*arguments):
            with lock:
                counts[name] += 1
                number = counts[name]
            return act(number, real, *arguments)

        return mock.patch.object(os, name, call) if act else contextlib.nullcontext()

    with front("pwrite", write), front("preadv", read):
        yield counts


def save_with(activity, directory):
    engine, clock = streaming(ODD, depth=4), clock_of(activity)
    engine.fill(1)
    try:
        engine.save(draft_in(directory, clock), clock)
    finally:
        engine.release()
