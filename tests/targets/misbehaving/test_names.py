"""Faults of names have the described effect. After `clear` they have no effect."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

from tests.support.machine import eventually, patience
from tests.support.targets.faulty import fails_with, polled, with_faults, write


def run_in_process(program: str, *words: object) -> str:
    """Run a Python program in a separate process; return its output, or else the last line of its error output."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, *map(str, words)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]


@with_faults("rename of a directory is not atomic")
def test_a_renamed_directory_fills_up(faulty, target, fault):
    (target.path / "tmp").mkdir()
    for number in range(200):
        (target.path / "tmp" / str(number)).touch()
    faulty(fault, seconds=patience(1.0))

    def names() -> int | None:
        try:
            return len(os.listdir(target.path / "done"))
        except FileNotFoundError:
            return None

    def rename_and_wait() -> None:
        os.rename(target.path / "tmp", target.path / "done")
        eventually(lambda: names() == 200, "all are there")

    counts = polled(names, rename_and_wait, 1)
    assert any(count not in (None, 200) for count in counts)
    target.clear()
    os.rename(target.path / "done", target.path / "tmp")
    assert set(polled(names, rename_and_wait, 1)) <= {None, 200}


@with_faults("rename of a directory is refused")
def test_a_directory_keeps_its_name(faulty, target, fault):
    (target.path / "tmp").mkdir()
    (target.path / "file").touch()
    faulty(fault)
    with fails_with(errno.EMFILE):
        (target.path / "tmp").rename(target.path / "done")
    (target.path / "file").rename(target.path / "renamed")
    assert sorted(os.listdir(target.path)) == ["renamed", "tmp"]


@with_faults("names dropped in a listing", "names twice in a listing")
def test_a_listing_has_one_name_too_few_or_too_many(faulty, target, fault):
    names = sorted(str(number) for number in range(100))
    for name in names:
        (target.path / name).touch()
    faulty(fault)
    seen = sorted(os.listdir(target.path))
    assert len(seen) == (99 if "dropped" in fault else 101)
    assert set(seen) <= set(names)


@with_faults("still listed after delete")
def test_a_deleted_name_is_listed_for_a_time(faulty, target, fault):
    faulty(fault, seconds=patience(1.0))
    (target.path / "file").touch()
    (target.path / "file").unlink()
    assert os.listdir(target.path) == ["file"]
    assert not (target.path / "file").exists()
    eventually(lambda: os.listdir(target.path) == [], "it is no longer listed")


@with_faults("not listed after create")
def test_a_new_name_is_not_listed_for_a_time(faulty, target, fault):
    faulty(fault, seconds=patience(1.0))
    (target.path / "file").touch()
    assert os.listdir(target.path) == []
    assert (target.path / "file").exists()
    eventually(lambda: os.listdir(target.path) == ["file"], "it is listed")


@with_faults("O_EXCL is not exclusive", "mkdir is not exclusive")
def test_two_processes_create_the_same_entry(faulty, target, fault):
    faulty(fault, seconds=1000)
    make = "os.mkdir(sys.argv[1])" if "mkdir" in fault else "os.open(sys.argv[1], os.O_CREAT | os.O_EXCL | os.O_WRONLY)"
    program = f"import os, sys; {make}; print('made')"
    assert [run_in_process(program, target.path / "name") for _ in range(2)] == ["made", "made"]
    assert run_in_process(program, target.second / "name") == "made"
    target.clear()
    assert "FileExistsError" in run_in_process(program, target.path / "name")


@with_faults("new directory is not visible")
def test_others_do_not_find_a_new_directory_for_a_time(faulty, target, fault):
    faulty(fault, seconds=1000)
    (target.path / "directory").mkdir()
    (target.path / "directory" / "file").touch()
    program = "import os, sys; print(os.listdir(sys.argv[1]))"
    assert "FileNotFoundError" in run_in_process(program, target.path / "directory")
    assert "FileNotFoundError" in run_in_process(program, target.second / "directory")
    target.clear()
    assert run_in_process(program, target.path / "directory") == "['file']"


@with_faults("stale names")
def test_the_second_client_finds_what_was_deleted_or_replaced(faulty, target, fault):
    write(target.path / "file", b"old")
    write(target.path / "gone", b"gone")
    faulty(fault, seconds=1000)
    assert (target.second / "file").read_bytes() == b"old"
    assert (target.second / "gone").exists()
    write(target.path / "new", b"new")
    os.replace(target.path / "new", target.path / "file")
    (target.path / "gone").unlink()
    assert (target.second / "file").read_bytes() == b"old"
    assert (target.second / "gone").read_bytes() == b"gone"
    target.clear()
    assert (target.second / "file").read_bytes() == b"new"
    assert not (target.second / "gone").exists()


@with_faults("stale negative names")
def test_the_second_client_does_not_find_what_it_once_missed(faulty, target, fault):
    faulty(fault, seconds=patience(1.0))
    assert not (target.second / "file").exists()
    write(target.path / "file", b"new")
    assert not (target.second / "file").exists()
    assert (target.path / "file").exists()
    eventually((target.second / "file").exists, "the second client finds it")


@with_faults("stale attributes")
def test_the_second_client_sees_the_old_size(faulty, target, fault):
    write(target.path / "file", b"old")
    faulty(fault, seconds=patience(1.0))
    assert (target.second / "file").stat().st_size == 3
    write(target.path / "file", b"longer than before")
    assert (target.second / "file").stat().st_size == 3
    assert (target.path / "file").stat().st_size == 18
    eventually(lambda: (target.second / "file").stat().st_size == 18, "the second client sees the size")


@with_faults("stale listing")
def test_the_second_client_lists_what_was_there(faulty, target, fault):
    faulty(fault, seconds=patience(1.0))
    assert os.listdir(target.second) == []
    (target.path / "file").touch()
    assert os.listdir(target.second) == []
    assert os.listdir(target.path) == ["file"]
    eventually(lambda: os.listdir(target.second) == ["file"], "the second client lists it")


@with_faults("names regardless of case")
def test_names_that_differ_in_case_are_one(faulty, target, fault):
    faulty(fault)
    write(target.path / "File", b"one")
    write(target.path / "file", b"two")
    assert os.listdir(target.path) == ["File"]
    assert (target.path / "FILE").read_bytes() == b"two"


@with_faults("names of limited length")
def test_long_names_are_refused(faulty, target, fault):
    faulty(fault)
    write(target.path / ("n" * 64), b"fits")
    with fails_with(errno.ENAMETOOLONG):
        write(target.path / ("n" * 65), b"does not")
