"""Opens and closes a run, and performs all checks before it."""
