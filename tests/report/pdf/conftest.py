"""A fixture that skips tests of PDFs if Poppler, which reads PDFs, is not installed."""

from __future__ import annotations

import shutil

import pytest

from tests.support.machine import need


@pytest.fixture(autouse=True)
def poppler() -> None:
    need(shutil.which("pdftotext"), "there are no tools of poppler")
