"""A plugin for end-to-end runs that shortens the time after which a run reports that it waits: from 30 s to 0.5 s."""

from __future__ import annotations

from pytest_ckpt.support import waits

waits.TELL_SECONDS = 0.5
waits.LOOK_SECONDS = 0.1
