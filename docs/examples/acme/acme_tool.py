"""Replaces the command that ACME, an invented vendor, ships with its array. Use your storage's own command instead."""

from __future__ import annotations

import os
import sys
from pathlib import Path

USAGE = "usage: acme_tool.py firmware | health | drop-caches DIRECTORY"


def main(words: list[str]) -> int:
    """Run one subcommand and return the exit code."""
    match words:
        case ["firmware"]:
            print("7.2.1")
        case ["health"]:
            # A real command would query the array.
            print(os.environ.get("ACME_HEALTH", "healthy"))
        case ["drop-caches", directory]:
            for file in filter(Path.is_file, Path(directory).rglob("*")):
                descriptor = os.open(file, os.O_RDONLY)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)
        case _:
            print(USAGE, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
