"""Engines, which transfer the bytes of checkpoints to storage and back. All engines have a common protocol."""
