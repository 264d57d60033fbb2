"""Creates the certificate of a run in a separate process, only from the files of the run.

Conftests and plugins execute in pytest's process and could alter verdicts. So pytest's process only writes the facts
and a draft of the report. Then it starts ``python -I``, which ignores Python's environment variables, the current
directory and the user's packages. This isolated process judges the facts with the code of ``pytest-ckpt judge``. It
reports every verdict of the draft that contradicts the facts. It also writes report, certificate, JUnit file, digests
and signature.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.evidence.judged_run import altered_tables, judged_run, odd_facts_named, without_trust
from pytest_ckpt.evidence.manifest import report_text
from pytest_ckpt.evidence.run_files import REPORT, Document, ReadDocument, read_report
from pytest_ckpt.grading.grading import EXIT_FAILED, EXIT_INCOMPLETE
from pytest_ckpt.launching.recorder import write_atomically
from pytest_ckpt.run.crash import ReportDirectoryError, of_report_directory
from pytest_ckpt.support import waits
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.processes import describe_exit
from pytest_ckpt.support.resources import PACKAGE_HOME
from pytest_ckpt.support.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ckpt.evidence.signing import Signer

NOT_CERTIFIED_YET = "The report was not completed: the process that judges the files of the run did not end well."
# The exit code of that process if the report directory cannot be written.
_DIRECTORY_REFUSED = 2
# A run of weeks with thousands of ranks is judged in less than a minute.
_SECONDS = 900.0
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); sys.path.extend(filter(None, sys.argv.pop(1).split(':'))); "
    "from pytest_ckpt.run.certify import main; sys.exit(main(sys.argv[1]))"
)
# That process receives the variables that locate programs, files and locales, and no variable that changes its
# behaviour.
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ", "XDG_CACHE_HOME", "SOURCE_DATE_EPOCH",
                   "OPENBLAS_NUM_THREADS", "SSL_CERT_FILE")  # fmt: skip


# The libraries that the isolated process needs. The packages that these import are installed in the same directories.
_LIBRARIES = ("jinja2", "markupsafe", "numpy", "cryptography", "weasyprint")


class NotCertifiedError(Exception):
    """Raised if the isolated process ended without a report; the message is the reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CertifyRequest:
    """The input of the isolated process.

    ``directory`` is the run directory, ``exit_code`` the exit code of pytest. If ``is_final``, the run ends with this
    exit code, whatever the verdicts are. If ``pdf``, the process also writes a PDF.
    """

    directory: str
    exit_code: int
    is_final: bool
    pdf: bool


def library_homes() -> list[str]:
    """Return the directories that contain the libraries of the isolated process.

    ``python -I`` does not search a user's packages and PYTHONPATH. These directories are therefore appended to
    ``sys.path`` of the isolated process. At the end of the path, they cannot replace the standard library or packages
    installed with Python.
    """
    places = []
    for name in _LIBRARIES:
        spec = importlib.util.find_spec(name)
        if spec and spec.origin:
            places.append(str(Path(spec.origin).parents[1 if spec.submodule_search_locations else 0]))
    return list(dict.fromkeys(places))


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}


def certified(draft: Document, closing: CertifyRequest, signer: Signer | None = None) -> tuple[Document, str]:
    """Write a draft, and let the isolated process create the report from this draft.

    Return the report, and a sentence on the PDF (empty without a PDF). ``signer`` contains a key that was read before
    the run; the isolated process receives this key. Raises NotCertifiedError and ReportDirectoryError. After an error,
    the directory may contain only the draft, with the grade incomplete.
    """
    directory, request_line = Path(closing.directory), json.dumps(dataclasses.asdict(closing))
    write_draft(draft, directory)
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, str(PACKAGE_HOME), os.pathsep.join(library_homes()), request_line],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",
            env=_environment(),
            # A Ctrl-C in the terminal is for pytest only.
            start_new_session=True,
        )
        with waits.waiting("judging the files of the run"):
            # Not as an argument, so that the key does not appear in lists of processes.
            done = waits.completed(process, signer.pem if signer else "", seconds=_SECONDS)
    except subprocess.TimeoutExpired:
        raise NotCertifiedError(f"it did not end in {format_seconds(_SECONDS)}") from None
    if done.returncode:
        how = (
            f"the process that judges the files of the run {describe_exit(done.returncode)}; "
            f"'pytest-ckpt judge {shlex.quote(closing.directory)}' judges them again"
        )
        # A killed process may have written its output before.
        words = (done.stderr.strip().splitlines() if done.returncode > 0 else []) or [how]
        raise (ReportDirectoryError if done.returncode == _DIRECTORY_REFUSED else NotCertifiedError)(words[-1])
    document: Document = json.loads((directory / REPORT).read_text())
    return document, done.stdout.strip()


def write_draft(draft: ReadDocument, directory: Path) -> None:
    """Write a draft of the report with the grade incomplete. The isolated process replaces the draft later."""
    reasons = [NOT_CERTIFIED_YET, *draft["grade_reasons"]]
    undecided = {"grade": "incomplete", "certified_for": None, "exit_code": EXIT_INCOMPLETE, "grade_reasons": reasons}
    write_atomically(directory / REPORT, report_text({**draft, **undecided}))


def main(request_line: str) -> int:
    """Judge a run, write its files, and print the sentence on the PDF. Return the exit code of the process.

    The isolated process calls this function; ``request_line`` is a `CertifyRequest` in JSON.
    """
    from pytest_ckpt.evidence.signing import signer_of  # noqa: PLC0415 - cryptography only where it is needed
    from pytest_ckpt.run.close import write_report  # noqa: PLC0415

    closing = CertifyRequest(**json.loads(request_line))
    directory = Path(closing.directory)
    try:
        document = judged(directory, closing)
        key = sys.stdin.read()
        signer = signer_of(key) if key else None
        print(write_report(document, directory, signer, pdf=closing.pdf))
    except UsageError as error:
        print(error.what, file=sys.stderr)
        return 1
    except OSError as error:
        if (refused := of_report_directory(error, directory)) is None:
            raise
        print(refused, file=sys.stderr)
        return _DIRECTORY_REFUSED
    return 0


def judged(directory: Path, closing: CertifyRequest) -> Document:
    """Return the report of a run, judged from its draft and its facts.

    Raises UsageError if no run could have written these files.
    """
    draft = read_report(directory)
    if closing.is_final:
        draft["exit_code"] = closing.exit_code
    with odd_facts_named(directory):
        run = judged_run(directory, draft, {}, as_recorded=True, decides_all=True)
        document = run.document()
    # Parts that do not depend on the judgement: place and time of the run, and the sections of plugins.
    document |= {"run": draft["run"], "sections": draft["sections"]}
    code = document["exit_code"]
    # A failed test outside the suites still counts.
    if closing.is_final or (closing.exit_code == EXIT_FAILED and code != EXIT_FAILED):
        document["exit_code"] = closing.exit_code
    doubts = [*_contradictions(draft, document)]
    if tables := altered_tables(document):
        doubts.append(
            f"The tables of the run differ from the tables of this version ({', '.join(tables)}): they were altered in "
            "pytest's process."
        )
    if doubts:
        document = without_trust(document, doubts)
        document["certified_for"] = None
    return document


def _contradictions(draft: ReadDocument, document: ReadDocument) -> Iterable[str]:
    """Yield a sentence for each verdict in the draft that contradicts the verdict derived from the facts.

    A draft verdict "not run" contradicts no other verdict.
    """
    derived = {(v["id"], v["subject"]): v for v in document["requirements"]}
    for verdict in draft["requirements"]:
        there, name = verdict["outcome"], f"{verdict['id']} of {verdict['subject']}"
        here = derived.get((verdict["id"], verdict["subject"]), {}).get("outcome", "not run")
        if there not in ("not run", here):
            yield (
                f"pytest's process decided '{there}' for {name}, and its facts give '{here}': something altered the "
                "judges in pytest's process."
            )
