"""What tests share: the front door, targets that misbehave, made-up runs, the makers of pages."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
