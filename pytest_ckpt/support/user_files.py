"""Validates, reads and parses files and directories that a user names. An error is one sentence."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_ckpt.support.errors import UsageError

_MAXIMUM_BYTES = 1 << 20
_DEAD = frozenset(
    (errno.ENOTCONN, errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.ECONNABORTED, errno.ECONNRESET, errno.EHOSTDOWN)
)
_FORBIDDEN = frozenset((errno.EACCES, errno.EPERM))


def user_path(text: str | Path, option: str) -> Path:
    """Return an absolute path with ``~`` expanded. Raises UsageError if the user after ``~`` is unknown."""
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise UsageError(
            f"{option} {text}: this host has no user '{str(text).partition('/')[0].removeprefix('~')}'.",
            "Write the path in full.",
        ) from None


def resolved_user_path(text: str | Path, option: str) -> Path:
    """Return an absolute path with symbolic links resolved. Raises UsageError for a loop, or an unreadable link.

    A missing path, or a path on a dead mount, is returned without an error.
    """
    path = user_path(text, option)
    try:
        return path.resolve(strict=True)
    except (RuntimeError, OSError) as error:
        # Python 3.11 and 3.12 raise RuntimeError for a loop, and later versions raise ELOOP.
        if isinstance(error, RuntimeError) or error.errno == errno.ELOOP:
            raise UsageError(
                f"{option} {text}: its symbolic links lead in a circle.", "Name a directory that can be reached."
            ) from None
    try:
        return path.resolve()
    except OSError as error:
        raise UsageError(
            f"{option} {text} cannot be reached: {error.strerror}.", "Name a directory that can be reached."
        ) from None


def refuse_inside(option: str, given: str | Path, others: Mapping[str, str | Path], remedy: str) -> Path:
    """Return the resolved path of ``given``, the value of ``option``.

    Raises UsageError if the path is one of ``others`` (paths by option), or inside one of them.
    """
    place = resolved_user_path(given, option)
    for other_option, other in others.items():
        inside = resolved_user_path(other, other_option)
        if place == inside or inside in place.parents:
            raise UsageError(f"{option} {given} is inside {other_option} {other}.", remedy)
    return place


def is_there(path: Path) -> bool:
    """Return whether a path exists. Raises OSError if this is unknown, as on a dead mount.

    ``Path.exists`` treats some of these errors as a missing path, depending on the version of Python.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def read_user_text(path: Path) -> str:
    """Return the text of a file. Raises OSError like `read_user_bytes`, and ValueError if the content is not UTF-8."""
    try:
        return read_user_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: {error.reason} at byte {error.start}") from None


def read_user_bytes(path: Path) -> bytes:
    """Return the content of a regular file of at most 1 MiB.

    Raises OSError if the file cannot be opened, is larger, or is not regular. A device or a pipe has no end.
    """
    # A pipe without a writer would block its reader; the flag does not affect regular files.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - it is open
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if found.st_size > _MAXIMUM_BYTES:
            raise OSError(
                errno.EFBIG, f"it has {found.st_size:,} bytes; at most {_MAXIMUM_BYTES:,} are read", str(path)
            )
        return file.read(_MAXIMUM_BYTES)


@contextlib.contextmanager
def answering(name: str) -> Iterator[None]:
    """Convert an OSError during a block into a UsageError; ``name`` is the option with its value."""
    try:
        yield
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, f"errno {error.errno}")
        raise UsageError(f"{name} cannot be used: {error.strerror or error} ({code}).", _remedy(error.errno)) from None


def _remedy(number: int | None) -> str:
    if number in _DEAD:
        return "The mount is dead or its server does not answer: unmount it (umount -l PATH) and mount it again."
    if number in _FORBIDDEN:
        return f"Let user {os.geteuid()} list and write the directory; a FUSE mount of another user needs allow_other."
    return "Try it by hand: stat PATH; df PATH; ls PATH."


_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'')
# Far more than a user writes; the parser of the standard library takes quadratic time.
_MAXIMUM_DOTS = 64
_TOO_DEEP = "its lists or tables lie too deep in each other"


def parse_toml(text: str) -> dict[str, Any]:
    """Return the content of a TOML text. Raises ValueError for invalid text and for very deep nesting."""
    if any(line.count(".") > _MAXIMUM_DOTS for line in _STRING.sub("", text).splitlines()):
        raise ValueError(_TOO_DEEP)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
