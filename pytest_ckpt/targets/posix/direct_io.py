"""Direct I/O around the client's page cache, or buffered I/O if the target refuses it."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_ckpt.support.own_names import own_name
from pytest_ckpt.targets.protocol import Buffer, Phases

BLOCK_BYTES = 4096

NOT_OFFERED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
"""What is answered to a direct open, a direct request or a reservation of space that a file system does not offer.

EINVAL by the kernel for what has no direct I/O, or not at this alignment; EOPNOTSUPP (on Linux the number of ENOTSUP)
by network and stacked file systems; ENOSYS by servers in user space that do not know the request. An error that means
something else is not hidden: what is then done without direct I/O meets it again.
"""


@dataclass(slots=True)
class DirectSupport:
    """Whether a target takes direct requests. What it ``refused`` once is not tried again with other files."""

    refused: str = ""

    @property
    def words(self) -> str:
        """The way of requests, for the report."""
        if not self.refused:
            return "O_DIRECT, around the client's page cache"
        return f"no: {self.refused}; files are read without read-ahead (POSIX_FADV_RANDOM)"


class DirectFile:
    """A file that is open: direct, or not since the target refused it."""

    def __init__(self, path: Path, flags: int, way: DirectSupport, phases: Phases) -> None:
        self._path, self._flags = path, flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC)
        self._way = way
        self._phases = phases
        self.direct = not way.refused
        if self.direct:
            try:
                self.descriptor = os.open(path, flags | os.O_DIRECT, 0o600)
                return
            except OSError as error:
                if error.errno not in NOT_OFFERED:
                    raise
                way.refused = f"the target refuses O_DIRECT: {error.strerror}"
                self.direct = False
                # Some file systems have made the file before they refuse.
                flags &= ~os.O_EXCL
        self.descriptor = self._open_buffered(flags)

    @property
    def way(self) -> str:
        """How requests pass the client's page cache."""
        return self._way.words

    def transfer(
        self,
        call: Callable[[int, memoryview, int], int],
        data: Buffer,
        offset: int,
        wanted: int,
        *,
        is_end: Callable[[int], bool] | None = None,
    ) -> int:
        """Go on until ``wanted`` bytes are written or read, or the file ends; return how many were.

        Leave the direct way where the target refuses it. A direct read also ends where the file does, inside a block;
        ``is_end`` is asked for that where a read cannot tell.
        """
        view, done = memoryview(data).cast("B"), 0
        while done < wanted:
            # Another thread's request may leave the direct way while this one is refused.
            was_direct = self.direct
            try:
                step = call(self.descriptor, view[done:], offset + done)
            except OSError as error:
                if error.errno not in NOT_OFFERED or not was_direct:
                    raise
                self._leave_direct(f"the target refuses a direct request: {error.strerror}")
                continue
            if not step:
                break
            done += step
            self._phases.moved(step)
            if done % BLOCK_BYTES and self.direct and done < wanted:
                if is_end and self._ends_at(offset + done, is_end):
                    break
                # The rest is no longer aligned.
                self._leave_direct("the target ended a direct request inside a block")
        return done

    def _ends_at(self, offset: int, is_end: Callable[[int], bool]) -> bool:
        """Whether the file ends at an offset inside a block, by a read of the next byte that is not direct.

        Who asks for its size makes some clients look for it anew: a file that readers get cut would be whole again.
        """
        try:
            flags = fcntl.fcntl(self.descriptor, fcntl.F_GETFL)
            fcntl.fcntl(self.descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
            try:
                return os.preadv(self.descriptor, [bytearray(1)], offset) == 0
            finally:
                fcntl.fcntl(self.descriptor, fcntl.F_SETFL, flags)
        except OSError:
            return is_end(offset)

    def _leave_direct(self, why: str) -> None:
        self._way.refused = why
        # Opened anew and not told by fcntl: a file system in user space may itself have opened the file directly.
        again = self._open_buffered(self._flags)
        try:
            os.dup2(again, self.descriptor, inheritable=False)
        finally:
            os.close(again)
        self.direct = False

    def _open_buffered(self, flags: int) -> int:
        """Open through the page cache; requests are as large as they would be direct, no more is read ahead of them."""
        descriptor = os.open(self._path, flags, 0o600)
        if flags & os.O_ACCMODE == os.O_RDONLY:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return descriptor


def try_direct(directory: str) -> None:
    """Write a page past the page cache, into a file that is removed; `pytest-ckpt doctor` calls it in a child."""
    file = Path(directory) / f"pytest-ckpt-doctor-{own_name()}"
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o600)
        try:
            with mmap.mmap(-1, mmap.PAGESIZE) as page:
                page.write(b"\xa5" * mmap.PAGESIZE)
                os.pwrite(descriptor, page, 0)
        finally:
            os.close(descriptor)
    finally:
        file.unlink(missing_ok=True)
