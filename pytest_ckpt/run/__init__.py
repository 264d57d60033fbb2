"""The life of a run: opening, context and closing, and all checks before it."""
