"""Results of DLIO and mlpstorage: read from their files and judged by the limits of a pytest-ckpt run."""
