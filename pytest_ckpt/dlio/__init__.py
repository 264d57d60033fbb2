"""Results of DLIO and mlpstorage, read from their files: what the slowest process took, and what they cannot say."""
