"""Code that tests share: end-to-end runs, faulty targets, simulated runs, generators of pages."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
