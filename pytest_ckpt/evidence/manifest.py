"""The manifest of a run directory: digests of all files, in the format of ``sha256sum --check``."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.support.strict_json import read

if TYPE_CHECKING:
    from collections.abc import Mapping

MANIFEST = "manifest.sha256"
ATTESTATION = "attestation.dsse.json"
# The manifest cannot contain its own digest. The attestation contains the manifest's digest.
_NOT_LISTED = frozenset({MANIFEST, ATTESTATION})
# Runs do not write such large files. The bound prevents hours of reading if someone adds sparse files of a terabyte.
_MAXIMUM_BYTES, _MAXIMUM_BYTES_IN_ALL = 256 << 20, 2 << 30
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The differences between a directory and its manifest, as file names.

    ``listed`` is the number of files in the manifest. ``ill_formed`` lists the invalid lines of the manifest.
    """

    listed: int
    changed: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    ill_formed: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether the directory is identical to its manifest."""
        return not (self.changed or self.added or self.removed or self.ill_formed)


def report_text(document: Mapping[str, Any]) -> str:
    """Return the text of ``report.json`` for a report."""
    return json.dumps(document, indent=1) + "\n"


def write_manifest(directory: Path) -> None:
    """Write the SHA-256 of every file below ``directory`` into ``manifest.sha256``.

    Empty directories are removed first, because a manifest cannot list them. An empty directory that exists later was
    therefore added after the run.
    """
    for place, _, _ in os.walk(directory, topdown=False):
        with contextlib.suppress(OSError):
            Path(place).rmdir()
    (directory / MANIFEST).write_text(manifest_text(digests(directory)), encoding="utf-8", errors="surrogateescape")


def digests(directory: Path) -> dict[str, str]:
    """Return {path below the directory: SHA-256} of all files except the manifest and the signature.

    The manifest omits paths with an empty digest. The digest is empty for:

    - a file that is unreadable or larger than 256 MiB
    - an entry that is neither a file nor a directory (a link, a pipe)
    - an empty or unreadable directory, whose path ends with a slash
    - the largest files, if all files together exceed 2 GiB
    """
    sha256: dict[str, str] = {}
    sizes: list[tuple[float, str, Path]] = []

    def closed(error: OSError) -> None:
        sha256[f"{Path(error.filename).relative_to(directory).as_posix()}/"] = ""

    for place, directories, files in os.walk(directory, onerror=closed):
        if not directories and not files and place != str(directory):
            sha256[f"{Path(place).relative_to(directory).as_posix()}/"] = ""
        for name in [*files, *(f for f in directories if _is_link(Path(place, f)))]:
            path = Path(place, name)
            below = path.relative_to(directory).as_posix()
            if below not in _NOT_LISTED:
                sha256[below] = ""
                if (size := _size(path)) <= _MAXIMUM_BYTES:
                    sizes.append((size, below, path))
    left: float = _MAXIMUM_BYTES_IN_ALL
    for size, below, path in sorted(sizes):
        left -= size
        if left < 0:
            break
        with contextlib.suppress(OSError):
            sha256[below] = file_digest(path)
    return sha256


def _is_link(path: Path) -> bool:
    try:
        return path.is_symlink()
    except OSError:
        # The path is longer than the kernel allows. Walking into it fails in the same way, and is reported.
        return False


def manifest_text(found: Mapping[str, str]) -> str:
    """Return the text of a manifest with these digests, sorted by path."""
    return "".join(_line(name, found[name]) for name in sorted(found) if found[name])


def is_as_listed(directory: Path, name: str) -> bool:
    """Whether one file matches the manifest of its directory."""
    try:
        listed = _manifest_of(directory).splitlines(keepends=True)
        return _line(name, file_digest(directory / name)) in listed
    except OSError:
        return False


def compare(directory: Path) -> Comparison:
    """Return the differences between a directory and its manifest. Raises OSError if the manifest cannot be read."""
    text = _manifest_of(directory)
    there = digests(directory)
    listed: dict[str, str] = {}
    ill_formed = []
    for number, line in enumerate(text.split("\n")[:-1] if text.endswith("\n") else text.split("\n"), 1):
        name, digest = _read_line(line)
        if _line(name, digest) != line + "\n" or name in listed:
            ill_formed.append(f"line {number} of {MANIFEST}")
        else:
            listed[name] = digest
    result = Comparison(
        listed=len(listed),
        changed=tuple(sorted(n for n, digest in listed.items() if n in there and there[n] != digest)),
        added=tuple(sorted(set(there) - set(listed))),
        removed=tuple(sorted(set(listed) - set(there))),
        ill_formed=tuple(ill_formed),
    )
    if result.is_same and (text != manifest_text(there) or (directory / MANIFEST).is_symlink()):
        return Comparison(listed=len(listed), changed=(MANIFEST,), added=(), removed=(), ill_formed=())
    return result


def _manifest_of(directory: Path) -> str:
    """Return the text of a manifest. Raises OSError if the manifest cannot be read, or is a pipe or a device."""
    return read(directory / MANIFEST).decode("utf-8", errors="surrogateescape")


def _line(name: str, digest: str) -> str:
    # As in sha256sum, a line break in a name is escaped, and the line is marked.
    escaped = "".join(_ESCAPES.get(c, c) for c in name)
    return f"{'' if escaped == name else chr(92)}{digest}  {escaped}\n"


def _read_line(line: str) -> tuple[str, str]:
    """Return (name, digest) of a manifest line; two empty texts for an invalid line."""
    plain = line.removeprefix("\\")
    digest, _, name = plain.partition("  ")
    if len(digest) != 64 or set(digest) - set("0123456789abcdef") or not name:
        return "", ""
    if plain != line:
        for character, escape in reversed(_ESCAPES.items()):
            name = name.replace(escape, character)
    return name, digest


def _size(path: Path) -> float:
    """Return the size of a file in bytes; infinity if the path is not a regular file or cannot be read."""
    try:
        status = path.lstat()
    except OSError:
        return math.inf
    return status.st_size if stat.S_ISREG(status.st_mode) else math.inf


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
