"""Checks of a mounted file system, each in a process of its own."""
