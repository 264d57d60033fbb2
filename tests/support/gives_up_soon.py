"""A plugin of the front door's runs: patience of the product that grows with the deadline, or that each check pays.

Requests to an endpoint that is gone end with their five attempts; a target that is silent is asked for half a second.
"""

from __future__ import annotations

from pytest_ckpt.launching import observations
from pytest_ckpt.run import endpoints

endpoints._BORNE_SHARE = 0.0
observations._SILENT_SECONDS = 0.5
