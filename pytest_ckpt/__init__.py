"""pytest-ckpt: acceptance test for storage for AI training checkpoints."""

from __future__ import annotations

__version__ = "0.2.0"
