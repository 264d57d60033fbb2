"""A plugin for end-to-end runs: a run reports a wait after 0.5 s instead of 30 s."""

from __future__ import annotations

from pytest_ckpt.support import waits

waits.TELL_SECONDS = 0.5
waits.LOOK_SECONDS = 0.1
