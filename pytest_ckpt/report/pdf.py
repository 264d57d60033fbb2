"""Writes certificate.pdf from certificate.html, without network access.

The PDF is A4, tagged, and has bookmarks.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pytest_ckpt.support import resources
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.resources import python_path

OLDEST = 68
"""The oldest major version of WeasyPrint whose fetcher can refuse every URL, including redirects."""

_LIBRARIES = (
    "Install Pango and a font. Debian, Ubuntu: apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 "
    "fonts-dejavu-core; Fedora, RHEL: dnf install pango dejavu-sans-fonts."
)
_PACKAGE = "Install it: pip install 'pytest-ckpt[pdf]'"
_HTML = "The HTML certificate has the same content, and a browser can print it."
_EXIT_TOLD = 4
_MAXIMUM_SECONDS = 900
_VARIABLE = re.compile(r"var\((--[a-z0-9-]+)\)")
_SVG = re.compile(r"<svg\b[^>]*>")
_NAMES = re.compile(r"(<title id=\"[^\"]*\">)([^<]*)(</title><desc id=\"[^\"]*\">)([^<]*)")


def check_printer(option: str) -> None:
    """Print a test page as PDF, to detect a missing library at the start of a run, before the measurements.

    If the page cannot be printed, raises UsageError with the remedy. ``option`` is the option that requests a PDF.
    """
    try:
        _print_apart("<!doctype html><html lang=en><title>certified</title><p>certified 0123456789")
    except UsageError as error:
        raise UsageError(f"{option}: {error.what}", error.remedy) from None


def write_pdf(document: dict[str, Any], path: Path) -> None:
    """Write the certificate of a report document, or the table of a tree of published results, as PDF.

    The file appears only when it is complete. Raises UsageError if the page cannot be printed.
    """
    from pytest_ckpt.report.html import render, render_results_table  # noqa: PLC0415 - the printer needs no jinja2

    made = path.with_name(path.name + ".part")
    made.write_bytes(_print_apart(render(document) if "grade" in document else render_results_table(document)))
    made.replace(path)


def _print_apart(page: str) -> bytes:
    """Print an HTML page in a separate process, and return the PDF.

    The process is separate because native libraries may crash, for example Pango without fonts. Such a crash must not
    end the run. Raises UsageError if the page cannot be printed.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest_ckpt.report.pdf"],
            input=page.encode(),
            capture_output=True,
            timeout=_MAXIMUM_SECONDS,
            check=False,
            env={**os.environ, "PYTHONPATH": python_path()},
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"no PDF was printed within {_MAXIMUM_SECONDS} s.", _HTML) from None
    if done.returncode == 0:
        return done.stdout
    output = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode == _EXIT_TOLD:
        what, remedy = json.loads(output[-1])
        raise UsageError(what, remedy)
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    raise UsageError(f"the printer ended with {how}: {output[-1] if output else 'no output'}", _LIBRARIES)


def main() -> int:
    """Read an HTML page from standard input, and write it to standard output as PDF. Return the exit code.

    If an error occurs, the last line of standard error describes the error.
    """
    try:
        made = print_page(sys.stdin.buffer.read().decode())
    except UsageError as error:
        print(json.dumps([error.what, error.remedy]), file=sys.stderr)
        return _EXIT_TOLD
    except Exception as error:  # rendering HTML may raise any error
        print(json.dumps([f"no PDF could be printed: {type(error).__name__}: {error}", _HTML]), file=sys.stderr)
        return _EXIT_TOLD
    sys.stdout.buffer.write(made)
    return 0


def print_page(page: str) -> bytes:
    """Return the PDF of an HTML page of this package.

    The same page, fonts and version of WeasyPrint result in the same bytes. Parts of the page, such as pictures, are
    loaded only from ``data:`` URLs. Raises UsageError if a library is missing. Raises RuntimeError if a part of the
    page cannot be loaded.
    """
    weasyprint = _loaded()
    from weasyprint.urls import URLFetcher  # noqa: PLC0415

    with _faults() as faults:
        # A data URL contains its picture and causes no request.
        nothing = URLFetcher(allowed_protocols=("data",))
        document = weasyprint.HTML(string=_prepared(page), url_fetcher=nothing).render(pdf_tags=True)
        made: bytes = document.write_pdf(pdf_tags=True, finisher=_name_headers)
    if faults:
        raise RuntimeError("; ".join(faults))
    return made


def _loaded() -> Any:
    """Import and return WeasyPrint.

    Raises UsageError if WeasyPrint, a library of the system or all fonts are missing. Also raises UsageError if
    WeasyPrint is older than `OLDEST`.
    """
    try:
        # If a library is missing, WeasyPrint prints a long explanation to standard output. If fonts are missing, it
        # warns, and Pango would crash later.
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            import weasyprint  # noqa: PLC0415 - it loads libraries of the system
    except ImportError:
        raise UsageError("WeasyPrint is not installed.", _PACKAGE) from None
    except OSError as error:
        raise UsageError(f"WeasyPrint cannot load a library: {str(error).splitlines()[0]}", _LIBRARIES) from None
    except UserWarning as warning:
        raise UsageError(f"WeasyPrint finds no fonts: {warning}", _LIBRARIES) from None
    if int(weasyprint.__version__.partition(".")[0]) < OLDEST:
        raise UsageError(f"WeasyPrint {OLDEST} or newer is needed; this is {weasyprint.__version__}.", _PACKAGE)
    return weasyprint


def _prepared(page: str) -> str:
    """Return an HTML page with additional style rules for the printer. Each picture also receives style rules.

    A picture's title and description are joined into one alternative text.
    """
    rules = (resources.directory("templates") / "pdf.css").read_text(encoding="utf-8")
    page = page.replace("</style>", f"{rules}</style>", 1)
    if '<body class="grade-rehearsal">' in page:
        # The appendix is not printed, so links to it are changed to the table of requirements.
        page = _TO_APPENDIX.sub('href="#requirements"', page)
    page = _NAMES.sub(lambda m: f"{m[1]}{m[2]}. {m[4]}{m[3]}{m[4]}", page)
    return _SVG.sub(lambda m: f"{m[0]}<style>{_picture_style()}</style>", page)


@cache
def _picture_style() -> str:
    """Return the style rules for a printed picture, with the colors of the light theme."""
    directory = resources.directory("templates")
    first = (directory / "certificate.css").read_text(encoding="utf-8").partition("}")[0]
    colours = dict(re.findall(r"(--[a-z0-9-]+):\s*([^;]+);", first))
    rules, _, paper = (directory / "charts.css").read_text(encoding="utf-8").partition("@media print {")
    rules = rules.partition("@media screen")[0]
    body = f".chart {{ font-family: {_FAMILY}; }}\n{rules}{paper.rpartition('}')[0]}"
    return _VARIABLE.sub(lambda m: colours[m[1]], re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL))


_TO_APPENDIX = re.compile(r'href="#(?:r-[^"]*|catalogue)"')
_FAMILY = "'Liberation Sans', 'Noto Sans', 'DejaVu Sans', sans-serif"


def _name_headers(_document: Any, pdf: Any) -> None:
    """Replace the ids of table header cells by sequential numbers.

    WeasyPrint uses memory addresses as ids, which differ between runs.
    """
    numbers: dict[Any, int] = {}
    for thing in pdf.objects:
        if isinstance(thing, dict) and "ID" in thing:
            thing["ID"].string = numbers.setdefault(thing["ID"].string, len(numbers) + 1)
    for thing in pdf.objects:
        if isinstance(thing, dict) and isinstance(thing.get("A"), dict):
            for name in thing["A"].get("Headers", ()):
                name.string = numbers.get(name.string, name.string)


@contextlib.contextmanager
def _faults() -> Iterator[list[str]]:
    """Yield a list to which the errors of WeasyPrint during the ``with`` block are added. Warnings are discarded."""
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, collector = logging.getLogger("weasyprint"), Collector(level=logging.ERROR)
    quiet = [logger, logging.getLogger("fontTools")]
    levels = [one.level for one in quiet]
    propagates = logger.propagate
    for one in quiet:
        one.setLevel(logging.ERROR)
    logger.addHandler(collector)
    logger.propagate = False
    try:
        yield messages
    finally:
        logger.removeHandler(collector)
        logger.propagate = propagates
        for one, level in zip(quiet, levels, strict=True):
            one.setLevel(level)


if __name__ == "__main__":
    sys.exit(main())
