"""The certificate in a real browser: it draws, prints on A4, and says nothing on the console."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import made_up
import pytest

from pytest_ckpt.report.html import write_certificate

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

DOCUMENTS = {
    "certified": lambda: made_up.document("certified", subjects=("llama3-8b-full", "llama3-1t-full")),
    "hostile": lambda: made_up.document("not certified", text=made_up.HOSTILE, fail_after=2),
    "rehearsal": lambda: made_up.document("rehearsal"),
}


def _browse(folder: Path, name: str, *arguments: str) -> str:
    """Run Chromium on a made-up certificate and return what it wrote to its console and log."""
    write_certificate(DOCUMENTS[name](), folder / "certificate.html")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars",
        "--enable-logging=stderr", "--disable-dev-shm-usage", f"--user-data-dir={folder / 'profile'}",
        "--window-size=1200,1600", *arguments,
        (folder / "certificate.html").as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def _colours(png: bytes) -> int:
    """Return how many different byte values the image data of a PNG file has; a blank page has very few."""
    assert png.startswith(b"\x89PNG")
    position, data = 8, b""
    while position < len(png):
        (length,) = struct.unpack(">I", png[position : position + 4])
        if png[position + 4 : position + 8] == b"IDAT":
            data += png[position + 8 : position + 8 + length]
        position += length + 12
    return len(set(zlib.decompress(data)))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_it_draws_without_a_word_on_the_console(name: str, tmp_path: Path) -> None:
    said = _browse(tmp_path, name, f"--screenshot={tmp_path / 'page.png'}")
    assert "CONSOLE" not in said
    assert _colours((tmp_path / "page.png").read_bytes()) > 100


def test_it_prints_on_a4(tmp_path: Path) -> None:
    _browse(tmp_path, "certified", f"--print-to-pdf={tmp_path / 'page.pdf'}", "--no-pdf-header-footer")
    printed = (tmp_path / "page.pdf").read_bytes()
    assert printed.startswith(b"%PDF")
    boxes = re.findall(rb"/MediaBox \[\s*0 0 ([\d.]+) ([\d.]+)\s*\]", printed)
    assert boxes
    assert all((round(float(width)), round(float(height))) == (595, 842) for width, height in boxes)
