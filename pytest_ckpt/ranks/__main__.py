"""The process of a rank: ``python -m pytest_ckpt.ranks``.

The launcher starts the process, and the controller sends jobs to it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, cast

from pytest_ckpt.support.die_with_parent import die_with_parent
from pytest_ckpt.support.processes import SEGMENTS, SESSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.controller import Controller
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import Job
    from pytest_ckpt.targets.protocol import TierStore


# A short network outage does not end a run.
_CUT_OFF_SECONDS = 30.0
_LAUNCHERS_SECONDS = 5.0


def main() -> int:
    """Run the controller's jobs one after the other; return the exit code of this rank."""
    # A rank must not continue to write after the controller has ended.
    die_with_parent()
    # The module of a vendor's engine may be in the current directory, which comes last and cannot replace other
    # modules.
    sys.path.append("")
    from pytest_ckpt.ranks.process.activity import Activity  # noqa: PLC0415
    from pytest_ckpt.ranks.process.controller import Controller  # noqa: PLC0415

    activity, controller = Activity(), None
    try:
        controller = Controller(_end_at_once)
        activity.report_through(controller.report)
        _place_segments_in_session()
        from pytest_ckpt.ranks.process.mpi_group import MpiGroup  # noqa: PLC0415 - starts MPI

        group = MpiGroup(activity)
        from pytest_ckpt.ranks.process.numa import bind_to_numa_node  # noqa: PLC0415

        bound = bind_to_numa_node(group)
    except Exception as error:
        _report_failure(activity, controller, error)
        return 1
    try:
        while _do_job(group, activity, controller, bound):
            pass
        controller.finish()
        group.leave()
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        _report_failure(activity, controller, error)
        group.abort()
        return 1


def _place_segments_in_session() -> None:
    """Let Open MPI create its shared-memory segments in its session directory, if that directory is in memory.

    Open MPI removes this directory together with the segments.
    """
    session = os.environ.get(SESSION, "")
    if session.startswith("/dev/shm/"):
        for name in SEGMENTS:
            os.environ.setdefault(name, session)


def _do_job(group: Group, activity: Activity, controller: Controller, bound: Mapping[str, str]) -> bool:
    """Receive one job from the controller and run the job. Return whether another job may follow."""
    from pytest_ckpt.facts.events import Ready  # noqa: PLC0415
    from pytest_ckpt.ranks.process.activity import beat_seconds  # noqa: PLC0415

    activity.introduce(group.rank)
    job = _receive(group, controller)
    if group.size != job.processes:
        raise RuntimeError(
            f"{job.processes} processes were requested and MPI counts {group.size}: the launcher and mpi4py belong to "
            "different MPIs"
        )
    controller.lose_after(max(job.deadline_seconds, _CUT_OFF_SECONDS))
    activity.report_every(beat_seconds(job.deadline_seconds))
    if group.rank == 0:
        activity.report(Ready())
    job = dataclasses.replace(job, area=job.area.of_client(group.rank))
    if job.tasks:
        _measure(group, activity, job, controller)
    else:
        from pytest_ckpt.ranks.process.probe import probe  # noqa: PLC0415

        probe(group, activity, job, bound)
    # The controller does not read while ranks wait, so reports would fill the connection.
    activity.stop()
    return job.is_followed and controller.is_followed()


@contextlib.contextmanager
def _libraries_uncollected() -> Iterator[None]:
    """Exclude libraries that are imported in the ``with`` block from garbage collection.

    Otherwise the 400,000 permanent objects of torch would slow each collection.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def _end_at_once() -> None:
    """Kill this process, because the connection to the controller was lost.

    The launcher's daemon on this host may run for several more minutes. Therefore this function first starts a separate
    process that ends the daemon and removes the daemon's files (`pytest_ckpt.launching.host_sweep`).
    """
    from pytest_ckpt.support.processes import MARK, SWEEP  # noqa: PLC0415
    from pytest_ckpt.support.resources import PACKAGE_HOME  # noqa: PLC0415

    mark = os.environ.get(MARK)
    if mark:
        environment = os.environ | {MARK: mark + SWEEP, "PYTHONPATH": str(PACKAGE_HOME)}
        words = [sys.executable, "-m", "pytest_ckpt.launching.host_sweep", str(_LAUNCHERS_SECONDS)]
        with contextlib.suppress(OSError):
            subprocess.Popen(words, stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
    os.kill(os.getpid(), signal.SIGKILL)


def _report_failure(activity: Activity, controller: Controller | None, error: BaseException) -> None:
    """Report the error that ends this rank, and wait until the controller has received the report or has ended."""
    with contextlib.suppress(OSError, RuntimeError):
        activity.failed(error)
        if controller:
            controller.finish()


def _receive(group: Group, controller: Controller) -> Job:
    from pytest_ckpt.facts.codec import from_plain  # noqa: PLC0415
    from pytest_ckpt.ranks.process.job import Job  # noqa: PLC0415

    return from_plain(Job, group.share(controller.receive() if group.rank == 0 else None))


def _measure(group: Group, activity: Activity, job: Job, controller: Controller) -> None:
    from pytest_ckpt.facts.events import Imported  # noqa: PLC0415
    from pytest_ckpt.ranks.engines.factory import engine_maker  # noqa: PLC0415

    activity.begin(None, "import")
    with _libraries_uncollected():
        for make in {task.make for task in job.tasks}:
            engine_maker(make)
    group.wait()
    if group.rank == 0:
        activity.report(Imported())
    with _tier_of_each_host(group, job):
        _measure_tasks(group, activity, job, controller)


@contextlib.contextmanager
def _tier_of_each_host(group: Group, job: Job) -> Iterator[None]:
    """Create the run's area in each host's local tier before the ``with`` block, and remove it after the block.

    One rank of each host does this. If all ranks are on one host, the function does nothing, because the controller has
    created the area.
    """
    from pytest_ckpt.support.references import load  # noqa: PLC0415

    if not job.local or not group.spans_hosts:
        yield
        return
    tier = cast("TierStore", load(job.local.opener)(job.local))
    if group.leads_host:
        tier.settle()
    group.wait()
    yield
    group.wait()
    if group.leads_host:
        tier.leave({task.subject.slug for task in job.tasks})


def _measure_tasks(group: Group, activity: Activity, job: Job, controller: Controller) -> None:
    from pytest_ckpt.ranks.loop import MeasurementLoop  # noqa: PLC0415

    for task in job.tasks:
        if task.own_launch:
            from pytest_ckpt.sizing.patterns import PATTERNS  # noqa: PLC0415
            from pytest_ckpt.support.references import load  # noqa: PLC0415

            scenario = load(PATTERNS[task.own_launch].scenario)
            scenario(group, activity, task, job, task.own_launch, controller).run()
        else:
            loop = MeasurementLoop(group, activity, task, job)
            loop.run()
            if loop.depth and loop.depth.origin == "ramp":
                # All tasks of a job have the same number of ranks, so the later ones need no ramp.
                job = dataclasses.replace(job, depth=loop.depth)


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
