"""Computes sizes and time limits from a cluster and a model, by pure functions (no input or output)."""
