"""pytest-ckpt: acceptance test for storage that is to hold the checkpoints of an AI training cluster."""

from __future__ import annotations

__version__ = "0.2.0"
