"""Evidence that a run directory is authentic: digests, signature, and a new evaluation of its files."""
