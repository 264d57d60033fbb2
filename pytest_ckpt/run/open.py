"""Opens a run: performs all checks, then creates the directories. If an error occurs, the directories are removed."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import secrets
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.config.system_description import read_system
from pytest_ckpt.facts.environment import Environment, PluginFacts
from pytest_ckpt.facts.targets import TARGETS, Access, AreaRef, Names, TargetSpec
from pytest_ckpt.grading.catalogue import extended
from pytest_ckpt.grading.obstacles import CacheVisibility, requires_cold
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.launching.recorder import write_atomically
from pytest_ckpt.launching.second_client import find_second_client
from pytest_ckpt.run import preflight
from pytest_ckpt.run.context import RunContext
from pytest_ckpt.run.crash import Crash, of_report_directory, store_traceback
from pytest_ckpt.run.endpoints import reached
from pytest_ckpt.run.hosts import host_notices, versions
from pytest_ckpt.run.preflight import cache_visibility, rename_earlier_report
from pytest_ckpt.run.resume import Resumption, archive, clear_area, lock_run, read_earlier, resumed
from pytest_ckpt.support import waits
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.processes import end_undisturbed
from pytest_ckpt.support.redaction import Redactor
from pytest_ckpt.support.user_files import is_there, user_path
from pytest_ckpt.targets.protocol import Target
from pytest_ckpt.targets.schemes import NO_ACCESS, split
from pytest_ckpt.targets.timed_calls import answers_within

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_ckpt.evidence.signing import Signer
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.launching.launch import Launch
    from pytest_ckpt.launching.second_client import SecondClient

_REMOVE_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenRun:
    """The data of an open run in the controller (pytest's process).

    ``notices`` are sentences for the user. ``began`` is the monotonic time at which opening began. ``cache_visibility``
    states whether cached pages of the target can be counted. Closing ``serving`` ends the embedded server; ``serving``
    is closed after the target was cleaned. ``waiting`` is the launch whose ranks inspected their hosts and now wait for
    measurements; None if no ranks wait. ``locks`` contains a lock that excludes other starts (pytest invocations) from
    the report directory. ``of_all_starts`` is the context for the report of a resumed run; None if the run has one
    start.
    """

    context: RunContext
    of_all_starts: RunContext | None = None
    notices: tuple[str, ...] = ()
    signer: Signer | None = None
    began: float
    preflight_seconds: float = 0.0
    cache_visibility: CacheVisibility = "not_tested"
    serving: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    waiting: Launch | None = None
    locks: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def combined(self) -> RunContext:
        """The context for the report. In a resumed run, this context includes the suites of earlier starts."""
        return self.of_all_starts or self.context


def open_run(
    settings: Settings,
    command: Sequence[str],
    extras: Sequence[Requirement] = (),
    plugins: Sequence[PluginFacts] = (),
    targets: Mapping[str, TargetSpec] = TARGETS,
    *,
    measures_here: bool = False,
    recorders: Sequence[str] = (),
) -> OpenRun:
    """Check everything, then create the run directory and the run's area (its location) on the target.

    ``extras`` are the plugins' requirements. ``plugins`` lists the active plugins with their facts. ``recorders``
    describes foreign code in this process that could change results. ``targets`` are the known kinds of targets by
    scheme. With ``measures_here``, the ranks that inspected their hosts wait for the measurements.

    Raises UsageError and Crash. If opening fails or is interrupted, all created files are removed, except the traceback
    file of a crash.
    """
    directory = user_path(settings.report, "--ckpt-report")
    try:
        with answers_within(settings.io_timeout_seconds), waits.waiting("preflight"):
            return _open(
                settings, command, extras, plugins, targets, directory, measures_here=measures_here, recorders=recorders
            )
    except UsageError:
        raise
    except Exception as error:
        redactor = Redactor.of(os.environ, [*(o.value for o in settings.origins), *command])
        raise Crash(store_traceback(error, directory if _is_free(directory) else None, redactor)) from error


def _is_free(directory: Path) -> bool:
    """Return whether ``directory`` certainly does not exist; False if existence is unknown, as on a dead mount."""
    try:
        return not is_there(directory)
    except OSError:
        return False


def _open(
    settings: Settings,
    command: Sequence[str],
    extras: Sequence[Requirement],
    plugins: Sequence[PluginFacts],
    targets: Mapping[str, TargetSpec],
    directory: Path,
    *,
    measures_here: bool,
    recorders: Sequence[str],
) -> OpenRun:
    began = time.monotonic()
    run_id = _new_id()
    signer = _check_evidence(settings)
    system = read_system(Path(settings.system)) if settings.system else None
    notices: list[str] = []
    with (
        contextlib.ExitStack() as serving,
        contextlib.ExitStack() as holding,
        contextlib.ExitStack() as scratch,
        contextlib.ExitStack() as undo,
        _undone_undisturbed(),
    ):
        earlier = read_earlier(directory, holding) if settings.resume else None
        access = serving.enter_context(reached(settings, targets))
        probe = Path(scratch.enter_context(tempfile.TemporaryDirectory(prefix="pytest-ckpt-probe-"))) / "probe"
        checked = preflight.check(
            settings,
            run_id,
            probe=probe,
            catalogue=extended(extras),
            targets=targets,
            access=access,
            then_wait=undo if measures_here else None,
        )
        resumption = resumed(earlier, checked, checked.catalogue) if earlier else None
        notices += checked.notices
        notices += host_notices(checked.launcher, checked.hosts)
        area = _create(checked.target, run_id, undo)
        visibility: CacheVisibility = "not_tested"
        if checked.settings.measures and requires_cold(checked.settings, checked.gates, checked.catalogue):
            visibility = cache_visibility(checked.facts, area.location, settings.io_timeout_seconds)
        second = find_second_client(settings, checked.facts, area, checked.launcher)
        small = _create(checked.small, run_id, undo) if checked.small else None
        local = _create(checked.local, run_id, undo) if checked.local else None
        if earlier and resumption:
            with _refused_before_the_run(directory):
                archive(earlier, resumption)
            notices += [*resumption.notices, *clear_area(earlier, checked.target, _REMOVE_SECONDS)]
        elif aside := _create_report_directory(settings, directory, undo):
            notices.append(f"the report of an earlier run is now {aside}")
        for left_by, found_of, target in (
            ("left on the target by ", "found on the target: of ", checked.target),
            ("left in the local tier by ", "found in the local tier: of ", checked.local),
        ):
            for leftover in target.leftovers() if target else ():
                what = "" if leftover.command else f": {leftover.what}"
                whose = found_of if leftover.elsewhere else left_by
                notices.append(f"{whose}{leftover.why}{what}; {leftover.remedy}")
        with _refused_before_the_run(directory):
            if checked.waiting:
                # The launch records its end in this directory, so it is ended before the directory is removed.
                undo.callback(checked.waiting.end)
                checked.waiting.move_to(directory / "launches" / "probe")
            elif probe.exists():
                shutil.copytree(probe, directory / "launches" / "probe")
        context = _context(
            settings,
            command,
            checked,
            run_id,
            area=area,
            small=small,
            local=local,
            second=second,
            access=access,
            plugins=plugins,
            recorders=recorders,
            system=system,
        )
        of_all = None
        if resumption:
            context = dataclasses.replace(context, start=resumption.number, lacking=resumption.lacking)
            of_all = _of_all_starts(context, resumption)
        combined = of_all or context
        hide = context.redactor.plain
        with _refused_before_the_run(directory):
            write_atomically(directory / "session.json", json.dumps(hide(combined.to_plain()), indent=1) + "\n")
            write_atomically(directory / "plan.json", json.dumps(hide(combined.plan.to_plain(ranks=True))) + "\n")
            lock_run(directory, holding)
        undo.pop_all()
        kept, locks = serving.pop_all(), holding.pop_all()
    return OpenRun(
        context=context,
        of_all_starts=of_all,
        notices=tuple(notices),
        signer=signer,
        began=began,
        preflight_seconds=time.monotonic() - began,
        cache_visibility=visibility,
        serving=kept,
        waiting=checked.waiting,
        locks=locks,
    )


@contextlib.contextmanager
def _undone_undisturbed() -> Iterator[None]:
    """After a signal ends the ``with`` block, ignore further signals, so that the clean-up is complete."""
    try:
        yield
    except KeyboardInterrupt:
        end_undisturbed()
        raise


def preview_run(
    settings: Settings,
    command: Sequence[str],
    extras: Sequence[Requirement] = (),
    targets: Mapping[str, TargetSpec] = TARGETS,
) -> RunContext:
    """Perform all checks that need neither a launch nor writes.

    Return a context that is sufficient to list the tests of the run.
    """
    run_id = _new_id()
    _check_evidence(settings)
    with reached(settings, targets) as access:
        checked = preflight.check(settings, run_id, catalogue=extended(extras), targets=targets, access=access)
    return _context(settings, command, checked, run_id)


def _create(target: Target, run_id: str, undo: contextlib.ExitStack) -> AreaRef:
    """Create the run's area (its location) on a target. Closing ``undo`` removes the area."""
    area = target.create_area(run_id)
    undo.callback(lambda: target.clean(area, Names(), _REMOVE_SECONDS))
    return area


def _create_report_directory(settings: Settings, directory: Path, undo: contextlib.ExitStack) -> Path | None:
    """Create the report directory; closing ``undo`` removes it.

    If ``directory`` already contains the report of an earlier run, it is renamed first. Return the new name of the
    earlier report, or None.
    """
    try:
        aside = rename_earlier_report(directory)
        undo.callback(shutil.rmtree, directory, ignore_errors=True)
        (directory / "measurements").mkdir(parents=True)
    except OSError as error:
        raise UsageError(
            f"--ckpt-report {settings.report} cannot be made: {error.strerror}.",
            "Name a directory that can be written: --ckpt-report=/var/tmp/ckpt-report, for example.",
        ) from None
    return aside


def _of_all_starts(context: RunContext, resumption: Resumption) -> RunContext:
    """Return the context for the report of a resumed run, with the suites, hosts and checkpoints of all starts."""
    environment = dataclasses.replace(context.environment, hosts=resumption.hosts)
    return dataclasses.replace(context, settings=resumption.settings, plan=resumption.plan, environment=environment)


@contextlib.contextmanager
def _refused_before_the_run(directory: Path) -> Iterator[None]:
    """Convert an OSError in the block into a UsageError if the report directory caused the error."""
    try:
        yield
    except OSError as error:
        if refused := of_report_directory(error, directory):
            raise UsageError(str(refused)) from None
        raise


def _context(
    settings: Settings,
    command: Sequence[str],
    checked: preflight.Preflight,
    run_id: str,
    *,
    area: AreaRef | None = None,
    small: AreaRef | None = None,
    local: AreaRef | None = None,
    second: SecondClient | None = None,
    access: Access = NO_ACCESS,
    plugins: Sequence[PluginFacts] = (),
    recorders: Sequence[str] = (),
    system: dict[str, Any] | None = None,
) -> RunContext:
    return RunContext(
        run_id=run_id,
        seed=secrets.randbits(48) if settings.seed is None else settings.seed,
        settings=checked.settings,
        plan=checked.plan,
        directory=user_path(settings.report, "--ckpt-report"),
        spec=checked.spec,
        target=checked.facts,
        area=area,
        launcher=checked.launcher,
        second_client=second,
        small=small,
        local=local,
        access=access,
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=tuple(command),
        gates=checked.gates,
        waivers=checked.waivers,
        environment=Environment(
            hosts=checked.hosts,
            target=checked.facts,
            versions=versions(),
            launcher=checked.launcher.version,
            second_client=second.description if second else "",
            plugins=tuple(plugins),
            recorders=tuple(recorders),
        ),
        system=system,
        own_suites=checked.settings.suites,
        own_hosts=tuple(dict.fromkeys([*(h.host for h in checked.hosts), *(h.name for h in checked.settings.hosts)])),
        catalogue=checked.catalogue,
    )


def _new_id() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def _check_evidence(settings: Settings) -> Signer | None:
    """Return the signer of the report; None without ``--ckpt-sign``.

    Also check that history, metrics and PDF can be written. So an unusable option ends the run at its start, not after
    hours.
    """
    signer = None
    if settings.sign:
        from pytest_ckpt.evidence.signing import read_private_key  # noqa: PLC0415 - cryptography only when needed

        signer = read_private_key(Path(settings.sign), option="--ckpt-sign")
    if settings.history and settings.target and not split(settings.target)[0]:
        from pytest_ckpt.evidence.history import check_place  # noqa: PLC0415

        check_place(Path(settings.history), Path(settings.target), Path(settings.report))
    if settings.metrics:
        from pytest_ckpt.run.live_metrics import check_destination  # noqa: PLC0415

        check_destination(settings)
    if settings.pdf:
        from pytest_ckpt.report.pdf import check_printer  # noqa: PLC0415

        check_printer("--ckpt-pdf")
    return signer
