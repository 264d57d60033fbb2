"""Patterns that are built from handwritten logs of strace, for each way of using threads and descriptors.

A pattern is a recording of a job's file calls that the engine replay can repeat.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_ckpt.facts.pattern import Pattern, read_pattern
from pytest_ckpt.recording.build import pattern_of
from pytest_ckpt.recording.strace_log import read_log
from pytest_ckpt.report.pattern import pattern_lines

DATA, OTHER = "/d/data", "/d/other"


def recorded(*calls: tuple[int, str], threads: Sequence[int] = ()) -> Pattern:
    """Return the pattern of a log with the calls ``calls``, which are made one after the other.

    Process 7 and the threads in ``threads`` make these calls.
    """
    births = [(7, f"clone(child_stack=0x7f, flags=CLONE_VM|CLONE_THREAD) = {thread}") for thread in threads]
    ends = [(thread, "") for thread in (*threads, 7)]
    lines = [
        f"{thread} {number}.0 {call or '+++ exited with 0 +++'}"
        for number, (thread, call) in enumerate([*births, *calls, *ends], 1)
    ]
    return pattern_of(read_log(lines), "/d", "made by hand", "a test")


def test_a_pause_is_what_a_thread_does_between_its_calls() -> None:
    """A pause is the time between the end of a call and the next call of the same thread.

    Here each pause is half a second. Repeated calls become one step, whose pause is the sum of the calls' pauses.
    """
    calls = [opened(DATA, "O_WRONLY|O_CREAT|O_TRUNC", 3), *[written(DATA, 100)] * 3, f"close(3<{DATA}>) = 0"]
    lines = []
    for number, call in enumerate(calls, 1):
        name, rest = call.split("(", 1)
        arguments, returned = rest.rsplit(") = ", 1)
        lines += [
            f"7 {number}.0 {name}({arguments} <unfinished ...>",
            f"7 {number}.5 <... {name} resumed>) = {returned}",
        ]
    found = read_log([*lines, "7 9.0 +++ exited with 0 +++"])
    pattern = pattern_of(found, "/d", "made by hand", "a test", with_pauses=True)
    assert [(s.call, s.count, s.pause_us) for s in pattern.steps] == [
        ("create", 1, 0),
        ("write", 3, 1_500_000),
        ("close", 1, 500_000),
    ]
    without = pattern_of(found, "/d", "made by hand", "a test")
    assert not without.pauses_us()


def test_waiting_for_another_rank_is_no_pause() -> None:
    """A pause does not include the time in which a rank waits for another rank.

    Rank 0 commits 0.1 s after the end of rank 1, so the pause is 0.1 s.
    """
    lines = ["6 0.1 clone(child_stack=NULL, flags=SIGCHLD) = 7", "6 0.2 clone(child_stack=NULL, flags=SIGCHLD) = 8"]
    for thread, path, first in ((7, "/d/a", 1.0), (8, "/d/b", 1.01)):
        lines += [f"{thread} {first} {opened(path, 'O_WRONLY|O_CREAT|O_TRUNC', 3)}"]
    lines += [
        f"7 1.02 {written('/d/a', 2_000_000)}",
        "7 1.03 close(3</d/a>) = 0",
        '8 1.04 write(3</d/b>, ""..., 2000000 <unfinished ...>',
        "8 2.0 <... write resumed>) = 2000000",
        "8 2.01 close(3</d/b>) = 0",
        f"7 2.11 {opened('/d/c', 'O_WRONLY|O_CREAT|O_TRUNC', 3)}",
        f"7 2.12 {written('/d/c', 10)}",
        "8 3.0 +++ exited with 0 +++", "7 3.0 +++ exited with 0 +++", "6 3.0 +++ exited with 0 +++",
    ]  # fmt: skip
    pattern = pattern_of(read_log(lines), "/d", "made by hand", "a test", with_pauses=True)
    (commit,) = [s for s in pattern.steps if s.phase == 1 and s.call == "create"]
    assert commit.pause_us == pytest.approx(100_000, abs=2)


def opened(path: str, flags: str, number: int) -> str:
    return f'openat(AT_FDCWD</d>, "{path}", {flags}, 0666) = {number}<{path}>'


def written(path: str, size: int, number: int = 3) -> str:
    return f'write({number}<{path}>, ""..., {size}) = {size}'


def calls_of_pattern(pattern: Pattern) -> list[str]:
    return [step.call for step in pattern.steps]


def test_a_thread_that_only_makes_durable_what_another_wrote_is_part_of_the_save() -> None:
    pattern = recorded(
        (7, opened(DATA, "O_WRONLY|O_CREAT|O_TRUNC", 3)),
        (7, written(DATA, 100)),
        (8, f"fsync(3<{DATA}>) = 0"),
        (7, f"close(3<{DATA}>) = 0"),
        threads=(8,),
    )
    assert calls_of_pattern(pattern) == ["create", "write", "fsync", "close"]


def test_a_second_descriptor_of_a_file_neither_empties_nor_closes_it() -> None:
    pattern = recorded(
        (7, opened(DATA, "O_WRONLY|O_CREAT", 3)),
        (7, written(DATA, 100)),
        (7, opened(DATA, "O_WRONLY|O_CREAT", 4)),
        (7, f"close(4<{DATA}>) = 0"),
        (7, written(DATA, 50)),
        (7, f"close(3<{DATA}>) = 0"),
    )
    assert calls_of_pattern(pattern) == ["create", "write", "open", "close", "write", "close"]
    assert [file.bytes for file in pattern.files] == [150]


def test_a_pool_of_threads_whose_work_meets_in_one_file_is_one_lane() -> None:
    """Threads that work on the same files are one lane (a sequence of calls that the replay makes in order).

    Two threads write one file each, and a third thread syncs both files.
    """
    pattern = recorded(
        (8, opened(DATA, "O_WRONLY|O_CREAT", 3)),
        (9, opened(OTHER, "O_WRONLY|O_CREAT", 4)),
        (8, written(DATA, 100)),
        (9, written(OTHER, 200, 4)),
        (10, f"fsync(3<{DATA}>) = 0"),
        (10, f"fsync(4<{OTHER}>) = 0"),
        (8, f"close(3<{DATA}>) = 0"),
        (9, f"close(4<{OTHER}>) = 0"),
        threads=(8, 9, 10),
    )
    assert {step.lane for step in pattern.steps} == {0}
    assert calls_of_pattern(pattern).count("fsync") == 2


def test_a_number_that_one_thread_opens_while_another_closes_it_is_the_new_file() -> None:
    lines = [
        "7 1.0 clone(child_stack=0x7f, flags=CLONE_VM|CLONE_THREAD) = 8",
        f"7 2.0 {opened(DATA, 'O_WRONLY|O_CREAT|O_TRUNC', 3)}",
        f"7 3.0 {written(DATA, 100)}",
        f'8 4.0 openat(AT_FDCWD</d>, "{OTHER}", O_WRONLY|O_CREAT, 0666 <unfinished ...>',
        f"7 5.0 close(3<{DATA}> <unfinished ...>",
        f"8 6.0 <... openat resumed>) = 3<{OTHER}>",
        "7 7.0 <... close resumed>) = 0",
        f"8 8.0 {written(OTHER, 50)}",
        f"8 9.0 close(3<{OTHER}>) = 0",
        "8 10.0 +++ exited with 0 +++",
        "7 10.0 +++ exited with 0 +++",
    ]
    pattern = pattern_of(read_log(lines), "/d", "made by hand", "a test")
    assert calls_of_pattern(pattern) == ["create", "write", "close"] * 2
    assert sorted(file.bytes for file in pattern.files) == [50, 100]


def test_a_read_with_flags_has_its_own_place() -> None:
    pattern = recorded(
        (7, opened(DATA, "O_RDWR|O_CREAT|O_TRUNC", 3)),
        (7, written(DATA, 100)),
        (7, f"preadv2(3<{DATA}>, [...], 1, 60, 0) = 40"),
        (7, f"fsync(3<{DATA}>) = 0"),
        (7, f"close(3<{DATA}>) = 0"),
    )
    assert [(s.offset, s.bytes) for s in pattern.steps if s.call == "read"] == [(60, 40)]


@pytest.mark.parametrize(("first_has_children", "ranks"), [(True, [0, 0, 1, 1]), (False, [0, 1, 2])])
def test_a_rank_that_writes_by_its_children_alone_is_one_where_its_sibling_does_so(
    first_has_children: bool, ranks: list[int]
) -> None:
    """Processes that a rank forks to write files count as this rank if another rank also forks such processes.

    Each rank of Megatron forks a process for each large file. Rank 0 also writes small files itself.
    """
    writers = [7, 9, 10, 11] if first_has_children else [7, 10, 11]
    begun = [(6, 7), (6, 8), (8, 10), (8, 11)] + ([(7, 9)] if first_has_children else [])
    calls = [(parent, f"clone(child_stack=NULL, flags=SIGCHLD) = {child}") for parent, child in begun]
    for n in writers:
        path = f"/d/file{n}"
        calls += [(n, opened(path, "O_WRONLY|O_CREAT|O_TRUNC", 3)), (n, f'write(3<{path}>, ""..., 100) = 100')]
    calls += [(process, "+++ exited with 0 +++") for process in (*writers, 8, 6)]
    lines = [f"{process} {number}.0 {call}" for number, (process, call) in enumerate(calls, 1)]
    pattern = pattern_of(read_log(lines), "/d", "made by hand", "a test")
    assert [file.rank for file in pattern.files] == ranks


@pytest.mark.parametrize("command", ["F_DUPFD_CLOEXEC", "F_DUPFD"])
def test_a_descriptor_made_by_fcntl_is_one_place_in_the_file(command):
    pattern = recorded(
        (7, opened(DATA, "O_WRONLY|O_CREAT|O_TRUNC", 3)),
        (7, written(DATA, 100)),
        (7, f"fcntl(3<{DATA}>, F_SETFL, O_WRONLY) = 0"),
        (7, f"fcntl(3<{DATA}>, {command}, 0) = 4<{DATA}>"),
        (7, f"lseek(3<{DATA}>, 40, SEEK_SET) = 40"),
        (7, f'write(4<{DATA}>, ""..., 10) = 10'),
        (7, f"close(4<{DATA}>) = 0"),
        (7, f"close(3<{DATA}>) = 0"),
    )
    assert [(step.offset, step.bytes) for step in pattern.steps if step.call == "write"] == [(0, 100), (40, 10)]


@pytest.mark.parametrize("copied", [f"fcntl(3<{DATA}>, F_DUPFD_CLOEXEC, 0) = 4<{DATA}>", f"dup(3<{DATA}>) = 4<{DATA}>"])
def test_a_file_stays_open_when_a_copy_of_its_descriptor_is_closed(copied):
    """A file stays open if a copy of its descriptor is closed. Python's mmap and Rust's try_clone make such copies."""
    pattern = recorded(
        (7, opened(DATA, "O_RDWR|O_CREAT", 3)),
        (7, written(DATA, 100)),
        (7, copied),
        (7, f"close(4<{DATA}>) = 0"),
        (7, written(DATA, 100)),
        (7, f"fsync(3<{DATA}>) = 0"),
        (7, f"close(3<{DATA}>) = 0"),
    )
    # Both writes are one step of the pattern.
    assert [step.call for step in pattern.steps] == ["create", "write", "fsync", "close"]
    assert [file.bytes for file in pattern.files] == [200]


def test_files_that_are_opened_synchronously_are_recorded_as_such():
    calls = [(7, opened(DATA, "O_WRONLY|O_CREAT|O_TRUNC|O_DSYNC", 3)), (7, written(DATA, 100))]
    calls += [(7, opened(OTHER, "O_WRONLY|O_CREAT|O_TRUNC|O_SYNC", 4))]
    calls += [(7, written(OTHER, 50, 4)), (7, f"close(4<{OTHER}>) = 0"), (7, f"close(3<{DATA}>) = 0")]
    pattern = recorded(*calls)
    assert (pattern.omitted, pattern.unsynced()) == ({}, [])
    assert {file.bytes: file.synchronous for file in pattern.files} == {100: "O_DSYNC", 50: "O_SYNC"}
    (line,) = (line for line in pattern_lines(pattern) if line.startswith("durability"))
    assert line == (
        "durability: every file is flushed after its last write, 1 file opened with O_DSYNC, "
        "1 file opened with O_SYNC, 0 fsyncs of directories"
    )


def test_a_flush_of_the_file_system_flushes_every_file_of_its_rank():
    calls = [(7, opened(DATA, "O_WRONLY|O_CREAT|O_TRUNC", 3)), (7, written(DATA, 100)), (7, f"close(3<{DATA}>) = 0")]
    calls += [(7, opened(OTHER, "O_WRONLY|O_CREAT|O_TRUNC|O_SYNC", 4)), (7, written(OTHER, 50, 4))]
    without = recorded(*calls)
    assert [without.files[number].bytes for number in without.unsynced()] == [100]
    pattern = recorded(*calls, (7, "syncfs(5</d>) = 0"), (7, "syncfs(9</elsewhere>) = 0"))
    assert (calls_of_pattern(pattern).count("syncfs"), pattern.unsynced(), pattern.omitted) == (1, [], {})
    assert sorted(file.synchronous for file in pattern.files) == ["", "O_SYNC"]
    assert read_pattern(pattern.to_text()) == pattern


def test_a_log_without_paths_of_descriptors_is_refused_for_that():
    with pytest.raises(ValueError, match="line 1 names no path of its descriptor: the log was made without -y"):
        read_log(['7 1.0 openat(AT_FDCWD, "/d/data", O_WRONLY|O_CREAT, 0666) = 3', "7 2.0 +++ exited with 0 +++"])
