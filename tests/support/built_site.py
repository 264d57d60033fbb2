"""The site as Sphinx builds it, and what its pages link to and load."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

from tests.support.doc_pages import DOCS
from tests.support.machine import patience

# What a browser fetches by itself. A link (a href) is only followed by a person.
_LOADS = {
    **dict.fromkeys(("script", "iframe", "audio", "embed", "track", "input"), ("src",)),
    **dict.fromkeys(("img", "source"), ("src", "srcset")),
    "video": ("src", "poster"),
    "object": ("data",),
    "use": ("href",),
}
# Links in the head that name a page and fetch nothing.
_RELATIONS = frozenset(["index", "search", "next", "prev", "canonical", "genindex", "author", "copyright"])
_OF_A_STYLE = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")


@dataclass
class Page(HTMLParser):
    """A page that was built. ``links`` are those that people follow, ``loads`` what a browser fetches."""

    file: Path
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Read the file."""
        super().__init__()
        self.feed(self.file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the element names."""
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
    """Build the site as the README says; warnings are errors."""
    options = ["-W", "--keep-going", "-n", "-q", "-b", "dirhtml", "-d", str(directory / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, str(source), str(directory / "site")]
    return subprocess.run(command, capture_output=True, text=True, timeout=patience(300), check=False)


def pages_of(site: Path) -> dict[Path, Page]:
    """Return every page of a site by its file."""
    return {file: Page(file) for file in sorted(site.rglob("*.html"))}


def file_of(page: Path, link: str) -> tuple[Path, str]:
    """Return the file and the anchor that a relative link of a page leads to."""
    path, anchor = urldefrag(link)
    path = unquote(urlsplit(path).path)
    file = (page.parent / path).resolve() if path else page
    return (file / "index.html" if file.is_dir() else file), unquote(anchor)


def is_elsewhere(link: str) -> bool:
    """Whether a link leads away from the site: to another host, or to a file by its absolute path."""
    parts = urlsplit(link)
    return parts.scheme not in ("", "data") or bool(parts.netloc) or link.startswith("/")


def style_loads(site: Path) -> list[tuple[Path, str]]:
    """Return (style sheet, what it loads) of every style sheet of a site."""
    return [
        (file, one)
        for file in sorted(site.rglob("*.css"))
        for pair in _OF_A_STYLE.findall(file.read_text())
        for one in pair
        if one
    ]
