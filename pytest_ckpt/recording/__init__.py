"""Derives a pattern from a job's strace log or from the files of a checkpoint.

A pattern is the sequence of file operations of a save.
"""
