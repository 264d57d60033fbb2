"""A plugin of the front door's runs: what is waited for is told after half a second in place of thirty."""

from __future__ import annotations

from pytest_ckpt.support import waits

waits.TELL_SECONDS = 0.5
waits.LOOK_SECONDS = 0.1
