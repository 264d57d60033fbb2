"""The certificate as a browser prints it: on A4, nothing is cut off, and every sheet names its certificate."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import browser, report_pages
from tests.support.machine import need

pytestmark = pytest.mark.thorough


@pytest.fixture(autouse=True)
def programs() -> None:
    need(browser.CHROMIUM, "there is no Chromium")
    need(shutil.which("pdftotext"), "there are no tools of poppler")


@pytest.mark.parametrize("name", ["certified", "rehearsal", "hostile"])
def test_it_prints_on_a4(name: str, tmp_path: Path) -> None:
    printed = tmp_path / "page.pdf"
    browser.print_pdf(report_pages.certificate(name, tmp_path), printed)
    boxes = re.findall(rb"/MediaBox \[\s*0 0 ([\d.]+) ([\d.]+)\s*\]", printed.read_bytes())
    assert boxes
    assert all((round(float(width)), round(float(height))) == (595, 842) for width, height in boxes)
    words = subprocess.run(["pdftotext", "-bbox", printed, "-"], capture_output=True, text=True, check=True).stdout
    places = [float(x) for x in re.findall(r'<word [^>]*xMax="([\d.]+)"', words)]
    assert places
    assert max(places) < 595 - 15, "something reaches into the margin"
    text = subprocess.run(["pdftotext", "-layout", printed, "-"], capture_output=True, text=True, check=True).stdout
    sheets = text.split("\f")[:-1]
    assert len(sheets) == len(boxes) > 3
    for number, sheet in enumerate(sheets, start=1):
        assert re.search(rf"{number} ?/ ?{len(sheets)}\n", sheet)
        assert f"{'Not certified' if name == 'hostile' else name.capitalize()}, 16,000 accelerators" in sheet
        assert ("REHEARSAL – not a certificate" in sheet) == (name == "rehearsal")
