"""The vocabulary of a run: frozen records that all packages share, and their JSON."""
