"""Whether a run directory may be believed: digests, signature, cross-checks, judging again."""
