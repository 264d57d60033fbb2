"""A plugin for end-to-end runs that shortens timeouts of the product.

Requests to an unreachable endpoint end with their five attempts; a silent target is queried for half a second.
"""

from __future__ import annotations

from pytest_ckpt.launching import observations
from pytest_ckpt.run import endpoints

endpoints._BORNE_SHARE = 0.0
observations._SILENT_SECONDS = 0.5
