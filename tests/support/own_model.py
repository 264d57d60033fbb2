"""The TOML description of a small model, as a user writes it."""

from __future__ import annotations

FILE = "my-model.toml"
SMALL = """
layers = 4
hidden = 256
feed_forward = 688
vocabulary = 1000
heads = 4

[parallel]
data = 2
zero = 3
"""
