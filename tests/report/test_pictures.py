"""docs/certificates.md shows every picture that the script `certificate_pictures` makes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import CHECKOUT, browser, certificate_pictures
from tests.support.machine import need

PAGE = CHECKOUT / "docs" / "certificates.md"
MAXIMUM_BYTES = 3_000_000


def test_the_page_shows_every_picture_once_and_in_words() -> None:
    shown = re.findall(r"!\[([^\]]{20,})\]\(pictures/([a-z-]+)\.png\)", PAGE.read_text())
    assert sorted(name for _, name in shown) == sorted(certificate_pictures.PICTURES)
    there = {file.stem: file for file in certificate_pictures.DIRECTORY.glob("*.png")}
    made = set(certificate_pictures.PICTURES)
    assert made <= there.keys()
    others = "".join(page.read_text() for page in PAGE.parent.glob("*.md") if page != PAGE)
    assert [name for name in there.keys() - made if f"(pictures/{name}.png)" not in others] == []
    assert sum(file.stat().st_size for file in there.values()) < MAXIMUM_BYTES


@pytest.mark.thorough
def test_the_script_still_makes_them(tmp_path: Path) -> None:
    """The script makes a picture of a screen page and a picture of a printed page."""
    need(browser.CHROMIUM, "there is no Chromium")
    output = subprocess.run(
        [sys.executable, "-m", certificate_pictures.__name__, f"--directory={tmp_path}", "evidence", "print"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.count(".png") == 2
    assert all(browser.picture_statistics(tmp_path / f"{n}.png")[0] > 100 for n in ("evidence", "print"))
