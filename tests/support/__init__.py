"""Code that several tests share: end-to-end runs, targets with injected faults, simulated runs, page generators."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
