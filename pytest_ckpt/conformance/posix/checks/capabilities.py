"""CAPABILITIES: links and names, and what some file systems have besides."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import unicodedata
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import compare, random_bytes
from pytest_ckpt.conformance.reading import read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_ckpt.conformance.context import CheckContext, Findings

_LIBC = ctypes.CDLL(None, use_errno=True)
_ROUNDS = 20
_LONGEST = 255
_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE = 1, 2
# linux/fs.h: the request of ioctl(2) that clones a whole file.
FICLONE = 0x40049409
_MIB = 1 << 20


def links(context: CheckContext, findings: Findings) -> None:
    """Make, follow, replace and remove symbolic links to files and folders, and hard links."""
    for number in range(context.count(_ROUNDS, minimum=2)):
        folder = context.folder / f"links-{number}"
        folder.mkdir()
        contents = {name: random_bytes(5000, context.seed, number, name) for name in ("first", "second")}
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        context.tell("symlink", str(folder))
        _try(findings, folder / "symbolic", "symbolic links", partial(_symbolic, findings, folder, contents))
        context.tell("link", str(folder))
        _try(findings, folder / "hard", "hard links", partial(_hard, findings, folder, contents))
        findings.trials += 1


def names(context: CheckContext, findings: Findings) -> None:
    """Make files whose names differ in case, in form or in their last byte, of 255 bytes and in other alphabets."""
    groups = {
        "case": ["model.pt", "Model.pt", "MODEL.PT"],
        "length": ["n" * (_LONGEST - 1) + end for end in "ab"],
        "alphabet": ["Größe", "チェックポイント", "контрольная точка", "检查点", "🗜️"],
        "form of accents": [unicodedata.normalize(form, "modèle-é") for form in ("NFC", "NFD")],
        "characters": [".hidden", "a b", " a", "a ", "a.", "a:b", "a\\b", "a*?", 'a"b', "a\nb", "-rf", "con", "nul.pt"],
    }
    for what, group in groups.items():
        folder = context.folder / what.replace(" ", "-")
        folder.mkdir()
        made: dict[str, bytes] = {}
        for name in group:
            path = folder / name
            context.tell("create", str(path))
            content = random_bytes(1000, context.seed, name)
            try:
                with path.open("xb") as file:
                    file.write(content)
            except FileExistsError:
                same = next((other for other in made if _same(folder / other, path)), "another")
                _folded(findings, path, f"{_short(name)} is already there: it is taken for {_short(same)}")
            except OSError as error:
                findings.wrong(
                    "name refused",
                    where=f"{folder}, a name of {len(name.encode())} bytes",
                    seen=f"{error.strerror} (errno {error.errno}) for {_short(name)}",
                    expected="a file of that name",
                )
            else:
                made[name] = content
            findings.trials += 1
        seen = _read_those_there(folder, made)
        listed = sorted(os.listdir(folder))  # noqa: PTH208 - doubled names must stay doubled
        if listed != sorted(made):
            strange = [name for name in listed if name not in made]
            lost = [name for name in made if name not in listed]
            _folded(findings, folder, f"made and not listed: {_shorts(lost)}; listed and not made: {_shorts(strange)}")
        for name, content in made.items():
            if name in listed and name in seen:
                compare(findings, seen[name], content, path=folder / name)
    _too_long(context, findings)
    _not_utf8(context, findings)


class _WrongAnswerError(Exception):
    """Something that a file system may lack, and this one has, does not do what it is for."""

    def __init__(self, seen: str, expected: str) -> None:
        super().__init__(seen)
        self.seen, self.expected = seen, expected


def extras(context: CheckContext, findings: Findings) -> None:
    """Try extended attributes, reserving and giving back space, clones and files without a name.

    Any of them may be missing, and is reported; what is there must be right.
    """
    path = context.folder / "extras"
    for name, attempt in {
        "extended attributes": _attributes,
        "fallocate": _reserve,
        "punching holes": _punch,
        "SEEK_HOLE": _seek_hole,
        "reflink (FICLONE)": _clone,
        "O_TMPFILE": _nameless,
    }.items():
        context.tell(name, str(path))
        path.write_bytes(random_bytes(_MIB, context.seed, name))
        try:
            findings.facts[name] = attempt(path)
        except OSError as error:
            findings.facts[name] = f"no: {error.strerror} (errno {error.errno})"
        except _WrongAnswerError as answer:
            findings.facts[name] = f"wrong: {answer.seen}"
            findings.wrong(f"{name} wrong", where=str(path), seen=answer.seen, expected=answer.expected)
        findings.trials += 1


def _try(findings: Findings, path: Path, what: str, make: Callable[[], None]) -> None:
    try:
        make()
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}:
            raise
        seen = f"{error.strerror} (errno {error.errno})"
        findings.wrong(f"{what} refused", where=str(path), seen=seen, expected="the link is made")


def _read_those_there(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Return the bytes of each file that is there by its name."""
    seen = {}
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            seen[name] = read_file(folder / name)
    return seen


def _symbolic(findings: Findings, folder: Path, contents: dict[str, bytes]) -> None:
    link = folder / "last"
    link.symlink_to("first")
    _expect(findings, link, "text of the link", str(link.readlink()), "first")
    _leads_to(findings, link, contents["first"])
    # As Lightning does with last.ckpt: to whatever is newest, without a moment in which there is none.
    beside = folder / "last.new"
    beside.symlink_to(folder / "second")
    beside.replace(link)
    _expect(findings, link, "text of the replaced link", str(link.readlink()), str(folder / "second"))
    _leads_to(findings, link, contents["second"], older=contents["first"])
    to_folder = folder / "folder"
    to_folder.symlink_to(f"../{folder.name}")
    _leads_to(findings, to_folder / "first", contents["first"])
    link.unlink()
    _expect(findings, folder / "second", "file after its link was removed", str((folder / "second").exists()), "True")
    (folder / "dangling").symlink_to("nowhere")
    _expect(findings, folder / "dangling", "link to nothing", str((folder / "dangling").exists()), "False")


def _hard(findings: Findings, folder: Path, contents: dict[str, bytes]) -> None:
    first, link = folder / "first", folder / "hard"
    link.hardlink_to(first)
    _leads_to(findings, link, contents["first"])
    _expect(findings, link, "number of names", str(link.stat().st_nlink), "2")
    _expect(findings, link, "same file", str(_same(first, link)), "True")
    older, changed = contents["first"], contents["first"][::-1]
    with link.open("r+b") as file:
        file.write(changed)
    when = "after it was written through its other name"
    compare(findings, read_file(first), changed, path=first, when=when, older=older)
    beside = folder / "hard.new"
    beside.hardlink_to(folder / "second")
    beside.replace(link)
    _leads_to(findings, link, contents["second"], older=changed)
    (folder / "second").unlink()
    compare(findings, read_file(link), contents["second"], path=link, when="after its other name was removed")
    _expect(findings, first, "number of names after its other name was replaced", str(first.stat().st_nlink), "1")


def _leads_to(findings: Findings, link: Path, content: bytes, older: bytes = b"") -> None:
    compare(findings, read_file(link), content, path=link, when="read through the link", older=older)


def _expect(findings: Findings, path: Path, what: str, seen: str, expected: str) -> None:
    if seen != expected:
        findings.wrong("link leads elsewhere", where=f"{path}, {what}", seen=seen, expected=expected)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _folded(findings: Findings, path: Path, seen: str) -> None:
    findings.wrong("names folded or cut", where=str(path), seen=seen, expected="every name as it was given")


def _short(name: str) -> str:
    return repr(name if len(name) <= 60 else f"{name[:28]}…{name[-28:]}")


def _shorts(names: Iterable[str]) -> str:
    return ", ".join(map(_short, names)) or "none"


def _too_long(context: CheckContext, findings: Findings) -> None:
    path = context.folder / ("n" * (_LONGEST + 1))
    context.tell("create", str(path))
    try:
        path.touch()
    except OSError as error:
        findings.facts[f"name of {_LONGEST + 1} bytes"] = f"refused: {error.strerror} (errno {error.errno})"
        return
    longest = max((len(os.fsencode(name)) for name in os.listdir(context.folder)), default=0)  # noqa: PTH208
    if longest > _LONGEST:
        findings.facts[f"name of {_LONGEST + 1} bytes"] = "works"
    else:
        _folded(findings, context.folder, f"a name of {_LONGEST + 1} bytes was taken and is listed with {longest}")


def _not_utf8(context: CheckContext, findings: Findings) -> None:
    path = os.fsencode(context.folder) + b"/\xff\xfe"
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
        findings.facts["names that are not UTF-8"] = "work"
    except OSError as error:
        findings.facts["names that are not UTF-8"] = f"refused: {error.strerror} (errno {error.errno})"


def _attributes(path: Path) -> str:
    largest = 0
    for size in (16, 1024, 4000, 65_536):
        value = random_bytes(size, "attribute", size)
        try:
            os.setxattr(path, "user.pytest_ckpt", value)
        except OSError:
            if not largest:
                raise
            break
        if os.getxattr(path, "user.pytest_ckpt") != value or "user.pytest_ckpt" not in os.listxattr(path):
            raise _WrongAnswerError(f"a value of {size:,} bytes did not come back as it was set", "the same bytes")
        largest = size
    return f"yes, values of {largest:,} bytes at least"


def _reserve(path: Path) -> str:
    before = read_file(path)
    with path.open("r+b") as file:
        _fallocate(file.fileno(), 0, 0, 2 * _MIB)
    after, size = read_file(path), path.stat().st_size
    if size != 2 * _MIB:
        raise _WrongAnswerError(f"the file had {size:,} bytes after its space was reserved", f"{2 * _MIB:,} bytes")
    if after != before + bytes(_MIB):
        raise _WrongAnswerError("other bytes after space was reserved", "the bytes that were written, and zeros behind")
    return "yes"


def _punch(path: Path) -> str:
    before = read_file(path)
    with path.open("r+b") as file:
        os.fsync(file.fileno())
        _fallocate(file.fileno(), _FALLOC_PUNCH_HOLE | _FALLOC_KEEP_SIZE, 0, _MIB // 2)
        os.fsync(file.fileno())
    after = read_file(path)
    if any(after[: _MIB // 2]):
        raise _WrongAnswerError("bytes remained where a hole was punched", "zeros")
    if after[_MIB // 2 :] != before[_MIB // 2 :]:
        raise _WrongAnswerError("other bytes behind a hole that was punched", "the bytes that were written")
    return "yes"


def _seek_hole(path: Path) -> str:
    with path.open("r+b") as file:
        file.truncate(8 * _MIB)
        os.fsync(file.fileno())
        hole = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
    return "yes" if hole < 8 * _MIB else "no: holes are told as data"


def _clone(path: Path) -> str:
    clone = path.with_suffix(".clone")
    with path.open("rb") as file, clone.open("wb") as copy:
        fcntl.ioctl(copy.fileno(), FICLONE, file.fileno())
    if read_file(clone) != read_file(path):
        raise _WrongAnswerError("the clone held other bytes than the file", "the same bytes")
    return "yes"


def _nameless(path: Path) -> str:
    os.close(os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o600))
    return "yes"


def _fallocate(descriptor: int, mode: int, offset: int, length: int) -> None:
    if _LIBC.fallocate(descriptor, mode, ctypes.c_int64(offset), ctypes.c_int64(length)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
