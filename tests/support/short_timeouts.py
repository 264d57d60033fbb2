"""A pytest plugin for end-to-end runs that shortens timeouts of pytest-ckpt.

An endpoint counts as unreachable after the five attempts of one request. If a target does not answer, the controller
waits for half a second.
"""

from __future__ import annotations

from pytest_ckpt.launching import observations
from pytest_ckpt.run import endpoints

endpoints._BORNE_SHARE = 0.0
observations._SILENT_SECONDS = 0.5
