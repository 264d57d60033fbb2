"""The vocabulary of a run: frozen records that every room shares, and their JSON."""
