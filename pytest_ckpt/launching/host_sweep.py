"""Ends what is left of a run on its own host: ``python -m pytest_ckpt.launching.host_sweep [SECONDS]``.

The launcher starts it, or a rank that has lost its controller. The mark in its environment names the run; it waits for
so many seconds first. The processes that could not be ended go to standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time

from pytest_ckpt.support.processes import MARK, SWEEP, end_marked


def main() -> int:
    """End them, and say which stay."""
    # A rank that has lost its controller gives the launcher the time to end by itself.
    time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0)
    stuck = end_marked(os.environ[MARK].removesuffix(SWEEP))
    print(json.dumps({"stuck": stuck}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
