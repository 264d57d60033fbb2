"""Ends what is left of a run on its own host: ``python -m pytest_ckpt.launching.host_sweep``, started by the launcher.

The mark in its environment names the run; the processes that could not be ended go to standard output.
"""

from __future__ import annotations

import json
import os
import sys

from pytest_ckpt.support.processes import MARK, end_marked

SWEEP = "/sweep"
"""Behind the run's id in the mark: what ends processes of a run is none of them."""


def main() -> int:
    """End them, and say which stay."""
    stuck = end_marked(os.environ[MARK].removesuffix(SWEEP))
    print(json.dumps({"stuck": stuck}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
