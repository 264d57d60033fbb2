"""The checks, one subject per module: each exercises a folder on the target and reports what it saw."""
