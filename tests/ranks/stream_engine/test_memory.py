"""The engine stream saves and loads in bounded memory, and reports the size of its buffers correctly."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.ranks.content import PAGE_BYTES
from pytest_ckpt.ranks.engines.stream import engine as stream
from pytest_ckpt.ranks.engines.stream.container_layout import container_of
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.targets.posix.checkpoint import SinkAtOffsets
from tests.support.streaming import ODD, save, shard_of, streaming

RANK = """
import json, pathlib, re, resource, sys

asked = json.load(sys.stdin)
if asked["maximum_bytes"]:
    resource.setrlimit(resource.RLIMIT_AS, (asked["maximum_bytes"],) * 2)

import numpy as np
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.content import Content
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.engines.stream.engine import StreamEngine
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.targets import AreaRef, CheckpointRef
from pytest_ckpt.targets.posix.store import open_store
from pytest_ckpt.sizing.models import RankLayout

shard, options = from_plain(RankLayout, asked["shard"]), from_plain(EngineOptions, asked["options"])
try:
    np.empty(shard.bytes, np.uint8)
    state_fits = True
except MemoryError:
    state_fits = False
clock = Clock(activity=Activity())
store = open_store(AreaRef(scheme="", location=asked["directory"], run_id="", opener=""))
ref = CheckpointRef(subject="s", number=1)
store.prepare("s")
engine = StreamEngine(shard, Content(7), Activity(), options)
engine.fill(1)
draft = store.begin(ref, clock)
engine.save(draft, clock)
store.commit(ref, draft.seal()[0], clock)
committed = store.open(ref, clock)
loaded, checks = 0, []
engine.expect(1)
for step in range(engine.load_steps()):
    loaded += engine.load(committed, step, clock)
    checks.append(engine.verify(1))
engine.release()
(peak_kib,) = re.findall(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())
print(json.dumps({
    "state_fits": state_fits,
    "loaded": loaded,
    "checked": sum(c.bytes_checked for c in checks),
    "faults": sum(c.fault_count for c in checks),
    "peak_bytes": int(peak_kib) * 1024,
    "modules": sorted(m for m in ("torch", "mpi4py", "jinja2", "pytest") if m in sys.modules),
}))
"""


def as_a_rank(shard, directory, *, maximum_bytes=0, front=()):
    """Save, load and compare in a separate process, as a rank does; return the report of the process.

    ``maximum_bytes`` limits the memory of the process. ``front`` is a command line that is put before the command of
    the process, such as strace with its options.
    """
    asked = {
        "shard": to_plain(shard),
        "options": to_plain(EngineOptions()),
        "directory": str(directory),
        "maximum_bytes": maximum_bytes,
    }
    done = subprocess.run(
        [*front, sys.executable, "-c", RANK],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(stream.__file__).parents[3],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_state_that_does_not_fit_into_memory_is_saved_and_loaded(tmp_path):
    """A process that can reserve only 400 MiB of memory saves and loads a state of 512 MiB."""
    shard = shard_of(0, [("float32", 100 << 20), ("float16", 1)], [("float16", (56 << 20) + 1)])
    found = as_a_rank(shard, tmp_path, maximum_bytes=400 << 20)
    assert not found["state_fits"]
    assert (found["loaded"], found["checked"], found["faults"]) == (shard.bytes, shard.bytes, 0)
    assert found["peak_bytes"] < 100e6


def test_the_memory_of_a_rank_does_not_grow_with_its_state(tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    small.mkdir()
    large.mkdir()
    few = as_a_rank(shard_of(0, [("float32", 16 << 20)]), small)["peak_bytes"]
    many = as_a_rank(shard_of(0, [("float32", 64 << 20)]), large)["peak_bytes"]
    assert many - few < 4 << 20


def test_a_rank_that_has_little_takes_no_more_memory_than_that(tmp_path):
    """A rank that saves few bytes has small buffers, because many ranks may share a host."""
    buffers = streaming(shard_of(0, [("float32", 1 << 10)], [("float32", 1)]), request=4 << 20).facts()["buffers"]
    assert buffers.startswith("2.1 MB a rank, ")
    whole = streaming(shard_of(0, [("float32", 16 << 20)]), request=4 << 20).facts()["buffers"]
    assert whole.startswith("33.6 MB a rank, ")


def test_a_rank_imports_neither_torch_nor_what_only_the_controller_needs(tmp_path):
    assert as_a_rank(shard_of(0, [("float32", 1)]), tmp_path)["modules"] == []


def test_requests_that_signals_interrupt_are_made_again(tmp_path):
    """Reads and writes that end with EINTR are repeated. strace injects EINTR into every second call."""
    strace = shutil.which("strace")
    front = (strace, "-f", "-q", "-o", str(tmp_path / "trace"), "-e", "trace=pwrite64,preadv,preadv2")
    if not strace or subprocess.run([*front, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no strace that may trace")
    inject = [f"inject={call}:error=EINTR:when=2+2" for call in ("pwrite64", "preadv", "preadv2")]
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    shard = shard_of(0, [("float32", 5 << 20), ("float16", 1)])
    found = as_a_rank(shard, directory, front=(*front, *(word for i in inject for word in ("-e", i))))
    assert (found["loaded"], found["checked"], found["faults"]) == (shard.bytes, shard.bytes, 0)
    trace = (tmp_path / "trace").read_text()
    interrupted = [line for line in trace.splitlines() if "EINTR" in line]
    # If another thread's call is logged in between, the result has its own line: "<... pwrite64 resumed>".
    assert any("pwrite64" in line for line in interrupted)
    assert any("preadv" in line for line in interrupted)


def test_the_reported_buffer_sizes_are_correct():
    facts = streaming(ODD, request=4 << 20).facts()
    assert facts["requests"] == "4 MiB, 2 in flight for each rank"
    size, _, share = facts["buffers"].partition(" MB a rank, ")
    # Three files with one request each; the largest is smaller than a MiB.
    assert size == "3.15"
    assert share in {f"{n}% in huge pages" for n in range(101)}


def test_a_file_has_no_byte_more_than_its_container(tmp_path):
    """A file is exactly as large as its content in torch's format. The padding of the last request is cut off."""
    save(streaming(ODD), tmp_path)
    sizes = {file.name: container_of(file.tensors).bytes for file in ODD.files}
    assert {p.name: p.stat().st_size for p in tmp_path.iterdir()} == sizes
    assert all(size % PAGE_BYTES for size in sizes.values())


def test_a_save_uses_all_buffers_in_turn(tmp_path):
    """A save uses its buffers in turn.

    On a virtual machine whose host copies the written data, the buffer of the latest write takes the longest to fill.
    """
    engine = streaming(shard_of(0, [("float32", 4 << 20)]), request=1 << 20, depth=1)
    real, places = SinkAtOffsets.write_at, []

    def write_at(sink, offset, data):
        places.append(data.ctypes.data)
        real(sink, offset, data)

    with mock.patch.object(SinkAtOffsets, "write_at", write_at):
        save(engine, tmp_path)
    assert len(places) == len(set(places)) == 17
