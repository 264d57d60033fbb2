"""The requirements that every run is asked, and how close to a limit their judges are tried."""

from __future__ import annotations

CLOSE = 1e-9
REQUIRED = ["SAVE", "LOAD", "INTEGRITY", "COLD", "DURABLE-CALLS"]
ADVISORY = ["STRAGGLER", "REPEAT"]
ALL = [*REQUIRED, *ADVISORY]
