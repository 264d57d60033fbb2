"""The power cut of a loop device under the name that hooks of version 0.1 use; goes with version 0.3.

``python -m pytest_ckpt.targets.posix.power_cut MOUNTPOINT`` is its name now.
"""

from __future__ import annotations

import sys

from pytest_ckpt.targets.posix.power_cut import main

if __name__ == "__main__":
    sys.exit(main())
