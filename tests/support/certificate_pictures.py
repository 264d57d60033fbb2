"""Generates the pictures of docs/certificates.md: ``python -m tests.support.certificate_pictures [NAME …]``.

The program needs Chromium, WeasyPrint and pdftoppm. All values in the pictures are invented, and every picture states
this.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from pytest_ckpt.report.pdf import write_pdf
from tests.support import CHECKOUT, browser, report_pages

DIRECTORY = CHECKOUT / "docs" / "pictures"
_WIDTH = 1180


def _screen(page: str, height: int, *, dark: bool = False, at: str = "") -> Callable[[Path, Path], None]:
    """Return a function that writes a screenshot of a page.

    If ``at`` is given, the screenshot begins at the section with this id.
    """

    def make(directory: Path, picture: Path) -> None:
        file = report_pages.PAGES[page](directory)
        if at:
            # Everything before the shown part is removed; the shown part is unchanged.
            text = file.read_text(encoding="utf-8")
            before, found, rest = text.partition(f'<section class="subject" id="{at}">')
            assert found, at
            file.write_text(before[: before.index("<main>")] + "<main>" + found + rest, encoding="utf-8")
        visit = browser.screenshot(file, picture, width=_WIDTH, height=height, dark=dark)
        assert visit.console == visit.requests == ()

    return make


def _paper(document: str, sheets: int) -> Callable[[Path, Path], None]:
    """Return a function that writes a picture of the first ``sheets`` pages of a PDF, side by side."""

    def make(directory: Path, picture: Path) -> None:
        write_pdf(report_pages.document(document), directory / "certificate.pdf")
        words = ["pdftoppm", "-r", "80", "-png", "-l", str(sheets), directory / "certificate.pdf", directory / "sheet"]
        subprocess.run(words, check=True)
        drawn = [Image.open(file).convert("RGB") for file in sorted(directory.glob("sheet-*.png"))]
        gap = 16
        width = sum(image.width for image in drawn) + gap * (len(drawn) + 1)
        whole = Image.new("RGB", (width, drawn[0].height + 2 * gap), "#c9ccd0")
        x = gap
        for image in drawn:
            whole.paste(image, (x, gap))
            x += image.width + gap
        whole.save(picture)

    return make


PICTURES: dict[str, Callable[[Path, Path], None]] = {
    "certified": _screen("certificate: certified", 1720),
    "not-certified": _screen("certificate: not certified", 1900),
    "evidence": _screen("certificate: not certified", 1740, at="s1"),
    "thousand-ranks": _screen("certificate: 1,024 ranks", 1720, at="s0"),
    "dark": _screen("certificate: not certified", 1740, dark=True, at="s1"),
    "print": _paper("certified", 3),
    "published": _screen("judge of a published result", 1250),
    "published-table": _screen("judge of a tree", 760),
    "trend": _screen("trend", 960),
    "diff": _screen("diff", 860),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(PICTURES)}; all without it")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="where they go (default: %(default)s)")
    asked = parser.parse_args()
    asked.directory.mkdir(exist_ok=True)
    for name in asked.names or PICTURES:
        with tempfile.TemporaryDirectory(prefix="pytest-ckpt-pictures-") as home:
            made = Path(home, "picture.png")
            PICTURES[name](Path(home), made)
            with Image.open(made) as image:
                flat = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
                flat.save(asked.directory / f"{name}.png", optimize=True)
        print(f"{asked.directory / name}.png: {(asked.directory / f'{name}.png').stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
