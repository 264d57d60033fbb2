"""Reproduces faults of file systems with only the standard library, without code of pytest-ckpt.

``python reproduce.py WHAT DIRECTORY [DIRECTORY]`` prints a line of JSON. The second directory is the path of the first
directory through another mount. If it is omitted, two processes use one mount. All code is in one file, so that users
can copy it to a host with the file system.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import json
import mmap
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Barrier, Event, Pipe, Process
from multiprocessing.connection import Connection

_REFUSED_IN_A_ROW = 5
# A reproduction without a finding in the first seconds continues longer, because a machine may be busy.
_SECONDS, _MAXIMUM_SECONDS, _BYTES, _TRIALS, _GIVE_UP = 4.0, 30.0, 20_000, 3, 30.0


def replaced(directory: str, other: str) -> dict[str, int]:
    """One process replaces a file by rename; another process opens and reads the file.

    POSIX: the reader receives either all old bytes or all new bytes.
    """
    path, seen = os.path.join(directory, "file"), os.path.join(other, "file")
    _write(path, b"\0" * _BYTES)
    _see(seen)

    refused = 0

    def look(counts: collections.Counter[str]) -> None:
        # A network file system may refuse a replaced file once; the next attempt must find the new one.
        nonlocal refused
        try:
            fd = os.open(seen, os.O_RDONLY)
        except OSError as error:
            refused = refused + 1 if error.errno == errno.ESTALE else 0
            counts[f"{errno.errorcode[error.errno]} at open"] += 1
        else:
            refused = 0 if read(fd, counts) else refused + 1
        if refused == _REFUSED_IN_A_ROW:
            counts[f"refused {refused} times in a row"] += 1

    def read(fd: int, counts: collections.Counter[str]) -> bool:
        is_read = True
        try:
            data = b"".join(iter(lambda: os.read(fd, 1 << 16), b""))
            if len(set(data)) != 1 or len(data) != _BYTES + data[0] % 2:
                counts["bytes of no version"] += 1
        except OSError as error:
            is_read = error.errno != errno.ESTALE
            counts[f"{errno.errorcode[error.errno]} at read"] += 1
        try:
            os.close(fd)
        except OSError as error:
            counts[f"{errno.errorcode[error.errno]} at close"] += 1
        return is_read

    with _watching(look) as (result, seen_wrong):
        for version in _for_a_while(seen_wrong):
            _write(f"{path}.new", bytes([version % 256]) * (_BYTES + version % 2))
            os.replace(f"{path}.new", path)
    return result()


def renamed_directory(directory: str, other: str) -> dict[str, int]:
    """One process renames a directory back and forth; another process lists the directory.

    POSIX: a listing contains all files, or the name of the directory does not exist.
    """
    names = [f"{number:04d}" for number in range(200)]
    here, there = os.path.join(directory, "here"), os.path.join(directory, "there")
    os.mkdir(here)
    for name in names:
        _write(os.path.join(here, name), b"x")

    def look(counts: collections.Counter[str]) -> None:
        for name in ("here", "there"):
            try:
                found = os.listdir(os.path.join(other, name))
            except FileNotFoundError:
                continue
            except OSError as error:
                counts[errno.errorcode[error.errno]] += 1
                continue
            if sorted(found) != names:
                counts["some of the files, or none"] += 1

    with _watching(look) as (result, seen_wrong):
        for _ in _for_a_while(seen_wrong):
            os.rename(here, there)
            os.rename(there, here)
    return result()


def attributes(directory: str, other: str) -> dict[str, float]:
    """Return the longest time in seconds until the other client sees the new size of a file.

    The other client has queried the attributes of the file before the size changes.
    """
    longest = 0.0
    for trial in range(_TRIALS):
        path, seen = os.path.join(directory, f"size-{trial}"), os.path.join(other, f"size-{trial}")
        _write(path, b"x" * 100)
        _see(seen)
        _write(path, b"y" * 200)
        longest = max(longest, _until(lambda seen=seen: os.stat(seen).st_size == 200))
        if longest >= _GIVE_UP:
            break
    return {"longest seconds": round(longest, 3)}


def removed_names(directory: str, other: str) -> dict[str, float]:
    """Return the longest time in seconds until the other client no longer finds a removed name.

    The other client has looked up the name before the removal.
    """
    longest = 0.0
    for trial in range(_TRIALS):
        path, seen = os.path.join(directory, f"old-{trial}"), os.path.join(other, f"old-{trial}")
        _write(path, b"x")
        _see(seen)
        os.unlink(path)
        longest = max(longest, _until(lambda seen=seen: not os.path.exists(seen)))
        if longest >= _GIVE_UP:
            break
    return {"longest seconds": round(longest, 3)}


def new_names(directory: str, other: str) -> dict[str, float]:
    """Return the longest time in seconds until the other client finds a new name.

    The other client has looked up the name before the name is created.
    """
    longest = 0.0
    for trial in range(_TRIALS):
        path, seen = os.path.join(directory, f"new-{trial}"), os.path.join(other, f"new-{trial}")
        assert not os.path.exists(seen)
        _write(path, b"x")
        longest = max(longest, _until(lambda seen=seen: os.path.exists(seen)))
        if longest >= _GIVE_UP:
            break
    return {"longest seconds": round(longest, 3)}


def rewritten(directory: str, other: str) -> dict[str, float]:
    """Rewrite a file that the other client has read, and let the other client read the file again.

    Return how often the first read returns the old bytes, and the longest time until a read returns the new bytes.
    """
    longest, old = 0.0, 0
    for trial in range(_TRIALS):
        path, seen = os.path.join(directory, f"data-{trial}"), os.path.join(other, f"data-{trial}")
        _write(path, b"x" * 100)
        _see(seen)
        assert _read(seen) == b"x" * 100
        _write(path, b"y" * 100)
        old += _read(seen) != b"y" * 100
        longest = max(longest, _until(lambda seen=seen: _read(seen) == b"y" * 100))
    return {"trials": _TRIALS, "old bytes at the first read": old, "longest seconds": round(longest, 3)}


def lengthened(directory: str, other: str) -> dict[str, int]:
    """Lengthen a file that the other client has read; return how often the next read does not return all new bytes.

    The file is lengthened 1.2 s after the first read, when the cached attributes of the other client have expired.
    """
    cut = 0
    for trial in range(_TRIALS):
        path, seen = os.path.join(directory, f"long-{trial}"), os.path.join(other, f"long-{trial}")
        _write(path, b"x" * 100)
        _see(seen)
        assert _read(seen) == b"x" * 100
        time.sleep(1.2)
        _write(path, b"y" * 200)
        cut += _read(seen) != b"y" * 200
    return {"trials": _TRIALS, "cut off at the first read": cut}


def created_once(directory: str, other: str) -> dict[str, int]:
    """Two processes create the same new file with O_EXCL. This is repeated with 200 names.

    POSIX: one process succeeds, the other process gets EEXIST.
    """
    counts: collections.Counter[str] = collections.Counter()
    for trial in range(200):
        ends = [Pipe() for _ in range(2)]
        for (mine, theirs), place in zip(ends, (directory, other), strict=True):
            _child(_create, theirs, os.path.join(place, f"once-{trial}"))
            assert mine.recv() == "ready"
        for mine, _ in ends:
            mine.send("go")
        answers = [mine.recv() for mine, _ in ends]
        counts["winners"] += answers.count("won")
        for answer in answers:
            if answer != "won":
                counts[f"loser was told {answer}"] += 1
    return dict(counts)


def shared_mapping(directory: str, other: str) -> dict[str, str]:
    """Write to a file through mmap(MAP_SHARED), as numpy.memmap(mode="r+") does; return "works" or the error code."""
    path = os.path.join(directory, "mapped")
    _write(path, b"\0" * 8192)
    fd = os.open(path, os.O_RDWR)
    try:
        with mmap.mmap(fd, 8192, mmap.MAP_SHARED) as view:
            view[:5] = b"hello"
            view.flush()
        return {"mmap(MAP_SHARED)": "works", "bytes read back": _read(path)[:5].decode()}
    except OSError as error:
        return {"mmap(MAP_SHARED)": errno.errorcode[error.errno]}
    finally:
        os.close(fd)


def listed(directory: str, other: str) -> dict[str, int]:
    """Create 200 files; after each file, let the other client list the directory.

    Return how many listings do not contain the newest file, and the time until all files are listed.
    """
    os.mkdir(os.path.join(directory, "many"))
    _see(os.path.join(other, "many"))
    missing = 0
    for number in range(200):
        _write(os.path.join(directory, "many", f"{number}"), b"x")
        missing += f"{number}" not in os.listdir(os.path.join(other, "many"))
    end = _until(lambda: len(os.listdir(os.path.join(other, "many"))) == 200)
    return {"files": 200, "not in the next listing": missing, "seconds until all were listed": round(end, 3)}


def filled(directory: str, other: str) -> dict[str, str]:
    """Write to a small volume until it is full; return the error. POSIX: ENOSPC."""
    path = os.path.join(directory, "ballast")
    fd, found = os.open(path, os.O_WRONLY | os.O_CREAT), "nothing"
    try:
        for number in range(1 << 16):
            os.pwrite(fd, os.urandom(1 << 16), number << 16)
            if number % 64 == 0:
                os.fsync(fd)
        os.fsync(fd)
    except OSError as error:
        found = errno.errorcode[error.errno]
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)
        os.unlink(path)
    return {"a full volume says": found}


def committed(directory: str, other: str) -> dict[str, int]:
    """Save like a job: write files into a directory, fsync the files, and rename the directory.

    Return how many files have wrong bytes or are missing after the rename. If the user is root, the page cache is
    dropped before the reads.
    """
    wrong = 0
    for trial in range(5):
        partial, whole = os.path.join(directory, f"{trial}.partial"), os.path.join(other, f"{trial}")
        os.mkdir(partial)
        for number in range(4):
            _write(os.path.join(partial, f"{number}"), bytes([number + 1]) * (1 << 20))
        os.rename(partial, os.path.join(directory, f"{trial}"))
        if os.geteuid() == 0:
            _write_word("/proc/sys/vm/drop_caches", "3")
        for number in range(4):
            wrong += _read(os.path.join(whole, f"{number}")) != bytes([number + 1]) * (1 << 20)
    return {"files": 20, "with wrong bytes or none": wrong}


def directory_made_once(directory: str, other: str) -> dict[str, int]:
    """Two processes create the same directory at the same moment. This is repeated with 1,000 names.

    POSIX: one process succeeds, the other process gets EEXIST.
    """
    start, mine, theirs = Barrier(2), *Pipe()

    def make(place: str, end: Connection) -> None:
        made = []
        for trial in range(1000):
            start.wait()
            try:
                os.mkdir(os.path.join(place, f"made-{trial}"))
                made.append(trial)
            except FileExistsError:
                pass
        end.send(made)

    here, there = _child(make, directory, theirs), _child(make, other, theirs)
    first, second = mine.recv(), mine.recv()
    here.join()
    there.join()
    made = collections.Counter([*first, *second])
    several = sum(count > 1 for count in made.values())
    return {"directories": 1000, "made by nobody, and there": 1000 - len(made), "made by both": several}


def _create(end: Connection, path: str) -> None:
    end.send("ready")
    end.recv()
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        end.send("won")
    except OSError as error:
        end.send(errno.errorcode[error.errno])


def _child(target: Callable[..., None], *words: object) -> Process:
    process = Process(target=target, args=words, daemon=True)
    process.start()
    return process


@contextmanager
def _watching(
    look: Callable[[collections.Counter[str]], None],
) -> Iterator[tuple[Callable[[], dict[str, int]], Callable[[], bool]]]:
    """Call ``look`` repeatedly in another process until the block ends.

    Yield two functions. The first function returns the counts of ``look`` and the number of calls, after the block has
    ended. The second function returns whether ``look`` has counted a violation.
    """
    mine, theirs = Pipe()
    begun, over, wrong = Event(), Event(), Event()

    def watch() -> None:
        counts: collections.Counter[str] = collections.Counter()
        while not over.is_set():
            try:
                look(counts)
            except OSError as error:
                counts[f"{errno.errorcode[error.errno]} elsewhere"] += 1
            if any(not name.startswith(("times looked", "ESTALE")) for name in counts):
                wrong.set()
            counts["times looked"] += 1
            begun.set()
        theirs.send(dict(counts))

    process = _child(watch)
    theirs.close()
    begun.wait(_GIVE_UP)
    counted: dict[str, int] = {}
    yield (lambda: counted), wrong.is_set
    over.set()
    counted |= mine.recv()
    process.join()


def _for_a_while(seen_wrong: Callable[[], bool]) -> Iterator[int]:
    began, number = time.monotonic(), 0
    while (took := time.monotonic() - began) < _SECONDS or (took < _MAXIMUM_SECONDS and not seen_wrong()):
        number += 1
        yield number


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _write_word(path: str, word: str) -> None:
    with contextlib.suppress(OSError), open(path, "w") as file:
        file.write(word)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _see(path: str) -> None:
    _until(lambda: os.path.exists(path))
    os.stat(path)


def _until(condition: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not condition() and time.monotonic() - began < _GIVE_UP:
        time.sleep(0.01)
    return time.monotonic() - began


REPRODUCTIONS = {
    way.__name__: way
    for way in (
        replaced,
        renamed_directory,
        attributes,
        removed_names,
        new_names,
        rewritten,
        lengthened,
        created_once,
        shared_mapping,
        listed,
        filled,
        committed,
        directory_made_once,
    )
}


if __name__ == "__main__":
    what, first, *rest = sys.argv[1:]
    print(json.dumps(REPRODUCTIONS[what](first, rest[0] if rest else first)))
