"""Where checkpoints live: one backend a file."""
