"""Storage backends for checkpoints, one package for each backend."""
