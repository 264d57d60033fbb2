"""Checks of a mounted file system, each in a separate process."""
