"""Every page in a real browser, in light and dark mode: it shows content, and causes no message or request."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import browser, report_pages
from tests.support.machine import need

pytestmark = pytest.mark.thorough


@pytest.fixture(autouse=True)
def chromium() -> None:
    need(browser.CHROMIUM, "there is no Chromium")


@pytest.mark.parametrize("name", report_pages.PAGES)
def test_it_draws_light_and_dark_without_a_word_or_a_request(name: str, tmp_path: Path) -> None:
    page = report_pages.PAGES[name](tmp_path)
    seen = {}
    for dark in (False, True):
        picture = tmp_path / f"{dark}.png"
        visit = browser.screenshot(page, picture, dark=dark)
        assert visit.console == ()
        assert visit.requests == ()
        seen[dark] = browser.picture_statistics(picture)
    assert min(colours for colours, _ in seen.values()) > 50, "a blank page"
    assert seen[False][1] > 0.7
    assert seen[True][1] < 0.3


def test_a_word_on_the_console_and_a_request_are_seen(tmp_path: Path) -> None:
    """The checks detect a page that causes a console message and a request."""
    page = tmp_path / "page.html"
    page.write_text(
        "<!doctype html><title>x</title><img src='http://127.0.0.1:9/planted.png'><script>console.log(1)</script>"
    )
    visit = browser.screenshot(page, tmp_path / "page.png")
    assert visit.requests == ("http://127.0.0.1:9/planted.png",)
    assert visit.console
    page.write_text("<!doctype html><title>x</title>")
    browser.screenshot(page, tmp_path / "page.png")
    assert browser.picture_statistics(tmp_path / "page.png")[0] == 1


@pytest.mark.parametrize("name", report_pages.PAGES)
def test_nothing_is_wider_than_the_page_and_no_label_lies_on_another(name: str, tmp_path: Path) -> None:
    assert browser.layout_faults(report_pages.PAGES[name](tmp_path), 360, 390, 1280) == []


def test_faults_of_layout_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "<!doctype html><svg role=img viewBox='0 0 300 100'><title>made up</title><text x=250 y=50>reaches out of it"
        "</text><text x=10 y=50>one</text><text x=12 y=52>other</text></svg>"
        "<div class=scroll style='overflow-x:auto'><table><td style='min-width:900px'>scrolls</table></div>"
        "<p style='width:2000px'>wide"
    )
    wide, *labels = browser.layout_faults(page, 360)
    assert wide.startswith("360: the page is 20")
    assert labels == ["360: made up: 'reaches out of it' reaches out", "360: made up: 'one' lies on 'other'"]
    page.write_text(page.read_text().replace("viewBox='0 0 300 100'", "viewBox='0 0 3000 1000'"))
    assert any("is only" in fault for fault in browser.layout_faults(page, 360))
