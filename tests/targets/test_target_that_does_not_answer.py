"""If a required system call on a target directory fails, the directory is refused; the error states a remedy."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest import mock

import pytest

from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.posix.run_directory import remove
from pytest_ckpt.targets.posix.target import PosixTarget

CALLS = ("stat", "statvfs", "scandir", "access")
ERRNOS = (
    errno.EIO, errno.ESTALE, errno.EACCES, errno.EPERM, errno.ETIMEDOUT, errno.ENOSYS, errno.ENOTCONN
)  # fmt: skip


@pytest.mark.parametrize("number", ERRNOS, ids=lambda n: errno.errorcode[n])
@pytest.mark.parametrize("call", CALLS)
def test_whatever_call_fails_it_is_refused_with_a_remedy(call: str, number: int, tmp_path: Path) -> None:
    target = PosixTarget(str(tmp_path))
    honest = getattr(os, call)

    def failing(path: object, *arguments: object, **named: object) -> object:
        if isinstance(path, str | Path) and Path(path) == tmp_path:
            raise OSError(number, os.strerror(number), str(path))
        return honest(path, *arguments, **named)

    with mock.patch.object(os, call, failing), pytest.raises(UsageError) as refused:
        target.check()
    assert errno.errorcode[number] in refused.value.what
    assert str(tmp_path) in refused.value.what
    assert refused.value.remedy


def test_a_directory_that_cannot_be_removed_is_reported(tmp_path: Path) -> None:
    target = PosixTarget(str(tmp_path))
    area = target.create_area("busy")
    with mock.patch.object(Path, "rmdir", side_effect=OSError(errno.EIO, os.strerror(errno.EIO))):
        left = remove(Path(area.location), [int(n) for n in area.identity], ())
    assert left == [f"{area.location} was not removed: {os.strerror(errno.EIO)}"]
