"""The colours of pages: enough contrast in light and dark mode, and a different brightness for each step."""

from __future__ import annotations

import itertools
import re

import pytest

from pytest_ckpt.support import resources

CSS = (resources.directory("templates") / "certificate.css").read_text(encoding="utf-8")
_BLOCKS = re.findall(r":root \{\n?(.*?)\}", CSS, re.DOTALL)
THEMES = {
    name: dict(re.findall(r"--([a-z0-9-]+):\s*(#[0-9a-f]{6})", block))
    for name, block in zip(("light", "dark"), _BLOCKS, strict=False)
}
# Foreground colours and their least contrast by WCAG 2.1: 4.5 to 1 for text, 3 to 1 for marks that a picture needs.
TEXTS = ("ink", "soft", "good", "bad", "note", "none", "save", "load")
# The light colours of fsync and close have less contrast. They are between darker ones, and the legend names them.
MARKS = ("limit", "save", "load", "write", "read", "commit", "directory", "other", "open")


def brightness(colour: str) -> float:
    """Return the relative luminance of a colour of the form #rrggbb, from 0 to 1 (WCAG 2.1)."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((brightness(one), brightness(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_texts_stand_out_from_what_they_stand_on(theme: str) -> None:
    colours = THEMES[theme]
    weak = {(t, on): contrast(colours[t], colours[on]) for t in TEXTS for on in ("paper", "faint")}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_marks_stand_out_from_the_paper(theme: str) -> None:
    colours = THEMES[theme]
    assert {m: r for m in MARKS if (r := contrast(colours[m], colours["paper"])) < 3} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_words_on_the_bar_of_stages_can_be_read(theme: str) -> None:
    """The words on each segment of the bar of stages have enough contrast. The words are white or dark."""
    colours = THEMES[theme]
    charts = (resources.directory("templates") / "charts.css").read_text(encoding="utf-8")
    dark = {int(n) for n in re.findall(r"\.chart \.on-(\d)(?=[,. {][^{]*\{ fill: #101214)", charts)}
    names = dict(re.findall(r"\.stage-(\d) \{ --swatch: var\(--([a-z]+)\)", charts))
    assert len(names) == 8
    for position, name in names.items():
        word = "#101214" if int(position) in dark else colours["on-stage"]
        assert contrast(word, colours[name]) >= 4.5, (position, name)


def test_ranks_that_are_slower_are_drawn_farther_from_the_paper() -> None:
    """Slower ranks have more contrast to the paper, so that readers do not need to distinguish colours."""
    for theme, colours in THEMES.items():
        steps = [contrast(colours[f"heat-{n}"], colours["paper"]) for n in range(2, 6)]
        assert steps == sorted(steps), theme
        assert all(after > before * 1.1 for before, after in itertools.pairwise(steps)), (theme, steps)
        # Fast ranks have less contrast with the paper than the first step of slow ranks.
        assert contrast(colours["heat-5"], colours["heat-0"]) > 3
