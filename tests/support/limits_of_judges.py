"""The requirements that every run is asked, and how close to a limit their judges are tried."""

from __future__ import annotations

from tests.support.front_door import REQUIRED

CLOSE = 1e-9
ADVISORY = ["STRAGGLER", "REPEAT"]
ALL = [*REQUIRED, *ADVISORY]
