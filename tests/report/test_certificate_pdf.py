"""The certificate as PDF: it says what the page says, on A4, fetches nothing, and is the same again."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.manifest import MANIFEST, write_manifest
from pytest_ckpt.evidence.verification import verify_folder
from pytest_ckpt.report.html import render
from pytest_ckpt.report.pdf import check_printer, print_page, write_pdf
from pytest_ckpt.run.close import write_report
from pytest_ckpt.support.errors import UsageError
from tests.support import made_up_run, report_pages
from tests.support.machine import need

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet


@pytest.fixture(autouse=True)
def poppler() -> None:
    need(shutil.which("pdftotext"), "there are no tools of poppler")


def output_of(tool: str, *words: object) -> str:
    return subprocess.run([tool, *map(str, words)], capture_output=True, text=True, check=True).stdout


def opened(file: Path) -> bytes:
    """Return everything in a PDF, with what is compressed unpacked."""
    raw = file.read_bytes()
    packed = re.findall(rb"stream\r?\n(.*?)\nendstream", raw, re.DOTALL)
    found = [raw]
    for part in packed:
        with contextlib.suppress(zlib.error):
            found.append(zlib.decompress(part))
    return b"\n".join(found)


Printer = Callable[[str], Path]


@pytest.fixture(scope="module")
def printer(tmp_path_factory: pytest.TempPathFactory) -> Printer:
    """Prints a document once, whoever looks at it: a print costs seconds of a core."""

    @cache
    def print_once(name: str) -> Path:
        file = tmp_path_factory.mktemp("pdf") / "certificate.pdf"
        write_pdf(report_pages.DOCUMENTS[name](), file)
        return file

    return print_once


def thorough(name: str) -> ParameterSet:
    return pytest.param(name, marks=pytest.mark.thorough)


@pytest.fixture(params=["certified", *map(thorough, ["not certified", "rehearsal", "hostile", "nothing ran"])])
def printed(request: pytest.FixtureRequest, printer: Printer) -> tuple[str, Path]:
    return request.param, printer(request.param)


def test_it_has_a_title_a_language_tags_and_the_size_of_a4(printed: tuple[str, Path]) -> None:
    name, file = printed
    facts = dict(re.findall(r"^([^:]+): +(.*)$", output_of("pdfinfo", file), re.MULTILINE))
    grade = {"hostile": "Not certified", "nothing ran": "Incomplete"}.get(name, name.capitalize())
    assert facts["Title"] == f"{grade}: checkpoint storage for 16,000 accelerators"
    assert facts["Creator"].startswith("pytest-ckpt ")
    assert facts["Tagged"] == "yes"
    assert facts["Page size"].endswith("(A4)")
    assert facts["JavaScript"] == "no"
    assert b"/Lang (en)" in opened(file)


def test_it_says_what_the_page_says_and_nothing_is_cut(printed: tuple[str, Path]) -> None:
    name, file = printed
    document = report_pages.DOCUMENTS[name]()
    text = " ".join(output_of("pdftotext", "-layout", file, "-").split())
    for reason in document["grade_reasons"][:3]:
        words = [w for w in reason.split()[:4] if w.isascii()]
        assert words[0] in text
    for heading in ("Limits and where they come from", "Requirements", "How large a cluster this storage would serve"):
        assert heading in text
    words = output_of("pdftotext", "-bbox", file, "-")
    right = [float(x) for x in re.findall(r'<word [^>]*xMax="([\d.]+)"', words)]
    assert max(right) < 595 - 30, "something reaches into the margin"
    sheets = output_of("pdftotext", "-layout", file, "-").split("\f")[:-1]
    for number, sheet in enumerate(sheets, start=1):
        assert re.search(rf"{number} ?/ ?{len(sheets)}\n", sheet)


@pytest.mark.thorough
def test_a_rehearsal_of_four_models_is_few_sheets(printer: Printer) -> None:
    file = printer("rehearsal")
    assert len(output_of("pdftotext", "-layout", file, "-").split("\f")[:-1]) <= 9
    text = " ".join(output_of("pdftotext", file, "-").split())
    for name in ("Behaviour of the target", "Limits and where they come from"):
        assert name in text
    # What is not printed is named.
    assert "With their defaults" not in text
    assert "On a screen alone: goodput at other clusters, sizes, settings, where time went" in text


def test_every_heading_is_a_bookmark(printer: Printer) -> None:
    raw = opened(printer("certified"))
    for heading in ("Certified", "Requirements", "llama3-8b-full/stream", "Disclosures"):
        assert f"/Title ({heading})".encode() in raw


@pytest.mark.thorough
def test_pictures_are_in_colour_and_described(printer: Printer, tmp_path: Path) -> None:
    """A style sheet of the page does not reach into an SVG there: without its own, all would be black."""
    from PIL import Image  # noqa: PLC0415

    file = printer("not certified")
    output_of("pdftoppm", "-r", 60, "-png", file, tmp_path / "sheet")
    seen = set()
    for sheet in tmp_path.glob("sheet-*.png"):
        with Image.open(sheet) as image:
            seen |= {colour for count, colour in image.convert("RGB").getcolors(1 << 24) if count > 3}
    for colour in ((0, 114, 178), (163, 74, 134), (230, 159, 0), (179, 54, 11)):  # save, load, fsync, bad
        assert any(max(abs(a - b) for a, b in zip(colour, other, strict=True)) < 12 for other in seen), colour
    assert b"/Alt (Time of every save, slowest rank and spread over ranks. 10 of 10 saves." in opened(file)


@pytest.mark.thorough
def test_the_same_page_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(render(report_pages.DOCUMENTS["certified"]()), encoding="utf-8")
    code = (
        "import sys; from pathlib import Path; from pytest_ckpt.report.pdf import print_page; "
        "Path(sys.argv[2]).write_bytes(print_page(Path(sys.argv[1]).read_text(encoding='utf-8')))"
    )
    for number in (1, 2):
        environment = {**os.environ, "PYTHONHASHSEED": str(number), "TZ": f"UTC{number}"}
        subprocess.run([sys.executable, "-c", code, page, tmp_path / f"{number}.pdf"], check=True, env=environment)
    assert (tmp_path / "1.pdf").read_bytes() == (tmp_path / "2.pdf").read_bytes()


# --- nothing is fetched ----------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> tuple[str, list[str]]:
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}", asked
        served.shutdown()
        thread.join()


PLANTED = [
    "<img src='{url}'>",
    "<link rel=stylesheet href='{url}'>",
    "<style>@import '{url}';</style>",
    "<style>p {{ background: url('{url}') }}</style>",
    "<style>@font-face {{ font-family: x; src: url('{url}') }} p {{ font-family: x }}</style>",
    "<svg viewBox='0 0 9 9'><image href='{url}' width='9' height='9'/></svg>",
    "<link rel=attachment href='{url}'>",
    "<object data='{url}'></object>",
]


@pytest.mark.thorough
@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_address_is_neither_asked_for_nor_read(
    planted: str, server: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, asked = server
    (tmp_path / "secret.svg").write_text(
        "<svg xmlns='http://www.w3.org/2000/svg'><title>planted secret</title><text y='9'>planted secret</text></svg>"
    )
    for url in (f"{address}/planted", (tmp_path / "secret.svg").as_uri(), "data:image/svg+xml,<svg/>"):
        page = f"<!doctype html><html lang=en><title>x</title>{planted.format(url=url)}<p>text"
        with contextlib.suppress(RuntimeError):  # what cannot be had is an error, or left out
            assert b"planted secret" not in print_page(page)
    assert asked == []


def test_the_server_would_have_been_asked(server: tuple[str, list[str]]) -> None:
    """Without our fetcher the same page does ask."""
    import weasyprint  # noqa: PLC0415

    address, asked = server
    weasyprint.HTML(string=f"<!doctype html><html lang=en><img alt=x src='{address}/planted'>").write_pdf()
    assert asked == ["/planted"]


# --- in a run folder -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_with_pdf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("pdf") / "run"
    document = made_up_run.make_run(run, options={"ckpt_pdf": "on"})
    assert write_report(document, run, pdf=True) == f"PDF: {run / 'certificate.pdf'}"
    return run


@pytest.fixture
def folder(run_with_pdf: Path, tmp_path: Path) -> Path:
    return shutil.copytree(run_with_pdf, tmp_path / "run")


def outcomes(folder: Path) -> dict[str, str]:
    return {c.name: c.outcome for c in verify_folder(folder, None)}


@pytest.mark.thorough
def test_verify_covers_it(folder: Path) -> None:
    assert "certificate.pdf" in (folder / MANIFEST).read_text()
    assert outcomes(folder) == {
        "digests": "holds", "schema": "holds", "verdicts": "holds", "pages": "holds", "pdf": "holds",
        "signature": "not checked",
    }  # fmt: skip
    data = bytearray((folder / "certificate.pdf").read_bytes())
    data[-1] ^= 1
    (folder / "certificate.pdf").write_bytes(data)
    (digests, *_) = verify_folder(folder, None)
    assert (digests.outcome, digests.details) == ("broken", ("changed: certificate.pdf",))


@pytest.mark.thorough
def test_another_pdf_with_a_manifest_to_fit_is_not_said_to_hold(folder: Path, tmp_path: Path) -> None:
    document = json.loads((folder / "report.json").read_text())
    write_pdf(document | {"grade": "certified"}, folder / "certificate.pdf")
    write_manifest(folder)
    (check,) = (c for c in verify_folder(folder, None) if c.name == "pdf")
    assert check.outcome == "not checked"
    assert "only its digest says" in check.description


def without_weasyprint(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> None:
    """Let every process that is started from now on find this module in the place of WeasyPrint."""
    folder.mkdir()
    (folder / "weasyprint.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(Path(__file__).parents[2])]))


@pytest.mark.thorough
def test_without_the_printer_verify_says_what_it_could_not_check(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_weasyprint(monkeypatch, tmp_path / "none", "raise ImportError")
    (check,) = (c for c in verify_folder(folder, None) if c.name == "pdf")
    assert check.outcome == "not checked"
    assert "WeasyPrint is not installed" in check.description


FAILING = {
    "__version__ = '70.0'\nHTML = lambda **_: 1 // 0": "ZeroDivisionError",
    "__version__ = '70.0'\nimport os; HTML = lambda **_: os.abort()": "signal 6",
    "__version__ = '70.0'\nimport os; HTML = lambda **_: os._exit(1)": "exit code 1",
}


@pytest.mark.parametrize("code", FAILING)
def test_a_printer_that_fails_or_crashes_costs_the_run_neither_report_nor_digests(
    code: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "certificate.pdf").unlink()
    without_weasyprint(monkeypatch, tmp_path / "broken", code)
    (tmp_path / "broken" / "weasyprint.py").rename(tmp_path / "broken" / "code.py")
    (tmp_path / "broken" / "weasyprint").mkdir()
    (tmp_path / "broken" / "code.py").rename(tmp_path / "broken" / "weasyprint" / "__init__.py")
    (tmp_path / "broken" / "weasyprint" / "urls.py").write_text("URLFetcher = lambda **_: None\n")
    document = write_report(json.loads((folder / "report.json").read_text()), folder, pdf=True)
    assert document.startswith(f"THERE IS NO PDF: {folder / 'certificate.pdf'}: ")
    assert FAILING[code] in document
    assert {n: o for n, o in outcomes(folder).items() if n != "signature"} == {
        "digests": "holds", "schema": "holds", "verdicts": "holds", "pages": "holds"
    }  # fmt: skip
    assert not list(folder.glob("*.part"))


@pytest.mark.thorough
def test_judge_writes_a_pdf_of_a_run_and_of_a_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_up_run.make_run(tmp_path / "run")
    main(["judge", str(tmp_path / "run"), "--cluster=24000", f"--pdf={tmp_path / 'again.pdf'}"])
    assert "24,000 accelerators" in output_of("pdftotext", tmp_path / "again.pdf", "-")
    (tmp_path / "tree").mkdir()
    report_pages.judged_tree(tmp_path / "tree")
    main(["judge", str(tmp_path / "tree" / "made-up"), "--cluster=16000", f"--pdf={tmp_path / 'table.pdf'}"])
    assert "Systems and checkpoints" in output_of("pdftotext", tmp_path / "table.pdf", "-")


# --- what is missing is told before a run -----------------------------------------------------------------------------


def test_a_printer_that_works_is_no_error() -> None:
    check_printer("--ckpt-pdf")


def test_without_weasyprint_the_remedy_is_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_weasyprint(monkeypatch, tmp_path / "none", "raise ImportError")
    with pytest.raises(
        UsageError, match=r"--ckpt-pdf: WeasyPrint is not installed\.\n.*pip install 'pytest-ckpt\[pdf\]'"
    ):
        check_printer("--ckpt-pdf")


def test_an_old_weasyprint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_weasyprint(monkeypatch, tmp_path / "old", "__version__ = '67.0'")
    with pytest.raises(UsageError, match=r"WeasyPrint 68 or newer is needed; this is 67\.0"):
        check_printer("--ckpt-pdf")


def run_with_broken_printer(tmp_path: Path, code: str, *words: str, **environment: str) -> subprocess.CompletedProcess:
    """Run a command of ours where ``weasyprint`` is a module of this code."""
    (tmp_path / "weasyprint.py").write_text(code)
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )  # fmt: skip


def test_without_pango_a_run_ends_before_it_writes_anything(tmp_path: Path) -> None:
    """As WeasyPrint does it: an OSError from loading a library, after a page of advice on standard output."""
    (tmp_path / "target").mkdir()
    code = "print('could not import some external libraries')\nraise OSError(\"cannot load library 'libpango-1.0-0'\")"
    done = run_with_broken_printer(
        tmp_path, code, "-m", "pytest", "-p", "pytest_ckpt.plugin.session_hooks", "-p", "no:cacheprovider",
        f"--ckpt-target={tmp_path / 'target'}", "--cluster=64", "--ckpt-profile=smoke", "--ckpt-pdf",
        f"--ckpt-report={tmp_path / 'report'}",
    )  # fmt: skip
    assert done.returncode == 4
    assert "cannot load library 'libpango-1.0-0'" in done.stderr
    assert "apt-get install libpango-1.0-0" in done.stderr
    assert "external libraries" not in done.stdout
    assert list((tmp_path / "target").iterdir()) == []
    assert not (tmp_path / "report").exists()


@pytest.mark.thorough
def test_judge_and_doctor_say_the_same(tmp_path: Path) -> None:
    made_up_run.make_run(tmp_path / "run")
    code = "raise OSError(\"cannot load library 'libpango-1.0-0'\")"
    done = run_with_broken_printer(tmp_path, code, "-m", "pytest_ckpt.cli.main", "judge", "run", "--pdf=x.pdf")
    assert (done.returncode, done.stdout) == (4, "")
    assert "libpango" in done.stderr
    done = run_with_broken_printer(
        tmp_path, code, "-m", "pytest_ckpt.cli.main", "doctor", "--ckpt-pdf", "--ckpt-processes=2", "--json"
    )
    assert done.returncode == 4
    assert next(f for f in json.loads(done.stdout)["findings"] if f["name"] == "PDF")["remedy"].startswith("Install")


def test_a_machine_without_fonts_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fonts.conf").write_text('<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig/>')
    monkeypatch.setenv("FONTCONFIG_FILE", str(tmp_path / "fonts.conf"))
    with pytest.raises(UsageError, match="finds no fonts") as caught:
        check_printer("--ckpt-pdf")
    assert "fonts-dejavu-core" in caught.value.remedy
