"""The requirements that apply to every run, and ``CLOSE``, the relative distance of test values from a limit."""

from __future__ import annotations

from tests.support.end_to_end import REQUIRED

CLOSE = 1e-9
ADVISORY = ["STRAGGLER", "REPEAT"]
ALL = [*REQUIRED, *ADVISORY]
