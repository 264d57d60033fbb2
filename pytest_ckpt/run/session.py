"""One run from its first check to its last file: opened by the controller, joined by xdist's workers, closed once."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import secrets
import shlex
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt import __version__
from pytest_ckpt.config.system_description import read_system
from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.judging.catalogue import Requirement, extended, row
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.judging.grading import asked_checks, asked_requirements, chosen_suites, judge_run, make_document
from pytest_ckpt.judging.waivers import Waiver, waive
from pytest_ckpt.launching.launch_hooks import Around
from pytest_ckpt.launching.launcher import Launcher
from pytest_ckpt.launching.measurements import Bench, file_names, read_measurement
from pytest_ckpt.launching.observations import CHECKS_FOLDER, Checks, read_observation
from pytest_ckpt.launching.observer import Observer
from pytest_ckpt.launching.recorder import write_atomically
from pytest_ckpt.launching.second_client import SecondClient, find_second_client
from pytest_ckpt.run import preflight
from pytest_ckpt.run.environment import versions
from pytest_ckpt.sizing.plan import Plan, plan_run
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.processes import end_marked
from pytest_ckpt.support.redaction import Redactor
from pytest_ckpt.targets.posix.cleanup import remove_in_time
from pytest_ckpt.targets.posix.run_folder import RunFolder, leftovers, remove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_ckpt.evidence.signing import Signer
    from pytest_ckpt.facts.settings import Settings

_REMOVE_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionFacts:
    """What every process of a run must know alike; ``session.json`` keeps it without secrets.

    ``extras`` are the requirements of plugins, as the report's catalogue shows them.
    """

    run_id: str
    started: str
    seed: int
    command: tuple[str, ...]
    target_folder: str
    target_identity: tuple[int, ...]
    launcher: Launcher
    environment: dict[str, Any]
    gates: Gates
    waivers: tuple[Waiver, ...] = ()
    second_client: SecondClient | None = None
    small_folder: str | None = None
    small_identity: tuple[int, ...] = ()
    extras: tuple[dict[str, Any], ...] = ()


class Session:
    """A run. ``notices`` are sentences for the person who started it, ``last_words`` those for the end."""

    def __init__(
        self, settings: Settings, facts: SessionFacts, folder: Path, extras: Sequence[Requirement] = ()
    ) -> None:
        self.catalogue = extended(extras)
        self.settings = dataclasses.replace(settings, suites=chosen_suites(settings, facts.gates, self.catalogue))
        self.facts = facts
        self.folder = folder
        self.notices: list[str] = []
        self.last_words: list[str] = []
        self.preflight_seconds = 0.0
        self._signer: Signer | None = None
        self._system: dict[str, Any] | None = None
        self._began = time.monotonic()
        self._redactor = Redactor.of(os.environ, [*(o.value for o in settings.origins), *facts.command])
        target = facts.environment["target"]
        self.plan: Plan = plan_run(self.settings, file_system=target["file_system"], is_local=target["local"])
        self.gates = facts.gates

    @classmethod
    def open(
        cls,
        settings: Settings,
        command: Sequence[str],
        extras: Sequence[Requirement] = (),
        plugins: Sequence[dict[str, Any]] = (),
    ) -> Session:
        """Check everything, then make the run folder and the folder on the target. Raises UsageError.

        ``extras`` are the requirements of plugins, ``plugins`` says which take part and what they told.
        """
        began = time.monotonic()
        run_id = _new_id()
        signer = _signer(settings)
        _check_history(settings)
        _check_printer(settings)
        system = read_system(Path(settings.system)) if settings.system else None
        checked = preflight.check(settings, run_id, catalogue=extended(extras))
        folder = Path(settings.report).expanduser().absolute()
        notices = []
        gates = checked.gates
        target = RunFolder(checked.target, run_id)
        small = RunFolder(Path(settings.full_target).expanduser().absolute(), run_id) if settings.full_target else None
        second = None
        try:
            target.create()
            second = find_second_client(settings, checked.target, target.path, checked.launcher)
            if small:
                small.create()
            if aside := _make_report_folder(settings, folder, target):
                notices.append(f"the report of an earlier run is now {aside}")
        except UsageError:
            for made in filter(None, (target, small)):
                remove(made.path, made.identity, ())
            if checked.probe:
                shutil.rmtree(checked.probe.parent)
            raise
        for leftover in leftovers(checked.target):
            notices.append(
                f"left on the target by run {leftover.run_id} of {leftover.host}; if that run has ended, remove it: "
                f"rm -r -- {shlex.quote(str(leftover.path))}"
            )
        if checked.probe:
            shutil.copytree(checked.probe, folder / "launches" / "probe")
            shutil.rmtree(checked.probe.parent)
        facts = _facts(settings, command, checked, target, gates, second, small)
        facts = dataclasses.replace(
            facts,
            environment=facts.environment | ({"plugins": list(plugins)} if plugins else {}),
            extras=tuple(row(extra) for extra in extras),
        )
        session = cls(settings, facts, folder, extras)
        hide = session._redactor.plain
        write_atomically(folder / "session.json", json.dumps(hide(to_plain(facts)), indent=1) + "\n")
        write_atomically(folder / "plan.json", json.dumps(hide(session.plan.to_plain(ranks=True))) + "\n")
        session.notices = notices
        session._signer = signer
        session._system = system
        session._began = began
        session.preflight_seconds = time.monotonic() - began
        return session

    @classmethod
    def preview(cls, settings: Settings, command: Sequence[str], extras: Sequence[Requirement] = ()) -> Session:
        """Check what can be checked without a launch and without writing: enough to list the tests of a run."""
        run_id = _new_id()
        _signer(settings)
        _check_history(settings)
        _check_printer(settings)
        checked = preflight.check(settings, run_id, launch=False, catalogue=extended(extras))
        facts = _facts(settings, command, checked, RunFolder(checked.target, run_id), checked.gates)
        return cls(settings, facts, Path(settings.report).expanduser().absolute(), extras)

    @classmethod
    def join(cls, settings: Settings, folder: Path, facts: str, extras: Sequence[Requirement] = ()) -> Session:
        """Take part in a run that the controller opened; ``facts`` is what its `facts_text` gave."""
        return cls(settings, from_plain(SessionFacts, json.loads(facts)), folder, extras)

    def facts_text(self) -> str:
        """Return the facts for the other processes of the run, with the secrets that a file does not get to see."""
        return json.dumps(to_plain(self.facts))

    def bench(self, observer: Observer, around: Around) -> Bench:
        """Return what hands out the measurements of this run."""
        return Bench(
            settings=self.settings,
            plan=self.plan,
            folder=self.folder,
            target_folder=Path(self.facts.target_folder),
            target_identity=self.facts.target_identity,
            launcher=self.facts.launcher,
            run_id=self.facts.run_id,
            seed=self.facts.seed,
            observer=observer,
            around=around,
        )

    def checks(self) -> Checks:
        """Return what hands out the observations of this run."""
        facts = self.facts
        return Checks(
            settings=self.settings,
            folder=self.folder,
            target_folder=Path(facts.target_folder),
            second=facts.second_client,
            small_folder=Path(facts.small_folder) if facts.small_folder else None,
            run_id=facts.run_id,
            seed=facts.seed,
        )

    def runs(self, requirement: str) -> bool:
        """Whether a requirement is part of this run: asked for, and in a suite that was chosen."""
        every = asked_requirements(self.settings, self.gates, self.catalogue)
        asked = {r.id for r in every if r.suite in self.settings.suites}
        return requirement in asked and bool(self.subjects(requirement))

    def waived(self, verdict: Verdict) -> Verdict:
        """Return a verdict, waived where the run's waivers cover it."""
        return waive([verdict], self.facts.waivers, self.facts.started)[0]

    def subjects(self, requirement: str) -> list[str]:
        """Return what a requirement is judged on: the checkpoints of the plan, or its checks of the target."""
        asked = self.catalogue[requirement]
        if asked.suite == "conformance":
            return [c.subject for c in asked_checks(asked, self.settings, self.gates)]
        return [str(c.subject) for c in self.plan.checkpoints]

    def measurements(self) -> list[Measurement]:
        """Return what has been measured, in the order of the plan."""
        files = [self.folder / "measurements" / f"{c.subject.slug}.json" for c in self.plan.checkpoints]
        return [read_measurement(file) for file in files if file.exists()]

    def observations(self) -> list[Observation]:
        """Return what the checks of the target saw, in the order of their table."""
        files = [self.folder / "observations" / f"{check.name}.json" for check in CHECKS]
        return [read_observation(file) for file in files if file.exists()]

    def close(
        self,
        book: Iterable[Verdict],
        exit_code: int,
        *,
        final: bool,
        sections: Callable[[dict[str, Any]], list[dict[str, Any]]] = lambda _document: [],
    ) -> dict[str, Any]:
        """End what is left, clean the target, judge, write the report; return the document.

        ``exit_code`` is pytest's; ``final`` says that it stands (interrupted, internal error). Otherwise the verdicts
        decide, and a test that failed beside them still counts. ``sections`` returns what plugins write about the
        document that it is given.
        """
        began = time.monotonic()
        left_behind = self._clean()
        measurements = self.measurements()
        observations = self.observations()
        judgement = judge_run(
            self.plan,
            self.settings,
            self.gates,
            book,
            measurements,
            self.facts.waivers,
            self.facts.started,
            self.catalogue,
        )
        code = exit_code if final or (exit_code == 1 and judgement.exit_code != 1) else judgement.exit_code
        stages = {"preflight": self.preflight_seconds}
        for measurement in measurements:
            for stage, seconds in measurement.stages.items():
                stages[stage] = stages.get(stage, 0.0) + seconds
        if checked := sum(o.seconds for o in observations):
            stages["checks"] = checked
        now = time.monotonic()
        stages["clean-up"] = now - began
        total = now - self._began
        stages["other"] = max(0.0, total - sum(stages.values()))
        document = make_document(
            run={
                "id": self.facts.run_id,
                "version": __version__,
                "started": self.facts.started,
                "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "seconds": total,
                "command": self.facts.command,
                "folder": str(self.folder),
                "seed": self.facts.seed,
            },
            plan=self.plan,
            settings=self.settings,
            gates=self.gates,
            waivers=self.facts.waivers,
            judgement=judgement,
            exit_code=code,
            measurements=measurements,
            observations=observations,
            environment=self.facts.environment,
            stages=stages,
            left_behind=left_behind,
            system=self._system,
            catalogue=self.catalogue,
        )
        public: dict[str, Any] = self._redactor.plain(document)
        public["sections"] = self._redactor.plain(sections(public))
        self._redactor.sweep(self.folder)
        if words := write_report(public, self.folder, self._signer, pdf=self.settings.pdf):
            self.last_words.append(words)
        self._keep(public)
        return public

    def _keep(self, document: dict[str, Any]) -> None:
        """Append the run to its history; what goes wrong there must not cost the run its report."""
        if not self.settings.history:
            return
        from pytest_ckpt.evidence.history import append_run  # noqa: PLC0415

        try:
            count = append_run(Path(self.settings.history), document, self.folder)
        except (OSError, shutil.Error) as error:
            self.last_words.append(f"THE RUN IS NOT IN THE HISTORY: {self.settings.history}: {error}")
        else:
            self.last_words.append(f"history: {self.settings.history} holds {count} runs")

    def _clean(self) -> list[str]:
        target = Path(self.facts.target_folder)
        if stuck := end_marked(self.facts.run_id):
            pids = ", ".join(map(str, stuck))
            return [f"{target} stays: processes {pids} are blocked in the kernel and may still write to it"]
        if self.settings.keep:
            return [f"{target} stays, as --ckpt-keep asked for"]
        names = {*file_names(self.plan.runnable), f"{CHECKS_FOLDER}/"}
        left = remove_in_time(target, self.facts.target_identity, names, _REMOVE_SECONDS)
        if small := self.facts.small_folder:
            left += remove_in_time(Path(small), self.facts.small_identity, {f"{CHECKS_FOLDER}/"}, _REMOVE_SECONDS)
        return left


def _make_report_folder(settings: Settings, folder: Path, target: RunFolder) -> Path | None:
    """Make the report folder; return where that of an earlier run is now. On failure the target is left clean."""
    try:
        aside = preflight.set_aside(folder)
        (folder / "measurements").mkdir(parents=True)
    except OSError as error:
        remove(target.path, target.identity, ())
        raise UsageError(
            f"--ckpt-report {settings.report} cannot be made: {error.strerror}.",
            "Name a folder that can be written: --ckpt-report=/var/tmp/ckpt-report, for example.",
        ) from None
    return aside


def _new_id() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def _facts(
    settings: Settings,
    command: Sequence[str],
    checked: preflight.Preflight,
    target: RunFolder,
    gates: Gates,
    second: SecondClient | None = None,
    small: RunFolder | None = None,
) -> SessionFacts:
    return SessionFacts(
        run_id=target.run_id,
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seed=secrets.randbits(48) if settings.seed is None else settings.seed,
        command=tuple(command),
        target_folder=str(target.path),
        target_identity=target.identity,
        launcher=checked.launcher,
        environment={
            "hosts": [to_plain(host) for host in checked.hosts],
            "target": checked.target_facts,
            "versions": versions(),
            "launcher": checked.launcher.version,
            **({"second_client": second.description} if second else {}),
        },
        gates=gates,
        waivers=checked.waivers,
        second_client=second,
        small_folder=str(small.path) if small else None,
        small_identity=small.identity if small else (),
    )


def _check_history(settings: Settings) -> None:
    if settings.history and settings.target:
        from pytest_ckpt.evidence.history import check_place  # noqa: PLC0415

        check_place(Path(settings.history), Path(settings.target), Path(settings.report))


def _check_printer(settings: Settings) -> None:
    if settings.pdf:
        from pytest_ckpt.report.pdf import check_printer  # noqa: PLC0415

        check_printer("--ckpt-pdf")


def _signer(settings: Settings) -> Signer | None:
    """Read the key now: a bad one must end the run before anything is written, not after hours."""
    if not settings.sign:
        return None
    from pytest_ckpt.evidence.signing import read_private_key  # noqa: PLC0415 - cryptography only when it is needed

    return read_private_key(Path(settings.sign), option="--ckpt-sign")


def write_report(document: dict[str, Any], folder: Path, signer: Signer | None = None, *, pdf: bool = False) -> str:
    """Write report.json, certificate.html, junit.xml, the digests of all files of the run folder, and the signature.

    With ``pdf`` also certificate.pdf; return a sentence about it. A PDF that fails must not cost a run its report.
    """
    from pytest_ckpt.evidence.manifest import report_text, write_manifest  # noqa: PLC0415
    from pytest_ckpt.report.html import write_certificate  # noqa: PLC0415 - jinja2 only when it is needed
    from pytest_ckpt.report.junit import write_junit  # noqa: PLC0415

    write_atomically(folder / "report.json", report_text(document))
    write_certificate(document, folder / "certificate.html")
    write_junit(document, folder / "junit.xml")
    words = _print(document, folder / "certificate.pdf") if pdf else ""
    write_manifest(folder)
    if signer:
        signer.write(document, folder)
    return words


def _print(document: dict[str, Any], file: Path) -> str:
    from pytest_ckpt.report.pdf import write_pdf  # noqa: PLC0415

    try:
        write_pdf(document, file)
    except (UsageError, OSError) as error:
        return f"THERE IS NO PDF: {file}: {str(error).splitlines()[0]}"
    return f"PDF: {file}"
