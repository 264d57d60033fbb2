"""The bytes of a checkpoint: made, recomputed, compared."""
