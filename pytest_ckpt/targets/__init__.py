"""The storage of checkpoints; one backend per package."""
