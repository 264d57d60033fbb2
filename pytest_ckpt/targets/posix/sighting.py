"""Whether hosts see the same folder under the same path: each finds the files that others made there."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from pytest_ckpt.facts.across_hosts import MountSeen, Sign
from pytest_ckpt.facts.targets import StorageStack
from pytest_ckpt.targets.owner import owner_of
from pytest_ckpt.targets.posix.file_below import seen_storage
from pytest_ckpt.targets.posix.mounts import mount_of

SIGN_PREFIX = ".pytest-ckpt-"

_POLL_SECONDS = 0.05


def sign_of(run_id: str, what: str) -> Sign:
    """Return a file that nobody else makes, for hosts to find: it says whose it is, should its controller be killed."""
    owner = owner_of(run_id) | {"word": secrets.token_hex(16)}
    return Sign(name=f"{SIGN_PREFIX}{run_id}.{what}", word=json.dumps(owner))


class Sighting:
    """The folder of an area, as this host sees it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def is_folder(self) -> bool:
        """Whether there is a folder at all."""
        return self._folder.is_dir()

    @property
    def mount(self) -> MountSeen:
        """The mount that the folder is on; the folder is touched first, for an automounter."""
        with contextlib.suppress(OSError):
            os.statvfs(self._folder)
        mount = mount_of(self._folder.resolve())
        return MountSeen(kind=mount.file_system, source=mount.source, options=mount.options)

    @property
    def storage(self) -> StorageStack:
        """What lies below the folder, and why the count of cached pages misses a cache there."""
        return seen_storage(self._folder)

    @property
    def free_bytes(self) -> int:
        """The space that is free for this process; 0 where there is no folder."""
        try:
            space = os.statvfs(self._folder)
        except OSError:
            return 0
        return space.f_bavail * space.f_frsize

    @property
    def device(self) -> str:
        """The device of the folder's file system as the kernel numbers it, ``major:minor``. Raises OSError."""
        number = self._folder.stat().st_dev
        return f"{os.major(number)}:{os.minor(number)}"

    @contextlib.contextmanager
    def shown(self, sign: Sign) -> Iterator[str]:
        """Make a file for other hosts, and remove it; give why that cannot be done, empty where it is done."""
        try:
            yield self._why_not_made(sign)
        finally:
            with contextlib.suppress(OSError):
                (self._folder / sign.name).unlink(missing_ok=True)

    def instead_of(self, sign: Sign, seconds: float) -> str:
        """Look for a file that another host made, for so long; return what was there instead, empty if it is found.

        On a file system that only this host can see nothing will appear: there one look is enough.
        """
        end = 0.0 if mount_of(self._folder.resolve()).is_local else time.monotonic() + seconds
        while True:
            try:
                if (self._folder / sign.name).read_text(errors="replace") == sign.word:
                    return ""
                seen = "another text in it"
            except OSError as error:
                seen = error.strerror or str(error)
            if time.monotonic() > end:
                return seen
            time.sleep(_POLL_SECONDS)

    def _why_not_made(self, sign: Sign) -> str:
        try:
            with (self._folder / sign.name).open("x") as file:
                file.write(sign.word)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return error.strerror or str(error)
        return ""
