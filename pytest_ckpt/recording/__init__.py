"""Derives the pattern of a job's saves from its strace log."""
