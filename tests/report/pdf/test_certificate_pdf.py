"""The certificate as PDF: the text of the HTML page, on A4, without external data, and reproducible."""

from __future__ import annotations

import contextlib
import http.server
import os
import re
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_ckpt.report.html import render
from pytest_ckpt.report.pdf import print_page, write_pdf
from tests.support import report_pages
from tests.support.pdf_files import output_of

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet


def opened(file: Path) -> bytes:
    """Return the bytes of a PDF, followed by the decompressed streams of the PDF."""
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
    """Return a function that prints a constructed document to a PDF and returns the file.

    The function prints each document only once, because printing takes seconds.
    """

    @cache
    def print_once(name: str) -> Path:
        file = tmp_path_factory.mktemp("pdf") / "certificate.pdf"
        write_pdf(report_pages.document(name), file)
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


def test_the_pdf_contains_the_text_of_the_page_and_nothing_is_cut(printed: tuple[str, Path]) -> None:
    name, file = printed
    document = report_pages.document(name)
    text = " ".join(output_of("pdftotext", "-layout", file, "-").split())
    for reason in document["grade_reasons"][:3]:
        words = [w for w in reason.split()[:4] if w.isascii()]
        assert words[0] in text
    for heading in ("Limits and their origin", "Requirements", "How large a cluster this storage would serve"):
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
    for name in ("Behaviour of the target", "Limits and their origin"):
        assert name in text
    # The parts that are left out are named.
    assert "With their defaults" not in text
    assert "Shown only on a screen: goodput at other clusters, sizes, settings, time by phase" in text


def test_every_heading_is_a_bookmark(printer: Printer) -> None:
    raw = opened(printer("certified"))
    for heading in ("Certified", "Requirements", "llama3-8b-full/stream", "Disclosures"):
        assert f"/Title ({heading})".encode() in raw


@pytest.mark.thorough
def test_pictures_are_in_colour_and_described(printer: Printer, tmp_path: Path) -> None:
    """Charts have their colours and an alternative text.

    The style sheet of the page does not apply inside an SVG. A chart without its own style sheet would be black.
    """
    from PIL import Image  # noqa: PLC0415

    file = printer("not certified")
    output_of("pdftoppm", "-r", 60, "-png", file, tmp_path / "sheet")
    seen = set()
    for sheet in tmp_path.glob("sheet-*.png"):
        with Image.open(sheet) as image:
            seen |= {colour for count, colour in image.convert("RGB").getcolors(1 << 24) if count > 3}
    for colour in ((0, 114, 178), (163, 74, 134), (230, 159, 0), (179, 54, 11)):  # save, load, fsync, failure
        assert any(max(abs(a - b) for a, b in zip(colour, other, strict=True)) < 12 for other in seen), colour
    assert b"/Alt (Time of every save, slowest rank and spread over ranks. 10 of 10 saves." in opened(file)


@pytest.mark.thorough
def test_the_same_page_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(render(report_pages.document("certified")), encoding="utf-8")
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
def test_a_planted_address_is_neither_requested_nor_read(
    planted: str, server: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, asked = server
    (tmp_path / "secret.svg").write_text(
        "<svg xmlns='http://www.w3.org/2000/svg'><title>planted secret</title><text y='9'>planted secret</text></svg>"
    )
    for url in (f"{address}/planted", (tmp_path / "secret.svg").as_uri(), "data:image/svg+xml,<svg/>"):
        page = f"<!doctype html><html lang=en><title>x</title>{planted.format(url=url)}<p>text"
        with contextlib.suppress(RuntimeError):  # a missing file is an error, or left out
            assert b"planted secret" not in print_page(page)
    assert asked == []


def test_the_server_would_have_been_asked(server: tuple[str, list[str]]) -> None:
    """Without the fetcher of pytest-ckpt, WeasyPrint requests an external picture from the server.

    This shows that the previous test would fail without the fetcher.
    """
    import weasyprint  # noqa: PLC0415

    address, asked = server
    weasyprint.HTML(string=f"<!doctype html><html lang=en><img alt=x src='{address}/planted'>").write_pdf()
    assert asked == ["/planted"]
