"""The site builds without warnings, links lead from the first page to every page, and nothing external is loaded."""

from __future__ import annotations

import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

from tests.support.doc_pages import DOCS
from tests.support.machine import need, patience

# What a browser loads by itself. Only a person follows a link (a href).
_LOADS = {
    **dict.fromkeys(("script", "iframe", "audio", "embed", "track", "input"), ("src",)),
    **dict.fromkeys(("img", "source"), ("src", "srcset")),
    "video": ("src", "poster"),
    "object": ("data",),
    "use": ("href",),
}
# Links in the head that name a page and load nothing.
_RELATIONS = frozenset(["index", "search", "next", "prev", "canonical", "genindex", "author", "copyright"])
_OF_A_STYLE = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")


@dataclass
class Page(HTMLParser):
    """A page of the built site.

    ``links`` are addresses that the reader can follow. ``loads`` are addresses that a browser requests when it opens
    the page.
    """

    file: Path
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Parse the file of the page."""
        super().__init__()
        self.feed(self.file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the ids, links and loads of an element."""
        fields = {name: value or "" for name, value in attrs}
        if "id" in fields:
            self.ids.add(fields["id"])
        if tag == "a" and "href" in fields:
            self.links.append(fields["href"])
        if tag == "link" and not _RELATIONS & set(fields.get("rel", "").split()):
            self.loads.append(fields["href"])
        self.loads += [fields[name] for name in _LOADS.get(tag, ()) if name in fields]
        self.loads += [one for pair in _OF_A_STYLE.findall(fields.get("style", "")) for one in pair if one]


def build(directory: Path, source: Path = DOCS) -> subprocess.CompletedProcess[str]:
    """Build the site as README.md describes, with warnings as errors; return the completed process."""
    options = ["-W", "--keep-going", "-n", "-q", "-b", "dirhtml", "-d", str(directory / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, str(source), str(directory / "site")]
    return subprocess.run(command, capture_output=True, text=True, timeout=patience(300), check=False)


def pages_of(site: Path) -> dict[Path, Page]:
    """Return {file: parsed page} for every page of a site."""
    return {file: Page(file) for file in sorted(site.rglob("*.html"))}


def file_of(page: Path, link: str) -> tuple[Path, str]:
    """Return the file and the anchor of a relative link on a page."""
    path, anchor = urldefrag(link)
    path = unquote(urlsplit(path).path)
    file = (page.parent / path).resolve() if path else page
    return (file / "index.html" if file.is_dir() else file), unquote(anchor)


def is_elsewhere(link: str) -> bool:
    """Return whether a link leaves the site: it contains a scheme or a host, or begins with ``/``."""
    parts = urlsplit(link)
    return parts.scheme not in ("", "data") or bool(parts.netloc) or link.startswith("/")


def style_loads(site: Path) -> list[tuple[Path, str]]:
    """Return (style sheet, loaded address) for every address that a style sheet of the site loads."""
    return [
        (file, one)
        for file in sorted(site.rglob("*.css"))
        for pair in _OF_A_STYLE.findall(file.read_text())
        for one in pair
        if one
    ]


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NOT_OURS = {"genindex", "search"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("docs")
    done = build(directory)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    return directory / "site"


@pytest.fixture(scope="module")
def built(site: Path) -> dict[Path, Page]:
    return pages_of(site)


def test_a_warning_fails_the_build(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "conf.py").write_text('extensions = ["myst_parser"]\n')
    (source / "index.md").write_text("# One\n\n[gone](gone.md)\n")
    done = build(tmp_path, source)
    assert done.returncode != 0
    assert "gone.md" in done.stderr


def test_every_page_is_found_from_the_first_one(site, built):
    found, to_visit = set(), [site / "index.html"]
    while to_visit:
        page = to_visit.pop()
        if page not in found:
            found.add(page)
            to_visit += [
                file
                for link in built[page].links
                if not is_elsewhere(link) and (file := file_of(page, link)[0]) in built
            ]
    written = {site / (p.stem if p.stem != "index" else "") / "index.html" for p in DOCS.glob("*.md")}
    assert written <= found
    assert set(built) - found <= {site / name / "index.html" for name in NOT_OURS}


def test_every_page_appears_in_the_list_of_pages(site, built):
    """The first page links to every page in its generated list."""
    listed = {file_of(site / "index.html", link)[0] for link in built[site / "index.html"].links}
    assert {site / p.stem / "index.html" for p in DOCS.glob("*.md") if p.stem != "index"} <= listed


def test_every_link_within_the_site_leads_to_an_anchor_that_is_there(site, built):
    broken = []
    for page in built.values():
        for link in page.links:
            if is_elsewhere(link):
                if not link.startswith(("https://", "mailto:")):
                    broken.append(f"{page.file.relative_to(site)}: {link}")
                continue
            file, anchor = file_of(page.file, link)
            if not file.is_file() or (anchor and file in built and anchor not in built[file].ids):
                broken.append(f"{page.file.relative_to(site)}: {link}")
    assert not broken, "\n".join(broken)


def test_no_page_loads_anything_from_elsewhere(site, built):
    loads = [(page.file, one) for page in built.values() for one in page.loads] + style_loads(site)
    assert len(loads) > len(built)  # the test recognises loads at all
    assert not [(str(file), one) for file, one in loads if is_elsewhere(one)]
    missing = [
        (str(file), one)
        for file, one in loads
        if not one.startswith(("data:", "#")) and not file_of(file, one)[0].is_file()
    ]
    assert not missing


def test_a_resource_from_elsewhere_is_seen(tmp_path):
    file = tmp_path / "index.html"
    file.write_text(
        '<link rel="stylesheet" href="https://x/a.css"><img src="//x/b.png"><p style="background: url(http://x/c.png)">'
        '<a href="https://x/">only a link</a>'
    )
    (tmp_path / "d.css").write_text('@import "https://x/e.css"; a { b: url(f.png) }')
    assert [one for one in Page(file).loads if is_elsewhere(one)] == ["https://x/a.css", "//x/b.png", "http://x/c.png"]
    assert [one for _, one in style_loads(tmp_path)] == ["https://x/e.css", "f.png"]


class _LocalOnlyHandler(http.server.SimpleHTTPRequestHandler):
    """Serves the files of a directory by HTTP. A header of each answer forbids external requests.

    The browser logs each forbidden request to its console.
    """

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", "default-src 'self' 'unsafe-inline' data:")
        super().end_headers()

    def log_message(self, *_words: object) -> None:
        pass


@contextmanager
def _served(directory: Path) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_LocalOnlyHandler, directory=str(directory))
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


def _console(address: str, profile: Path) -> tuple[str, str]:
    """Open a page in Chromium; return (HTML after its scripts ran, the browser's log)."""
    need(CHROMIUM, "there is no Chromium on this machine")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--no-first-run", "--enable-logging=stderr",
        "--disable-dev-shm-usage", f"--user-data-dir={profile}", "--dump-dom", address,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(300), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("page", ["", "conformance/", "search/?q=straggler"])
def test_a_browser_opens_it_without_a_word_on_the_console(page, site, tmp_path):
    with _served(site) as address:
        drawn, found = _console(address + page, tmp_path)
    assert "pytest-ckpt" in drawn
    assert "CONSOLE" not in found


@pytest.mark.thorough
def test_the_console_of_the_browser_shows_a_blocked_fetch(tmp_path):
    (tmp_path / "index.html").write_text('<img src="http://127.0.0.2:9/a.png">')
    with _served(tmp_path) as address:
        _, found = _console(address, tmp_path / "profile")
    assert "CONSOLE" in found
