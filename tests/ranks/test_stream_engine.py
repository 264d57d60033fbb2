"""The engine stream: the torch engine's files and findings, in bounded memory, whatever the target does to requests."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.events import MARK
from pytest_ckpt.facts.subject import Subject
from pytest_ckpt.ranks.content.generator import PAGE_BYTES, Content, TensorKey
from pytest_ckpt.ranks.engines.protocol import Comparison
from pytest_ckpt.ranks.engines.stream import engine as stream
from pytest_ckpt.ranks.engines.stream.container_layout import container_of
from pytest_ckpt.ranks.engines.stream.engine import StreamEngine
from pytest_ckpt.ranks.engines.torch.engine import TorchEngine
from pytest_ckpt.ranks.operations import Operations
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.ranks.strategies.sync import SyncStrategy
from pytest_ckpt.sizing.models import MODELS, RankLayout, ShardFile, Tensor, layout
from pytest_ckpt.targets.posix import sink
from pytest_ckpt.targets.posix.direct_io import DirectFile, DirectWay
from pytest_ckpt.targets.posix.names import checkpoint_name, partial_name
from pytest_ckpt.targets.posix.store import PosixStore
from tests.support.posix_files import clock_of, committed_in, draft_in

# What was found out about direct requests holds for all that an engine does in a test.
WAYS: weakref.WeakKeyDictionary[object, DirectWay] = weakref.WeakKeyDictionary()
CONTENT = Content(7)
# Small requests, so that small files have many.
REQUEST = 64 << 10
SMALL_SCALE = 1 / 10_000
LAYOUTS = [
    layout(m.name, mode=mode, processes=3 * m.model_parallel if mode == "open" else None, scale=SMALL_SCALE)
    for m in MODELS.values()
    for mode in ("full", "subset", "open")
]


def shard_of(rank, *files):
    """Return what a rank writes: files of (dtype, elements) each."""
    made = []
    for number, shapes in enumerate(files):
        tensors = (Tensor(name=f"tensor/{n}", dtype=dtype, elements=count) for n, (dtype, count) in enumerate(shapes))
        made.append(ShardFile(name=f"file-{number}.pt", tensors=tuple(tensors)))
    return RankLayout(rank=rank, files=tuple(made))


# Tensors of one element, odd sizes, sizes beside a block, and one of several requests.
ODD = shard_of(
    2,
    [("float16", 1), ("float32", 1), ("float16", 2_047), ("float32", 200_001), ("float16", 2_049)],
    [("float32", 1)],
    [("float16", 77_777), ("float32", 16_384), ("float32", 3)],
)
MIDDLE, MIDDLE_TENSOR, MIDDLE_NUMBER = ODD.files[0], ODD.files[0].tensors[3], 3


# torch.save puts tensors at multiples of so many bytes, where nobody asks for blocks.
OF_TORCH = 64


def laid_out(shard):
    return tuple(container_of(file.tensors) for file in shard.files)


def streaming(shard, *, alignment=4096, request=REQUEST, depth=2, activity=None):
    options = EngineOptions(request_bytes=request, depth=depth)
    with mock.patch.object(stream, "container_of", functools.partial(container_of, alignment_bytes=alignment)):
        return StreamEngine(shard, CONTENT, activity or Activity(), options)


def save(engine, folder, checkpoint=1):
    """Save into a folder; return what the draft counted, and the clock."""
    engine.fill(checkpoint)
    clock = clock_of()
    draft = draft_in(folder, clock, WAYS.setdefault(engine, DirectWay()))
    engine.save(draft, clock)
    return draft.seal()[1], clock


def load(engine, folder, checkpoint=1):
    """Load in steps and compare after each; return loaded bytes, compared bytes, and all faults."""
    clock = clock_of()
    committed = committed_in(folder, clock, WAYS.setdefault(engine, DirectWay()))
    loaded, checks = 0, []
    for step in range(engine.load_steps()):
        loaded += engine.load(committed, step, clock)
        checks.append(engine.verify(checkpoint))
    engine.release()
    faults = [fault for check in checks for fault in check.faults]
    assert sum(check.fault_count for check in checks) >= len(faults)
    return loaded, sum(check.bytes_checked for check in checks), faults


def everything(shard):
    """Return what a load gives that brings all that was saved."""
    return shard.bytes, shard.bytes, []


def bytes_of(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def open_files():
    """Return what this process has open, without what it takes to look."""
    return {(p.name, str(p.readlink())) for p in Path("/proc/self/fd").iterdir() if p.is_symlink()}


def flip(folder, tensor_number, position, bit=0, shard=ODD):
    """Flip one bit of a tensor of the first file."""
    file = folder / shard.files[0].name
    record = container_of(shard.files[0].tensors).records[tensor_number]
    change(file, record.offset + position, lambda byte: byte ^ 1 << bit)


def change(file, offset, how):
    with file.open("r+b") as both:
        both.seek(offset)
        (old,) = both.read(1)
        both.seek(offset)
        both.write(bytes([how(old)]))


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """The files of one checkpoint as they have to be."""
    folder = tmp_path_factory.mktemp("right")
    save(streaming(ODD), folder)
    assert load(TorchEngine(ODD, CONTENT, Activity()), folder) == everything(ODD)
    return bytes_of(folder)


@pytest.fixture
def saved(tmp_path, right):
    """A checkpoint to damage."""
    for name, data in right.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


@pytest.fixture
def direct(tmp_path):
    """A folder whose file system takes direct requests."""
    try:
        os.close(os.open(tmp_path / "probe", os.O_WRONLY | os.O_CREAT | os.O_DIRECT))
    except OSError as error:
        pytest.skip(f"the temporary folder takes no direct requests: {error.strerror}")
    (tmp_path / "probe").unlink()
    return tmp_path


# --- the engines agree -----------------------------------------------------------------------------------------------


def different_ranks(shards):
    """Return the first, a middle and the last of the ranks that write different kinds of files."""
    ranks = list({tuple(f.tensors for f in r.files): r for r in shards.ranks()}.values())
    return {r.rank: r for r in (ranks[0], ranks[len(ranks) // 2], ranks[-1])}.values()


@pytest.mark.parametrize("shards", LAYOUTS, ids=lambda shards: shards.subject)
def test_what_one_engine_saved_the_other_loads(tmp_path, shards):
    for rank in different_ranks(shards):
        ours, theirs = tmp_path / f"stream-{rank.rank}", tmp_path / f"torch-{rank.rank}"
        ours.mkdir()
        theirs.mkdir()
        save(streaming(rank), ours, checkpoint=2)
        save(TorchEngine(rank, CONTENT, Activity()), theirs, checkpoint=2)
        assert {p.name for p in ours.iterdir()} == {p.name for p in theirs.iterdir()} == {f.name for f in rank.files}
        # Tensors stand at other offsets than in its own files: an engine that saved some would miss their size.
        assert load(TorchEngine(rank, CONTENT, Activity()), ours, checkpoint=2) == everything(rank)
        assert load(streaming(rank), ours, checkpoint=2) == everything(rank)
        assert load(streaming(rank, alignment=OF_TORCH), theirs, checkpoint=2) == everything(rank)


def test_files_of_many_windows_are_those_of_the_torch_engine(tmp_path):
    rank = layout("llama3-8b", mode="open", processes=2, scale=1 / 1000).rank(1)
    engine = streaming(rank, request=4 << 20)
    assert engine.load_steps() == 2
    save(engine, tmp_path)
    assert load(engine, tmp_path) == everything(rank)
    torch_engine = TorchEngine(rank, CONTENT, Activity())
    assert load(torch_engine, tmp_path) == everything(rank)
    for file in tmp_path.iterdir():
        file.unlink()
    save(torch_engine, tmp_path, checkpoint=2)
    engine = streaming(rank, alignment=OF_TORCH, request=4 << 20)
    assert load(engine, tmp_path, checkpoint=2) == everything(rank)


@settings(deadline=None, max_examples=15)
@given(
    files=st.lists(
        st.lists(st.tuples(st.sampled_from(["float16", "float32"]), st.integers(1, 70_000)), min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    ),
    request=st.sampled_from([1, 2, 3, 16, 256]).map(lambda n: n * (64 << 10)),
    depth=st.integers(1, 16),
)
def test_tensors_of_any_size_come_back_from_either_engine(files, request, depth):
    shard = shard_of(1, *files)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save(streaming(shard, request=request, depth=depth), folder)
        assert load(TorchEngine(shard, CONTENT, Activity()), folder) == everything(shard)
        assert load(streaming(shard, request=request, depth=depth), folder) == everything(shard)


@pytest.mark.parametrize("request_kib", [64, 192, 1024, 16384])
@pytest.mark.parametrize("depth", [1, 3, 16])
def test_request_and_depth_change_no_byte_of_a_file(tmp_path, right, request_kib, depth):
    save(streaming(ODD, request=request_kib << 10, depth=depth), tmp_path)
    assert bytes_of(tmp_path) == right


def test_more_requests_in_flight_than_buffers_are_not_made(tmp_path):
    shard = shard_of(0, [("float32", 14 << 20)])
    engine = streaming(shard, request=16 << 20, depth=16)
    save(engine, tmp_path)
    assert load(engine, tmp_path) == everything(shard)
    assert engine.facts()["requests"] == "16384 KiB, 2 in flight for each rank"
    assert engine.facts()["buffers"].startswith("32 MiB a rank, ")


def test_a_save_counts_its_files_and_fsyncs_and_times_its_phases(tmp_path):
    proof, clock = save(streaming(ODD), tmp_path)
    assert (proof.files_attempted, proof.files_returned) == (3, 3)
    assert (proof.folders_attempted, proof.folders_returned) == (1, 1)
    assert set(clock.phases) == {"open", "write", "fsync", "close", "directory"}


def test_every_byte_that_is_moved_is_progress(tmp_path):
    activity = Activity()
    clock = clock_of(activity)
    streaming(ODD, depth=1).save(draft_in(tmp_path, clock), clock)
    assert activity.bytes_done >= sum(file.stat().st_size for file in tmp_path.iterdir())


def test_files_that_are_there_already_are_not_written_over(tmp_path):
    (tmp_path / ODD.files[1].name).write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        save(streaming(ODD), tmp_path)
    assert (tmp_path / ODD.files[1].name).read_bytes() == b"mine"


def test_a_rank_that_has_read_all_has_nothing_to_do_in_later_steps(saved):
    engine = streaming(ODD)
    assert load(engine, saved) == everything(ODD)
    assert engine.load(committed_in(saved), engine.load_steps(), clock_of()) == 0
    assert engine.verify(1) == Comparison(bytes_checked=0, fault_count=0, faults=())


@pytest.mark.parametrize("checkpoint", [2, 3])
def test_files_of_another_checkpoint_are_stale_in_every_page(saved, checkpoint):
    _, _, faults = load(streaming(ODD), saved, checkpoint)
    assert {f.kind for f in faults if f.bytes == PAGE_BYTES} <= {"stale"}
    assert any(f.detail.startswith("the page is that of checkpoint 1 ") for f in faults)


@pytest.mark.parametrize("size", [1, 3 * REQUEST])
def test_no_descriptor_stays_open(saved, size):
    shard = shard_of(2, [("float32", size)])
    before = open_files()
    engine = streaming(shard)
    folder = saved / "other"
    folder.mkdir()
    save(engine, folder)
    load(engine, folder)
    engine.load(committed_in(folder), 0, clock_of())
    engine.release()
    assert open_files() == before


# --- what storage does to files --------------------------------------------------------------------------------------


def found_by_both(folder):
    """Return what both engines find in a folder."""
    return [load(engine, folder)[2] for engine in (TorchEngine(ODD, CONTENT, Activity()), streaming(ODD))]


@settings(deadline=None, max_examples=25)
@given(data=st.data(), bit=st.integers(0, 7))
def test_both_engines_locate_any_flipped_bit_alike(tmp_path_factory, right, data, bit):
    number = data.draw(st.integers(0, len(MIDDLE.tensors) - 1))
    position = data.draw(st.integers(0, MIDDLE.tensors[number].bytes - 1))
    folder = tmp_path_factory.getbasetemp() / "flipped"
    folder.mkdir(exist_ok=True)
    for name, content in right.items():
        (folder / name).write_bytes(content)
    flip(folder, number, position, bit)
    by_torch, by_stream = found_by_both(folder)
    assert by_torch == by_stream
    (fault,) = by_stream
    assert (fault.kind, fault.file, fault.tensor) == ("flipped", MIDDLE.name, MIDDLE.tensors[number].name)
    assert fault.offset == position // PAGE_BYTES * PAGE_BYTES
    assert f"the first at byte {position}" in fault.detail


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        (bytes(PAGE_BYTES), "zeros"),
        (bytes(range(256)) * 16, "foreign"),
        (CONTENT.expected(TensorKey(checkpoint=1, rank=2, tensor=3), 0, PAGE_BYTES).tobytes(), "misplaced"),
        (CONTENT.expected(TensorKey(checkpoint=9, rank=2, tensor=3), 31 * PAGE_BYTES, PAGE_BYTES).tobytes(), "stale"),
    ],
)
def test_both_engines_call_a_wrong_page_the_same(saved, page, kind):
    start = container_of(MIDDLE.tensors).records[MIDDLE_NUMBER].offset + 31 * PAGE_BYTES
    with (saved / MIDDLE.name).open("r+b") as file:
        file.seek(start)
        file.write(page)
    by_torch, by_stream = found_by_both(saved)
    assert by_torch == by_stream
    (fault,) = by_stream
    assert (fault.kind, fault.tensor, fault.offset) == (kind, MIDDLE_TENSOR.name, 31 * PAGE_BYTES)


@pytest.mark.parametrize("left", [0, 1, 5_000, REQUEST, 2 * REQUEST, 2 * REQUEST + 700])
def test_a_file_that_was_cut_off_is_short_once_and_says_where_it_ends(saved, left):
    size = container_of(MIDDLE.tensors).bytes
    os.truncate(saved / MIDDLE.name, left)
    _, _, (fault,) = load(streaming(ODD), saved)
    assert (fault.kind, fault.file, fault.tensor) == ("short", MIDDLE.name, "")
    assert (fault.offset, fault.bytes) == (left, size - left)
    assert fault.detail == f"the file ends at byte {left} of {size}"


@pytest.mark.parametrize("left", [0, 1, 5_000, REQUEST, 2 * REQUEST + 700])
def test_both_engines_call_a_file_short_that_was_cut_off(saved, left):
    os.truncate(saved / MIDDLE.name, left)
    for (fault,) in found_by_both(saved):
        assert (fault.kind, fault.file) == ("short", MIDDLE.name)


def test_a_file_that_lacks_its_last_byte_is_a_fault_to_both_engines(saved):
    size = container_of(MIDDLE.tensors).bytes
    os.truncate(saved / MIDDLE.name, size - 1)
    by_torch, by_stream = found_by_both(saved)
    assert [f.file for f in by_torch] == [MIDDLE.name]
    assert [(f.kind, f.file, f.offset, f.bytes) for f in by_stream] == [("short", MIDDLE.name, size - 1, 1)]


def test_what_a_cut_off_file_still_has_is_read_and_compared(saved):
    os.truncate(saved / MIDDLE.name, 2 * REQUEST + 700)
    flip(saved, MIDDLE_NUMBER, 40)
    loaded, checked, faults = load(streaming(ODD), saved)
    assert loaded == checked
    assert ODD.bytes - MIDDLE.bytes < loaded < ODD.bytes
    assert sorted(f.kind for f in faults) == ["flipped", "short"]


@pytest.mark.parametrize("more", [1, PAGE_BYTES, 3 * REQUEST])
def test_a_file_that_is_longer_than_it_was_written_is_a_fault(saved, more):
    size = container_of(MIDDLE.tensors).bytes
    os.truncate(saved / MIDDLE.name, size + more)
    loaded, checked, (fault,) = load(streaming(ODD), saved)
    assert (loaded, checked) == (ODD.bytes, ODD.bytes)
    assert (fault.kind, fault.file, fault.offset, fault.bytes) == ("foreign", MIDDLE.name, size, more)
    assert fault.detail == f"the file has {size + more} bytes, {size} were written"


@pytest.mark.parametrize("where", [0, -200], ids=["header", "directory"])
def test_both_engines_call_a_file_with_a_broken_container_unreadable(saved, where):
    file = saved / MIDDLE.name
    data = bytearray(file.read_bytes())
    start = where % len(data)
    data[start : start + 200] = bytes(range(55, 255))
    file.write_bytes(data)
    by_torch, by_stream = found_by_both(saved)
    for faults in (by_torch, by_stream):
        assert {(f.kind, f.file) for f in faults} == {("unreadable", MIDDLE.name)}


@settings(deadline=None, max_examples=40)
@given(data=st.data(), bit=st.integers(0, 7))
def test_no_bit_of_a_file_can_be_wrong_unseen(tmp_path_factory, right, data, bit):
    """torch.load looks at few of the bytes around the tensors; the stream engine at all."""
    name = data.draw(st.sampled_from(sorted(right)))
    offset = data.draw(st.integers(0, len(right[name]) - 1))
    folder = tmp_path_factory.getbasetemp() / "any-bit"
    folder.mkdir(exist_ok=True)
    for other, content in right.items():
        (folder / other).write_bytes(content)
    change(folder / name, offset, lambda byte: byte ^ 1 << bit)
    _, _, (fault,) = load(streaming(ODD), folder)
    assert fault.file == name
    assert fault.kind in ("flipped", "unreadable", "zeros", "foreign")
    if not fault.tensor:
        assert fault.offset <= offset < fault.offset + fault.bytes


def test_of_very_many_faults_the_first_are_told_and_all_are_counted(saved):
    (saved / MIDDLE.name).write_bytes(bytes(len((saved / MIDDLE.name).read_bytes())))
    engine = streaming(ODD)
    engine.load(committed_in(saved), 0, clock_of())
    check = engine.verify(1)
    engine.release()
    assert len(check.faults) == 20
    assert check.fault_count > 200


def test_a_missing_file_is_an_error_that_names_it(saved, capfd):
    (saved / MIDDLE.name).unlink()
    failure = failure_of(lambda activity: load_with(activity, saved), capfd)
    assert (failure["phase"], failure["file"], failure["errno"]) == ("open", MIDDLE.name, "ENOENT")


def load_with(activity, folder):
    clock = clock_of(activity)
    streaming(ODD).load(committed_in(folder, clock), 0, clock)


def failure_of(act, capfd):
    """Return what a rank tells the controller of an error."""
    activity = Activity()
    with pytest.raises(OSError) as caught:  # noqa: PT011 - which one it is the caller looks at
        act(activity)
    activity.failed(caught.value)
    (line,) = (line for line in capfd.readouterr().err.splitlines() if line.startswith(MARK))
    return json.loads(line.removeprefix(MARK))


# --- what targets do to requests -------------------------------------------------------------------------------------


def is_direct(descriptor):
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)


@contextlib.contextmanager
def refusing_direct_opens(*, after_making=False, number=errno.EINVAL):
    """A target without O_DIRECT; some have made the file before they refuse."""
    real = os.open

    def refuse(path, flags, *rest, **how):
        if flags & os.O_DIRECT:
            if after_making:
                os.close(real(path, flags & ~os.O_DIRECT, *rest, **how))
            raise OSError(number, os.strerror(number))
        return real(path, flags, *rest, **how)

    with mock.patch.object(os, "open", refuse):
        yield


@contextlib.contextmanager
def transfers(write=None, read=None):
    """Put ``write`` and ``read`` in front of pwrite and preadv: (number of the call, real call, its arguments)."""
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


def part_of_write(length):
    """Write only the first bytes of each request, through the page cache, as no direct request could be so short."""

    def write(_number, real, descriptor, data, offset):
        count = max(1, min(length(), len(data)))
        other = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY)
        try:
            return real(other, data[:count], offset)
        finally:
            os.close(other)

    return write


def part_of_read(length):
    def read(_number, real, descriptor, parts, offset):
        (data,) = parts
        count = max(1, min(length(), len(data)))
        other = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
        try:
            return real(other, [data[:count]], offset)
        finally:
            os.close(other)

    return read


def comes_and_goes(folder, right, engine=None):
    """Save and load; every byte must be there both ways. Return what the engine says of direct requests."""
    engine = engine or streaming(ODD)
    save(engine, folder)
    assert bytes_of(folder) == right
    assert load(engine, folder) == everything(ODD)
    return engine.facts()["direct"]


def test_where_direct_requests_are_taken_it_says_so(direct, right):
    flags = []

    def write(_number, real, descriptor, *rest):
        flags.append(is_direct(descriptor))
        return real(descriptor, *rest)

    with transfers(write):
        assert comes_and_goes(direct, right) == "O_DIRECT, around the client's page cache"
    assert all(flags)


@pytest.mark.parametrize("after_making", [False, True])
@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP])
def test_a_target_without_direct_requests_is_written_through_its_cache(tmp_path, right, after_making, number):
    with refusing_direct_opens(after_making=after_making, number=number):
        found = comes_and_goes(tmp_path, right)
    assert found == f"no: the target refuses O_DIRECT: {os.strerror(number)}"


def test_an_open_that_fails_for_another_reason_is_an_error(tmp_path):
    with refusing_direct_opens(number=errno.EACCES), pytest.raises(PermissionError):
        save(streaming(ODD), tmp_path)


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("kind", ["write", "read"])
def test_a_direct_request_that_is_refused_in_the_middle_is_made_again_through_the_cache(direct, right, kind, nth):
    def refuse(number, real, descriptor, *rest):
        if number >= nth and is_direct(descriptor):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(descriptor, *rest)

    with transfers(**{kind: refuse}):
        found = comes_and_goes(direct, right)
    assert found == "no: the target refuses a direct request: Invalid argument"


@pytest.mark.parametrize("block", [16 << 10, 32 << 10])
def test_a_target_with_larger_blocks_is_written_through_its_cache_where_requests_do_not_fit_them(direct, right, block):
    def refuse(_number, real, descriptor, data, offset):
        (part,) = data if isinstance(data, list) else (data,)
        if is_direct(descriptor) and (len(part) % block or offset % block):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(descriptor, data, offset)

    with transfers(refuse, refuse):
        assert comes_and_goes(direct, right) == "no: the target refuses a direct request: Invalid argument"


def test_two_direct_requests_that_are_refused_at_once_are_both_made_again(direct, right, monkeypatch):
    both_refused, left = threading.Barrier(2), threading.Event()
    leave = DirectFile._leave_direct

    def leave_and_tell(*arguments):
        leave(*arguments)
        left.set()

    def refuse(number, real, *rest):
        if number <= 2:
            if both_refused.wait(60):
                # The second learns of it when the first has left the direct way already.
                left.wait(60)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(*rest)

    monkeypatch.setattr(DirectFile, "_leave_direct", leave_and_tell)
    with transfers(refuse):
        assert comes_and_goes(direct, right).startswith("no: the target refuses a direct request")


def test_a_request_that_is_invalid_through_the_cache_too_is_an_error(tmp_path):
    def refuse(_number, _real, *_rest):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    with transfers(refuse), pytest.raises(OSError, match="Invalid argument"):
        save(streaming(ODD), tmp_path)


@pytest.mark.parametrize("kind", ["write", "read"])
def test_requests_that_end_short_at_a_block_go_on_directly(direct, right, kind):
    part = {"write": part_of_write, "read": part_of_read}[kind]
    with transfers(**{kind: part(lambda: 3 * PAGE_BYTES)}) as counts:
        assert comes_and_goes(direct, right) == "O_DIRECT, around the client's page cache"
    assert counts[{"write": "pwrite", "read": "preadv"}[kind]] > ODD.bytes // (3 * PAGE_BYTES)


@pytest.mark.parametrize("kind", ["write", "read"])
def test_requests_that_end_inside_a_block_go_on_through_the_cache(direct, right, kind):
    part = {"write": part_of_write, "read": part_of_read}[kind]
    with transfers(**{kind: part(lambda: 5_001)}):
        found = comes_and_goes(direct, right)
    assert found == "no: the target ended a direct request inside a block"


@settings(deadline=None, max_examples=15)
@given(lengths=st.lists(st.integers(1, 2 * REQUEST), min_size=1, max_size=8), has_direct=st.booleans())
def test_short_writes_and_reads_of_any_length_are_continued(tmp_path_factory, right, lengths, has_direct):
    turn = iter(range(1 << 30))

    def length():
        return max(512, lengths[next(turn) % len(lengths)])

    refusing = contextlib.nullcontext() if has_direct else refusing_direct_opens()
    short = transfers(part_of_write(length), part_of_read(length))
    with tempfile.TemporaryDirectory(dir=tmp_path_factory.getbasetemp()) as name, refusing, short:
        comes_and_goes(Path(name), right)


def test_a_target_that_takes_nothing_and_says_nothing_is_an_error(tmp_path, capfd):
    with transfers(lambda *_: 0):
        failure = failure_of(lambda activity: save_with(activity, tmp_path), capfd)
    assert (failure["phase"], failure["file"], failure["errno"]) == ("write", MIDDLE.name, "EIO")


def test_a_file_that_ends_while_it_is_read_is_short(saved):
    with transfers(read=lambda number, real, *rest: 0 if number == 2 else real(*rest)):
        _, _, (fault,) = load(streaming(ODD, depth=1), saved)
    assert (fault.kind, fault.file, fault.offset) == ("short", MIDDLE.name, REQUEST)


def save_with(activity, folder):
    engine, clock = streaming(ODD, depth=4), clock_of(activity)
    engine.fill(1)
    try:
        engine.save(draft_in(folder, clock), clock)
    finally:
        engine.release()


def no_space_left(number, real, *rest):
    if number > 3:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return real(*rest)


def test_a_target_that_fills_up_in_the_middle_is_named_with_phase_and_file(tmp_path, monkeypatch, capfd):
    """A target that gives no space ahead, so that it is found missing by a write, while others are in flight."""
    monkeypatch.setattr(sink, "_allocate", lambda *_: None)
    descriptors, threads = open_files(), threading.active_count()
    with transfers(no_space_left):
        failure = failure_of(lambda activity: save_with(activity, tmp_path), capfd)
    assert (failure["phase"], failure["file"], failure["errno"]) == ("write", MIDDLE.name, "ENOSPC")
    assert failure["message"] == "No space left on device"
    assert [p.name for p in tmp_path.iterdir()] == [MIDDLE.name]
    assert open_files() == descriptors
    assert threading.active_count() == threads


def test_a_target_that_has_no_space_to_give_ahead_is_named_too(tmp_path, monkeypatch, capfd):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sink, "_allocate", full)
    descriptors = open_files()
    failure = failure_of(lambda activity: save_with(activity, tmp_path), capfd)
    assert (failure["phase"], failure["file"], failure["errno"]) == ("open", MIDDLE.name, "ENOSPC")
    assert open_files() == descriptors


class Alone:
    """A group of one rank."""

    rank, host, spans_hosts = 0, "here", False

    def wait(self): ...

    def start_together(self): ...

    def gather(self, value):
        return [value]


def test_a_save_without_space_commits_no_checkpoint(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(sink, "_allocate", lambda *_: None)
    activity = Activity()
    store = PosixStore(tmp_path)
    store.prepare("odd-full")
    do = Operations(Alone(), activity, Subject(model="odd", mode="full"), ODD, store)
    strategy = SyncStrategy(engine=streaming(ODD, depth=4), store=store, group=Alone(), activity=activity)
    do.save(strategy, 1)
    with transfers(no_space_left), pytest.raises(OSError, match="No space left"):
        do.save(strategy, 2)
    assert {p.name for p in tmp_path.glob("odd-full/*")} == {checkpoint_name(1), partial_name(2)}
    assert do.durability().commits == 1
    capfd.readouterr()


# --- memory ----------------------------------------------------------------------------------------------------------

RANK = """
import json, pathlib, re, resource, sys

asked = json.load(sys.stdin)
if asked["maximum_bytes"]:
    resource.setrlimit(resource.RLIMIT_AS, (asked["maximum_bytes"],) * 2)

import numpy as np
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.content.generator import Content
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
store = open_store(AreaRef(scheme="", location=asked["folder"], run_id="", opener=""))
ref = CheckpointRef(subject="s", number=1)
store.prepare("s")
engine = StreamEngine(shard, Content(7), Activity(), options)
engine.fill(1)
draft = store.begin(ref, clock)
engine.save(draft, clock)
store.commit(ref, draft.seal()[0], clock)
committed = store.open(ref, clock)
loaded, checks = 0, []
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


def as_a_rank(shard, folder, *, maximum_bytes=0, front=()):
    """Save, load and compare in a process of its own, as a rank does; return what it tells."""
    asked = {
        "shard": to_plain(shard),
        "options": to_plain(EngineOptions()),
        "folder": str(folder),
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
    """512 MiB of state, in a process that may not even promise itself that much."""
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
    """Of 1,024 ranks many share a host: a window of 32 MiB for each would be most of what they take."""
    buffers = streaming(shard_of(0, [("float32", 1 << 10)], [("float32", 1)]), request=4 << 20).facts()["buffers"]
    assert buffers.startswith("2 MiB a rank, ")
    whole = streaming(shard_of(0, [("float32", 16 << 20)]), request=4 << 20).facts()["buffers"]
    assert whole.startswith("32 MiB a rank, ")


def test_a_rank_imports_neither_torch_nor_what_only_the_controller_needs(tmp_path):
    assert as_a_rank(shard_of(0, [("float32", 1)]), tmp_path)["modules"] == []


def test_requests_that_signals_interrupt_are_made_again(tmp_path):
    """The kernel's own answer, put in front of the real calls by strace."""
    strace = shutil.which("strace")
    front = (strace, "-f", "-q", "-o", str(tmp_path / "trace"), "-e", "trace=pwrite64,preadv,preadv2")
    if not strace or subprocess.run([*front, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no strace that may trace")
    inject = [f"inject={call}:error=EINTR:when=2+2" for call in ("pwrite64", "preadv", "preadv2")]
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    shard = shard_of(0, [("float32", 5 << 20), ("float16", 1)])
    found = as_a_rank(shard, folder, front=(*front, *(word for i in inject for word in ("-e", i))))
    assert (found["loaded"], found["checked"], found["faults"]) == (shard.bytes, shard.bytes, 0)
    trace = (tmp_path / "trace").read_text()
    interrupted = [line for line in trace.splitlines() if "EINTR" in line]
    # Where another thread's call stands between, the answer has a line of its own: "<... pwrite64 resumed>".
    assert any("pwrite64" in line for line in interrupted)
    assert any("preadv" in line for line in interrupted)


def test_what_it_says_of_its_buffers_is_true():
    facts = streaming(ODD, request=4 << 20).facts()
    assert facts["requests"] == "4096 KiB, 2 in flight for each rank"
    size, _, share = facts["buffers"].partition(" MiB a rank, ")
    # Three files, of a request each, and the largest is smaller than a MiB.
    assert int(size) == 3
    assert share in {f"{n}% in huge pages" for n in range(101)}


def test_a_file_has_no_byte_more_than_its_container(tmp_path):
    """Its last request is filled up to a whole block, and that is cut off."""
    save(streaming(ODD), tmp_path)
    sizes = {file.name: container_of(file.tensors).bytes for file in ODD.files}
    assert {p.name: p.stat().st_size for p in tmp_path.iterdir()} == sizes
    assert all(size % PAGE_BYTES for size in sizes.values())
