"""Stands for the command that ACME ships with its array. ACME is made up; replace this by what your storage has."""

from __future__ import annotations

import os
import sys
from pathlib import Path

USAGE = "usage: acme_tool.py firmware | health | drop-caches DIRECTORY"


def main(words: list[str]) -> int:
    """Do one thing and return the exit code."""
    match words:
        case ["firmware"]:
            print("7.2.1")
        case ["health"]:
            # A real one would ask the array.
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
