"""Whether a run folder may be believed: digests, signature, cross-checks, judging again."""
