"""The checks, one subject a module: each does something to a place on the target and tells what it saw."""
