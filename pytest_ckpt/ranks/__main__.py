"""The process on each rank: ``python -m pytest_ckpt.ranks``, started by the launcher, one job on standard input."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import TYPE_CHECKING

from pytest_ckpt.support.die_with_parent import die_with_parent

if TYPE_CHECKING:
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import Job


def main() -> int:
    """Run the job that rank 0 reads; return the exit code of this rank."""
    # A rank must not go on writing when the process that started it is gone.
    die_with_parent()
    from pytest_ckpt.facts.events import Ready  # noqa: PLC0415
    from pytest_ckpt.ranks.process.activity import Activity, beat_seconds, write_event  # noqa: PLC0415

    activity = Activity()
    try:
        from pytest_ckpt.ranks.process.mpi_group import MpiGroup  # noqa: PLC0415 - starts MPI

        group = MpiGroup(activity)
    except Exception as error:
        activity.failed(error)
        return 1
    activity.introduce(group.rank)
    try:
        job = _receive(group)
        if group.size != job.processes:
            raise RuntimeError(
                f"{job.processes} processes were asked for and MPI counts {group.size}: "
                "the launcher and mpi4py belong to different MPIs"
            )
        activity.report_every(beat_seconds(job.deadline_seconds))
        if group.rank == 0:
            write_event(1, Ready())
        job = dataclasses.replace(job, area=job.area.of_client(group.rank))
        if job.tasks:
            _measure(group, activity, job)
        else:
            from pytest_ckpt.ranks.process.probe import probe  # noqa: PLC0415

            probe(group, job.area)
        activity.stop()
        group.leave()
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        activity.failed(error)
        group.abort()
        return 1


def _receive(group: Group) -> Job:
    from pytest_ckpt.facts.codec import from_plain  # noqa: PLC0415
    from pytest_ckpt.ranks.process.job import Job  # noqa: PLC0415

    line = sys.stdin.readline() if group.rank == 0 else ""
    if group.rank == 0 and not line:
        raise RuntimeError("the launcher gives its standard input to no rank 0")
    return from_plain(Job, json.loads(group.share(line)))


def _measure(group: Group, activity: Activity, job: Job) -> None:
    from pytest_ckpt.facts.events import Imported  # noqa: PLC0415
    from pytest_ckpt.ranks.engines.factory import engine_maker  # noqa: PLC0415
    from pytest_ckpt.ranks.process.activity import write_event  # noqa: PLC0415

    activity.begin(None, "import")
    for make in {task.make for task in job.tasks}:
        engine_maker(make)
    group.wait()
    from pytest_ckpt.ranks.loop import MeasurementLoop  # noqa: PLC0415

    if group.rank == 0:
        write_event(1, Imported())
    for task in job.tasks:
        if task.beside_commands:
            from pytest_ckpt.ranks.scenarios.with_commands import run_with_commands  # noqa: PLC0415

            run_with_commands(group, activity, task, job)
        else:
            MeasurementLoop(group, activity, task, job).run()


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
