"""Poppler, without which nothing of a PDF can be seen."""

from __future__ import annotations

import shutil

import pytest

from tests.support.machine import need


@pytest.fixture(autouse=True)
def poppler() -> None:
    need(shutil.which("pdftotext"), "there are no tools of poppler")
