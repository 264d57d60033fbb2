"""What a folder that does not answer as folders do means for who named it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from pytest_ckpt.support.errors import UsageError

_DEAD = frozenset(
    (errno.ENOTCONN, errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.ECONNABORTED, errno.ECONNRESET, errno.EHOSTDOWN)
)
_FORBIDDEN = frozenset((errno.EACCES, errno.EPERM))


@contextlib.contextmanager
def answering(name: str) -> Iterator[None]:
    """Turn an error of the system about a folder into a UsageError; ``name`` is the option with its value."""
    try:
        yield
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, f"errno {error.errno}")
        raise UsageError(f"{name} cannot be used: {error.strerror or error} ({code}).", _remedy(error.errno)) from None


def _remedy(number: int | None) -> str:
    if number in _DEAD:
        return "The mount is dead or its server does not answer: unmount it (umount -l PATH) and mount it again."
    if number in _FORBIDDEN:
        return f"Let user {os.geteuid()} list and write the folder; a FUSE mount of another user needs allow_other."
    return "Try it by hand: stat PATH; df PATH; ls PATH."
