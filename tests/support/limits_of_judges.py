"""The requirements of every run, and how close to a limit tests must come."""

from __future__ import annotations

from tests.support.front_door import REQUIRED

CLOSE = 1e-9
ADVISORY = ["STRAGGLER", "REPEAT"]
ALL = [*REQUIRED, *ADVISORY]
