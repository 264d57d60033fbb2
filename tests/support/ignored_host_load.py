"""A plugin for end-to-end runs that discards the measured load and the measured ceilings of hosts.

A ceiling is the maximum rate of a host. Without both values, verdicts do not depend on the speed of this machine or on
other tests. Runs with ``with_host_load`` do not use the plugin (see `tests.support.end_to_end`).
"""

from __future__ import annotations

import dataclasses

import pytest


@pytest.hookimpl(tryfirst=True)  # before ranks are started
def pytest_runtestloop(session: pytest.Session) -> None:
    if not session.config.getoption("ckpt_target", None):
        return
    # Not imported earlier, because tests check what a run imports without this plugin.
    from pytest_ckpt.facts.commands import Changed  # noqa: PLC0415
    from pytest_ckpt.facts.events import CeilingsMeasured, Event, MeasurementDone, PatternMeasured  # noqa: PLC0415
    from pytest_ckpt.launching.recorder import Recorder  # noqa: PLC0415
    from pytest_ckpt.launching.separate_launches import LaunchWithCommands  # noqa: PLC0415

    take = Recorder.record

    def take_without_host_load(self: Recorder, event: Event) -> None:
        if isinstance(event, MeasurementDone):
            event = dataclasses.replace(event, host_loads=())
        elif isinstance(event, CeilingsMeasured):
            event = dataclasses.replace(event, ceilings=())
        take(self, event)

    Recorder.record = take_without_host_load
    take_separate = LaunchWithCommands._record

    def take_separate_without_load(self: LaunchWithCommands, event: Event) -> None:
        if isinstance(event, PatternMeasured) and isinstance(event.found, Changed):
            event = dataclasses.replace(event, found=dataclasses.replace(event.found, host_loads=()))
        take_separate(self, event)

    LaunchWithCommands._record = take_separate_without_load
