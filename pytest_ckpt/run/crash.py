"""An error of our own: one sentence for people, its traceback in a file, and an exit code that no verdict has."""

from __future__ import annotations

import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ckpt.support.redaction import Redactor

CRASH_FILE = "crash.txt"


class Crash(Exception):  # noqa: N818 - what it wraps is the error
    """Something of ours broke; the message is a sentence for people, which names the file with the traceback."""


def keep_traceback(error: BaseException, folder: Path | None, redactor: Redactor) -> str:
    """Append an error's traceback to a file in a folder, a new one for None; return the sentence that names both.

    Where nothing can be written, the sentence says where the error arose instead.
    """
    text = redactor.text("".join(traceback.format_exception(error)))
    what = redactor.text(f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": "))
    try:
        place = folder or Path(tempfile.mkdtemp(prefix="pytest-ckpt-crash-"))
        place.mkdir(parents=True, exist_ok=True)
        with (place / CRASH_FILE).open("a") as log:
            log.write(text + "\n")
    except OSError:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"it arose in {Path(frame.filename).name}, line {frame.lineno}"
    else:
        where = f"its traceback is in {place / CRASH_FILE}"
    return f"This is an error of pytest-ckpt and says nothing of the storage: {what}; {where}."
