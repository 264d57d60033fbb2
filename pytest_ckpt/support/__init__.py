"""Basics for every package: units, errors, files of the package, processes, secrets."""
