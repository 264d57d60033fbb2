"""Fixtures for vendors' own tests: settings, limits, the run's directory, measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_ckpt.launching.measurements import Measurements
from pytest_ckpt.plugin.items import measurements
from pytest_ckpt.plugin.stash import RUN
from pytest_ckpt.targets.posix.run_directory import directory_of

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.sizing.limits import ClusterLimits


@pytest.fixture(scope="session")
def ckpt_settings(pytestconfig: pytest.Config) -> Settings:
    """The user's settings of the run."""
    return pytestconfig.stash[RUN].settings


@pytest.fixture(scope="session")
def ckpt_limits(pytestconfig: pytest.Config) -> ClusterLimits:
    """The limits of save and load times, derived from the cluster."""
    return pytestconfig.stash[RUN].plan.limits


@pytest.fixture(scope="session")
def ckpt_target(pytestconfig: pytest.Config) -> Path:
    """The run's own directory on the target. If the target is an object store, the test fails."""
    run = pytestconfig.stash[RUN]
    if "paths" not in run.target.capabilities:
        pytest.fail(f"{run.target.location} has no directories: it is {run.target.description}", pytrace=False)
    return directory_of(run.run_area)


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest) -> Measurements:
    """The measurements of the session. ``bench.measurement(subject)`` returns the measurement of a subject.

    If the subject has not been measured, the call launches the ranks. The launch also measures each other subject of
    the selected tests that needs the same number of ranks.
    """
    return measurements(request.session)
