"""Random changes of files, as a user could make with a text editor, a hex editor, a shell or a JSON library.

A mutation changes a directory and returns a description of the change. The same seed makes the same change.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.support.deep_directories import create_too_deep
from tests.support.fuzz.values import DEEP, NUMBERS, changed, places, set_value

Mutation = Callable[[Random, Path, Path], str]

_LARGE = (1 << 20, 33 << 20, (1 << 30) - 1, 1 << 40)
_MAXIMUM_VALUES = 12_000_000
_MAXIMUM_PATH = 3_800
_MAXIMUM_EDITED = 1 << 20


# --- one file ------------------------------------------------------------------------------------------------------


def change_bytes(rng: Random, data: bytes) -> tuple[bytes, str]:
    """Return a changed copy of ``data`` and a description of the change."""
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice([1, 2, 16, 400]))
    ways: dict[str, Callable[[], bytes]] = {
        "flipped": lambda: data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        if at < len(data) else data + b"\0",
        "put in": lambda: data[:at] + rng.randbytes(rng.randrange(1, 5)) + data[at:],
        "taken out": lambda: data[:at] + data[end:],
        "twice": lambda: data[:end] + data[at:],
        "cut off": lambda: data[:at],
        "zeros": lambda: data[:at] + bytes(end - at) + data[end:],
        "empty": lambda: b"",
        "UTF-16": lambda: data.decode("utf-8", "replace").encode("utf-16"),
        "a mark of byte order": lambda: b"\xef\xbb\xbf" + data,
        "lines of DOS": lambda: data.replace(b"\n", b"\r\n"),
        "noise": lambda: rng.randbytes(200),
        "white space": lambda: data + b"\n \t",
    }  # fmt: skip
    way = rng.choice(sorted(ways))
    return ways[way](), f"{way} at {at}"


def change_json(rng: Random, data: bytes, *, lines: bool) -> tuple[bytes, str]:
    """Return a copy of a JSON document with a random change, and a description of the change.

    If ``lines`` is true, ``data`` contains one document in each line, and the change affects one line.
    """
    rows = data.decode("utf-8", "replace").splitlines() if lines else [data.decode("utf-8", "replace")]
    if not rows:
        return b"{}", "a table"
    number = rng.randrange(len(rows))
    if lines and rng.random() < 0.15:
        other = rng.randrange(len(rows))
        way = rng.choice(["twice", "gone", "swapped"])
        if way == "twice":
            rows.insert(other, rows[number])
        elif way == "gone":
            del rows[number]
        else:
            rows[number], rows[other] = rows[other], rows[number]
        return ("\n".join(rows) + "\n").encode("utf-8", "surrogatepass"), f"line {number} {way}"
    try:
        document = json.loads(rows[number])
    except (ValueError, RecursionError):
        return change_bytes(rng, data)
    odd = rng.random()
    if odd < 0.15 and (found := places(document)):
        place = rng.choice(found)
        set_value(document, place, "HERE")
        depth = rng.choice(DEEP)
        raw = rng.choice([*NUMBERS, "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth, "[1,]", "'x'", ""])
        rows[number] = json.dumps(document).replace('"HERE"', raw, 1)
        what = f"{'.'.join(map(str, place))} is {raw[:40]}"
    elif odd < 0.2:
        text = rows[number]
        at = text.find('"', rng.randrange(len(text)))
        rows[number] = text[: at + 1] + text[at + 1 :].replace('"', '": 1, "', 1) if at >= 0 else text + text
        what = "a name too many"
    else:
        what = "as it was"
        for _ in range(rng.choice([1, 1, 1, 2, 5])):
            if not isinstance(document, dict | list):
                break
            document, what = changed(rng, document)
        rows[number] = json.dumps(document, indent=None if lines else 1)
    text = "\n".join(rows) if not lines else "\n".join(rows) + "\n"
    if not lines and not text.endswith("\n"):
        text += "\n"
    return text.encode("utf-8", "surrogatepass"), f"line {number}: {what}" if lines else what


def edited(rng: Random, directory: Path, _outside: Path) -> str:
    """Change the content of one file, usually of a file with facts, such as JSON or YAML."""
    name = pick(rng, directory)
    if name is None:
        return ""
    file = directory / name
    data = file.read_bytes()
    if file.suffix in (".json", ".jsonl") and rng.random() < 0.8:
        new, what = change_json(rng, data, lines=file.suffix == ".jsonl")
    else:
        new, what = change_bytes(rng, data)
    file.write_bytes(new)
    return f"{name}: {what}"


def exchanged(rng: Random, directory: Path, _outside: Path) -> str:
    """Overwrite one file with the content of another file, or exchange the contents of the two files."""
    one, other = pick(rng, directory), pick(rng, directory)
    if one is None or other is None:
        return ""
    data = (directory / one).read_bytes()
    if rng.random() < 0.5:
        (directory / one).write_bytes((directory / other).read_bytes())
    (directory / other).write_bytes(data)
    return f"{other} holds what was in {one}"


def inside(directory: Path) -> list[Path]:
    """Return all paths below a directory, except paths that are too long for the kernel."""
    found = []
    for here, directories, files in os.walk(directory):
        found += [Path(here, name) for name in (*directories, *files) if len(here) + len(name) < _MAXIMUM_PATH]
    return sorted(found)


def pick(rng: Random, directory: Path) -> str | None:
    """Return the name of a random regular file, or None if there is no file.

    Files with facts, such as JSON or YAML, are chosen more often than other files.
    """
    there = [(p, p.lstat()) for p in inside(directory)]
    # A file that was already enlarged is not read again, to save this process's memory.
    names = [
        p.relative_to(directory).as_posix()
        for p, found in there
        if stat.S_ISREG(found.st_mode) and found.st_size <= _MAXIMUM_EDITED
    ]
    facts = [n for n in names if n.endswith((".json", ".jsonl", ".yaml", ".log", ".sha256", ".toml"))]
    if not names:
        return None
    return rng.choice(facts) if facts and rng.random() < 0.75 else rng.choice(names)


# --- the tree of files -----------------------------------------------------------------------------------------------


def removed(rng: Random, directory: Path, _outside: Path) -> str:
    there = inside(directory)
    if not there:
        return ""
    path = rng.choice(there)
    _clear(path)
    return f"{path.relative_to(directory)} is gone"


def replaced(rng: Random, directory: Path, outside: Path) -> str:
    """Create a link, a pipe, a socket, a directory or an empty file at a random path.

    A file or directory that exists at this path is removed first.
    """
    there = [p for p in inside(directory) if not p.is_symlink()]
    if not there:
        return ""
    path = rng.choice(there)
    if rng.random() < 0.3:
        path = path.with_name(rng.choice(["new", "a\x1b[2Jb", "a\nb", ".hidden", "report.json", "x" * 250, "\udcff"]))
    _clear(path)
    ways: dict[str, Callable[[], object]] = {
        "a link to a file elsewhere": lambda: path.symlink_to(outside / "file"),
        "a link to a directory elsewhere": lambda: path.symlink_to(outside),
        "a link to nothing": lambda: path.symlink_to("nothing"),
        "a link to itself": lambda: path.symlink_to(path.name),
        "a link upwards": lambda: path.symlink_to(".."),
        "a link to what has no end": lambda: path.symlink_to("/dev/zero"),
        "a link to what gives nothing": lambda: path.symlink_to("/dev/tty"),
        "a pipe": lambda: os.mkfifo(path),
        "a directory": lambda: (path / "inside").mkdir(parents=True),
        "a socket": lambda: _socket(path),
        "an empty file": path.touch,
    }
    way = rng.choice(sorted(ways))
    ways[way]()
    return f"{os.fsencode(path.relative_to(directory))!r} is {way}"


def bloated(rng: Random, directory: Path, _outside: Path) -> str:
    """Make one file far larger, with a hole or with many values."""
    name = pick(rng, directory)
    if name is None:
        return ""
    with (directory / name).open("r+b") as file:
        if rng.random() < 0.6:
            size = rng.choice(_LARGE)
            file.truncate(size)
            return f"{name} has {size:,} bytes"
        file.seek(0)
        piece = rng.choice([b"{},", b"[],", b"1,", b'"",', b'{"a":[', b"0.1,\n", b"\xf0\x9f\x98\x80", b"a = 1\n"])
        count = rng.choice([100_000, _MAXIMUM_VALUES])
        file.write(b"[" + piece * count + b"0]")
        return f"{name} holds {piece!r} {count:,} times"


def many(rng: Random, directory: Path, _outside: Path) -> str:
    """Add many files, or deeply nested directories."""
    if rng.random() < 0.5:
        place = directory / rng.choice(["measurements", "observations", "launches", "runs", "."])
        if place.exists() and not place.is_dir():
            return ""
        place.mkdir(exist_ok=True)
        for number in range(300):
            (place / f"{number}.json").write_text("{}")
        return f"300 files in {place.name}"
    create_too_deep(directory)
    return "directories so deep that the kernel takes no path to the last of them"


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(path.parent, os.O_RDONLY)
        try:
            made.bind(f"/proc/self/fd/{here}/{path.name[:60]}")
        finally:
            os.close(here)


MUTATIONS: tuple[tuple[Mutation, int], ...] = (
    (edited, 100), (exchanged, 8), (removed, 12), (replaced, 16), (bloated, 1), (many, 1),
)  # fmt: skip
"""All mutations, with their relative frequencies."""


def mutate(rng: Random, directory: Path, outside: Path) -> list[str]:
    """Change a directory with one or more mutations; return the descriptions of the changes."""
    done = []
    for _ in range(rng.choice([1, 1, 1, 1, 2, 3])):
        (way,) = rng.choices([way for way, _ in MUTATIONS], [weight for _, weight in MUTATIONS])
        if what := way(rng, directory, outside):
            done.append(what)
    return done
