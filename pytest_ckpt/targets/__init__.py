"""Storage of checkpoints: one backend per file."""
