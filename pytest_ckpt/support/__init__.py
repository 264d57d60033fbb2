"""Utilities for every package: units, errors, package files, processes, secrets."""
