"""Reports an internal error: a sentence for the user, a file with the traceback, and a separate exit code.

A report directory that cannot be written, for example because it is full, is reported separately. This problem is
neither an internal error nor an error of the target.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ckpt.support.redaction import Redactor

CRASH_FILE = "crash.txt"
_REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
# The size of the test file: a report may not fit although a smaller file still fits.
_TRIED_BYTES = 1 << 20


class Crash(Exception):  # noqa: N818 - what it wraps is the error
    """An internal error. The message is a sentence for the user that names the file with the traceback."""


class ReportDirectoryError(Exception):
    """The report directory cannot be written. The message is a sentence with the remedy."""


def of_report_directory(error: BaseException, directory: Path) -> ReportDirectoryError | None:
    """Return a ReportDirectoryError if the report directory caused ``error``; otherwise None.

    If ``error`` names no file, a test file is created in the directory to find the cause.
    """
    if isinstance(error, ReportDirectoryError):
        return error
    if not isinstance(error, OSError) or not (error.errno in _REFUSED or isinstance(error, shutil.Error)):
        return None
    names = [Path(os.fsdecode(name)) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    cause = _refusal_of(directory) if not names else error if any(directory in name.parents for name in names) else None
    if cause is None:
        return None
    remedy = "Give it space" if cause.errno in (errno.ENOSPC, errno.EDQUOT) else "Repair it"
    return ReportDirectoryError(
        f"The report directory {directory} cannot be written: {cause.strerror}. {remedy}, or name another with "
        "--ckpt-report, and run again. This error ended the run; the storage is not judged by it."
    )


def _refusal_of(directory: Path) -> OSError | None:
    """Write a test file to the directory and remove it. If writing fails, return the error; otherwise None."""
    file = directory / f".tried.{os.getpid()}"
    try:
        with file.open("wb") as tried:
            tried.write(bytes(_TRIED_BYTES))
            tried.flush()
            os.fsync(tried.fileno())
    except OSError as refused:
        return refused
    finally:
        with contextlib.suppress(OSError):
            file.unlink()
    return None


def store_traceback(error: BaseException, directory: Path | None, redactor: Redactor) -> str:
    """Append the traceback of ``error`` to a file; return a sentence that names the file.

    The file is in ``directory``, or in a new directory if ``directory`` is None. If the file cannot be written, the
    sentence contains the line of code that raised ``error``. If ``directory`` itself caused ``error``, no file is
    written. The sentence then states this cause.
    """
    if directory and (refused := of_report_directory(error, directory)):
        return redactor.text(str(refused))
    text = redactor.text("".join(traceback.format_exception(error)))
    what = redactor.text(f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": "))
    try:
        place = directory or Path(tempfile.mkdtemp(prefix="pytest-ckpt-crash-"))
        place.mkdir(parents=True, exist_ok=True)
        with (place / CRASH_FILE).open("a") as log:
            log.write(text + "\n")
    except OSError:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"it arose in {Path(frame.filename).name}, line {frame.lineno}"
    else:
        where = f"its traceback is in {place / CRASH_FILE}"
    return f"This is an error of pytest-ckpt, not of the storage: {what}; {where}."
