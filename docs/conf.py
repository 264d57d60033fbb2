"""How Sphinx makes the site from these pages: ``python -m sphinx -W -n -b dirhtml docs site``."""

from __future__ import annotations

import tomllib
from pathlib import Path

_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

project = _PROJECT["name"]
release = version = _PROJECT["version"]
author = "the authors of pytest-ckpt"
project_copyright = author

extensions = ["myst_parser"]
# README.md, ARCHITECTURE.md and CONTRIBUTING.md lie above; they are linked to where the source is read.
exclude_patterns = ["recipes", "examples"]
# Anchors as hosts of Markdown make them, so that a link works in both places.
myst_heading_anchors = 4
# What the tests read above an example is a comment of HTML.
highlight_language = "none"
# What is copied from a page is what was typed.
smartquotes = False

html_theme = "furo"
html_title = f"{project} {release}"
# Nothing that is shown may come from another host, and nobody asks where a page's source lies.
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
