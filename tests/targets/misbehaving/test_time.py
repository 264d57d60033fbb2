"""Faults that delay or block calls have the described effect. After `clear`, blocked calls continue."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.machine import eventually
from tests.support.targets.faulty import CONTENT, MIB, with_faults, write


def seconds_of(deed: Callable[[], object]) -> float:
    begin = time.monotonic()
    deed()
    return time.monotonic() - begin


@with_faults("slow file")
def test_the_files_that_match_are_slow(faulty, target, fault):
    faulty(fault, path="*/rank1.*", seconds=0.2)
    (target.path / "checkpoint").mkdir()
    assert seconds_of(lambda: write(target.path / "checkpoint" / "rank1.pt", CONTENT)) >= 0.2
    hits = target.hits(fault)
    write(target.path / "checkpoint" / "rank0.pt", CONTENT)
    assert target.hits(fault) == hits > 0


@with_faults("slow")
def test_reads_and_writes_are_limited_to_the_rate(faulty, target, fault):
    faulty(fault, bytes_per_second=20e6)
    assert seconds_of(lambda: write(target.path / "file", bytes(4 * MIB))) >= 0.2
    assert seconds_of((target.path / "file").read_bytes) >= 0.15


@with_faults("slow")
def test_files_that_have_a_device_each_take_as_long_as_one(faulty, target, fault):
    faulty(fault, bytes_per_second=2e6, is_by_file=True)
    paths = [target.path / f"file-{number}" for number in range(8)]
    with ThreadPoolExecutor(len(paths)) as pool:
        seconds = seconds_of(lambda: list(pool.map(lambda path: write(path, bytes(4 * MIB)), paths)))
    # One after the other, these writes would take 16 s. Even a busy machine does not need that for 8 small writes.
    assert 2.0 <= seconds < 8 * 2.0


@with_faults("slow")
def test_each_rank_has_the_rate_and_reads_may_be_fast(faulty, target, fault):
    faulty(fault, bytes_per_second=1e6, is_by_rank=True, reads_are_slow=False)
    paths = [target.path / f"rank_{number}_model" for number in range(4)]
    with ThreadPoolExecutor(len(paths)) as pool:
        seconds = seconds_of(lambda: list(pool.map(lambda path: write(path, bytes(4 * MIB)), paths)))
    # One after the other, these writes would take 16 s.
    assert 4.0 <= seconds < 4 * 4.0
    count = target.hits(fault)
    assert paths[0].read_bytes() == bytes(4 * MIB)
    assert target.hits(fault) == count


@with_faults("slow")
def test_a_burst_is_taken_at_once_and_what_follows_at_the_rate(faulty, target, fault):
    faulty(fault, bytes_per_second=1e6, burst_bytes=4 * MIB)
    # Without the burst, this write would take 4.2 s.
    first = seconds_of(lambda: write(target.path / "first", bytes(4 * MIB)))
    assert first < 4.0
    # The burst refills less in this time than the second write needs.
    assert first + seconds_of(lambda: write(target.path / "second", bytes(2 * MIB))) >= 2.0


@with_faults("slow metadata")
def test_operations_on_names_are_slow_and_data_are_not(faulty, target, fault):
    with (target.path / "file").open("wb", buffering=0) as file:
        faulty(fault, seconds=0.2)
        file.write(CONTENT)
        assert target.hits(fault) == 0
        assert seconds_of((target.path / "directory").mkdir) >= 0.2


@with_faults("slow file")
def test_times_are_log_normal_and_reads_may_be_left_out(faulty, target, fault):
    faulty(fault, seconds=0.05, sigma=0.5, writes_only=True)
    # The seed is fixed. The sum of these 40 draws is far above half of 40 medians.
    assert seconds_of(lambda: [write(target.path / "file", b"x") for _ in range(40)]) >= 1.0
    count = target.hits(fault)
    assert (target.path / "file").read_bytes() == b"x"
    assert target.hits(fault) == count == 40


@with_faults("writes trickle")
def test_a_write_takes_little_and_a_while(faulty, target, fault):
    faulty(fault, bytes_per_second=20e3)
    with (target.path / "file").open("wb", buffering=0) as file:
        begin = time.monotonic()
        assert file.write(bytes(20_000)) == 4096
        assert time.monotonic() - begin >= 0.2
    assert (target.path / "file").stat().st_size == 4096


@with_faults("fast for duplicate data")
def test_a_repeated_write_of_the_same_data_is_not_slowed(faulty, target, fault):
    faulty(fault, bytes_per_second=10e6)
    fresh = os.urandom(3 * MIB)
    assert seconds_of(lambda: write(target.path / "one", fresh)) >= 0.3
    hits = target.hits(fault)
    write(target.path / "two", fresh)
    assert target.hits(fault) == hits


@with_faults("fast when cached")
def test_recently_written_data_are_read_fast_and_older_data_slowly(faulty, target, fault):
    write(target.path / "old", bytes(3 * MIB))
    faulty(fault, bytes_per_second=10e6, cache_bytes=8 * MIB)
    write(target.path / "new", bytes(3 * MIB))
    (target.path / "new").read_bytes()
    assert target.hits(fault) == 0
    assert seconds_of((target.path / "old").read_bytes) >= 0.3
    hits = target.hits(fault)
    (target.path / "old").read_bytes()
    assert target.hits(fault) == hits  # the file is in the cache now


@with_faults("client cache survives the drop")
@pytest.mark.parametrize("survives", [True, False])
def test_each_client_reads_fast_what_it_wrote_or_read_until_it_drops_that(faulty, target, fault, survives):
    write(target.path / "old", bytes(MIB))
    faulty(fault, bytes_per_second=10e6, survives=survives)
    assert seconds_of((target.path / "old").read_bytes) >= 0.1
    write(target.path / "new", bytes(3 * MIB))
    drop = subprocess.run(target.drop_command, check=False)
    assert drop.returncode == 0
    hits = target.hits(fault)
    (target.path / "new").read_bytes()
    assert (target.hits(fault) == hits) == survives
    # After one read, the file is in the client's cache, whether or not that can be dropped.
    hits = target.hits(fault)
    (target.path / "new").read_bytes()
    assert target.hits(fault) == hits


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@with_faults("hang")
@pytest.mark.parametrize("operation", ["write", "read", "fsync", "open", "list", "rename", "attributes"])
def test_an_operation_hangs_until_it_is_released(faulty, target, fault, operation):
    programs = {
        "write": "open(sys.argv[1], 'r+b', buffering=0).write(b'x')",
        "read": "open(sys.argv[1], 'rb', buffering=0).read(10)",
        "fsync": "f = open(sys.argv[1], 'r+b'); os.fsync(f.fileno())",
        "open": "open(sys.argv[1])",
        "list": "os.listdir(os.path.dirname(sys.argv[1]))",
        "rename": "os.rename(sys.argv[1], sys.argv[1] + '.new')",
        "attributes": "os.stat(sys.argv[1])",
    }
    (target.path / "sub").mkdir()
    write(target.path / "sub" / "file", CONTENT)
    write(target.path / "free", CONTENT)
    faulty(fault, operation=operation, path="sub*")
    words = [sys.executable, "-I", "-S", "-c", f"import os, sys; {programs[operation]}; print('done')"]
    with subprocess.Popen([*words, str(target.path / "sub" / "file")], stdout=subprocess.PIPE) as process:
        try:
            eventually(lambda: target.hits(fault), "it hangs")
            eventually(lambda: state_of(process.pid) == "D", "the task shows as D")
            assert (target.path / "free").read_bytes() == CONTENT  # other files are not affected
            if operation == "write":
                process.kill()
                eventually(lambda: state_of(process.pid) == "D", "not even that ends it")
                target.release()
        finally:
            target.clear()  # some programs clear a fault more than once
        assert process.communicate()[0] == (b"" if operation == "write" else b"done\n")


@with_faults("hang")
def test_clearing_lets_everything_that_hangs_continue(faulty, target, fault):
    faulty(fault)
    threads = [threading.Thread(target=write, args=(target.path / f"file-{number}", b"x")) for number in range(40)]
    for thread in threads:
        thread.start()
    eventually(lambda: target.hits(fault) == 40, "all hang")
    target.clear()
    for thread in threads:
        thread.join()
    assert {path.read_bytes() for path in target.path.iterdir()} == {b"x"}


@with_faults("concurrent O_TRUNC hangs")
def test_opening_with_truncation_at_once_hangs(faulty, target, fault):
    write(target.path / "file", CONTENT)
    faulty(fault)
    loop = "import os, sys\nwhile True: os.close(os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC))"
    words = [sys.executable, "-I", "-S", "-c", loop, str(target.path / "file")]
    with subprocess.Popen(words) as one, subprocess.Popen(words) as other:
        eventually(lambda: target.hits(fault), "one of them hangs")
        eventually(lambda: "D" in (state_of(one.pid), state_of(other.pid)), "it shows as D")
        for process in (one, other):
            process.kill()
        target.release()


@with_faults("starves a job")
def test_a_write_of_a_late_rank_waits_while_the_first_rank_writes_another_checkpoint(faulty, target, fault):
    faulty(fault)
    for name in ("one", "other"):
        (target.path / name).mkdir()
    with (target.path / "one" / "rank_0").open("wb", buffering=0) as served:
        served.write(b"x")
        write(target.path / "one" / "rank_1", b"x")
        # Each write is limited to the rate, which counts as a hit; the wait of a starved write is another hit.
        assert target.hits(fault) == 2
        write(target.path / "other" / "rank_1", b"x")
        assert target.hits(fault) == 2 + 2
        os.fsync(served.fileno())
        write(target.path / "other" / "rank_2", b"x")
    assert target.hits(fault) == 2 + 2 + 1
