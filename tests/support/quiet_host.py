"""A plugin for end-to-end runs that does not record the load of hosts, so that other tests do not change a verdict.

A run with ``sees_load`` records it (`tests.support.front_door`).
"""

from __future__ import annotations

import dataclasses

import pytest


@pytest.hookimpl(tryfirst=True)  # before ranks are started
def pytest_runtestloop(session: pytest.Session) -> None:
    if not session.config.getoption("ckpt_target", None):
        return
    # Not before: what a run imports without us is a matter of tests.
    from pytest_ckpt.facts.commands import Changed  # noqa: PLC0415
    from pytest_ckpt.facts.events import Event, MeasurementDone, PatternMeasured  # noqa: PLC0415
    from pytest_ckpt.launching.recorder import Recorder  # noqa: PLC0415
    from pytest_ckpt.launching.separate_launches import LaunchWithCommands  # noqa: PLC0415

    take = Recorder.take

    def take_without_load(self: Recorder, event: Event) -> None:
        quiet = isinstance(event, MeasurementDone)
        take(self, dataclasses.replace(event, host_loads=()) if quiet else event)

    Recorder.take = take_without_load
    take_of_own = LaunchWithCommands._take

    def take_of_own_without_load(self: LaunchWithCommands, event: Event) -> None:
        if isinstance(event, PatternMeasured) and isinstance(event.found, Changed):
            event = dataclasses.replace(event, found=dataclasses.replace(event.found, host_loads=()))
        take_of_own(self, event)

    LaunchWithCommands._take = take_of_own_without_load
