"""A plugin for end-to-end runs: waits are reported after half a second instead of thirty."""

from __future__ import annotations

from pytest_ckpt.support import waits

waits.TELL_SECONDS = 0.5
waits.LOOK_SECONDS = 0.1
