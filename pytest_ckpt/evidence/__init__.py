"""Evidence that a run directory is authentic: digests, signature, cross-checks, re-evaluation."""
