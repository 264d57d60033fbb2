"""Runs PDF tools for tests of the PDF certificate."""

from __future__ import annotations

import subprocess


def output_of(tool: str, *words: object) -> str:
    return subprocess.run([tool, *map(str, words)], capture_output=True, text=True, check=True).stdout
