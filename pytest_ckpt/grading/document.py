"""The fields of ``report.json``, and the function that creates the report from a judgement and measurements. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

from pytest_ckpt.facts.bounds import (
    Bounds,
    Count,
    CountFromOne,
    Moment,
    NotNegative,
    Partly,
    Positive,
    Share,
    Text,
)
from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.environment import HostFacts, PluginFacts
from pytest_ckpt.facts.measurement import Measurement, OperationKind
from pytest_ckpt.facts.models import Model
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.options import NOT_SET, with_role
from pytest_ckpt.facts.settings import Origin
from pytest_ckpt.facts.starts import Start
from pytest_ckpt.facts.strategies import STRATEGY_OF
from pytest_ckpt.facts.strategy_results import DrainRule
from pytest_ckpt.facts.system import missing_facts
from pytest_ckpt.facts.targets import TargetFacts
from pytest_ckpt.facts.verdict import Grade, Verdict
from pytest_ckpt.grading.catalogue import CATALOGUE_NAMES, REQUIREMENTS, CatalogueRow, requirements_of_run, row
from pytest_ckpt.grading.engines import FrameworkOverhead, engine_sentences, framework_overheads, memory_sentences
from pytest_ckpt.grading.forecast import Forecast, forecasts
from pytest_ckpt.grading.goodput import ClusterSize, TrainingRow, cluster_sizes, training_rows
from pytest_ckpt.grading.grading import Judgement
from pytest_ckpt.grading.networks import ceiling_limits, client_limits, networks_of
from pytest_ckpt.grading.obstacles import shortfalls
from pytest_ckpt.grading.reservations import not_tested, relevance
from pytest_ckpt.grading.scope import Scope, scope_of
from pytest_ckpt.judging.clients import differences
from pytest_ckpt.judging.clients import disclosures as start_hooks
from pytest_ckpt.judging.cold import uncounted
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.waivers import Waiver
from pytest_ckpt.sizing.deltas import DeltaRule
from pytest_ckpt.sizing.limits import Demand, LimitInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.sizing.plan import Plan


ExitCode = Literal[0, 1, 2, 3, 4, 8]


class Run(TypedDict):
    """The identity of a run. ``started`` and ``finished`` are ISO 8601."""

    id: Text
    version: Text
    started: Moment
    finished: Moment | None
    command: list[str]
    directory: str
    seed: NotRequired[int]
    suites: NotRequired[list[str]]
    hosts: NotRequired[list[str]]
    seconds: NotRequired[NotNegative | None]


class Cluster(TypedDict):
    """The cluster for which the storage is judged, and the resulting limits."""

    accelerators: CountFromOne
    failure_model: str
    failures_per_day: Positive
    mttf_seconds: Positive
    checkpoints_per_failure: Positive
    checkpoints_per_day: Positive
    interval_seconds: Positive
    failures_per_day_in_slots: Positive
    save_budget: Share
    load_budget: Share
    save_limit_seconds: Positive
    load_limit_seconds: Positive
    reasons: dict[str, str]
    inputs: list[LimitInput]


class ReplayedPattern(TypedDict):
    """The pattern of a recorded job that an engine replays: its file, the file's SHA-256, and its text.

    ``pace`` is present if the replay repeats the pauses of the job.
    """

    file: str
    sha256: str
    text: str
    pace: NotRequired[Literal["recorded"]]


class FileNames(TypedDict):
    """The names of a checkpoint's files, if the engine's library chooses the names (`facts.file_rules.FileRule`)."""

    of_rank: Text
    shared: list[str]
    passing: list[str]
    pattern: NotRequired[ReplayedPattern]
    maximum_bytes: NotRequired[CountFromOne]
    writers: NotRequired[Annotated[int, Bounds(ge=2)]]
    consolidated: NotRequired[Text]
    commit: NotRequired[Text]


class Engine(TypedDict):
    """An engine of the plan, its owner (empty for a built-in engine), and the memory that a rank needs.

    The memory is the sum of three terms:

    - ``process_bytes``.
    - ``state_share``, multiplied by the bytes that the rank saves.
    - ``file_share``, multiplied by the bytes of the rank's largest file.
    """

    name: Text
    owner: str
    commits: Literal["store", "engine"]
    is_collective: bool
    stages: bool
    process_bytes: Count
    state_share: NotNegative
    file_share: NotRequired[NotNegative]
    files: NotRequired[FileNames]


class Memory(TypedDict):
    """The memory in bytes that a checkpoint needs, on the rank and on the host with the highest need.

    ``after_ramp`` is {number of requests in flight that a ramp chooses: memory of this rank after the ramp}.
    """

    largest_rank: Count
    largest_host: Count
    after_ramp: dict[str, Count]


class Checkpoint(TypedDict):
    """One checkpoint layout of the plan, with its limits at the scale of the run."""

    subject: Text
    model: str
    mode: Literal["full", "subset", "open"]
    processes: Count
    scale: Share
    operations: Annotated[int, Bounds(ge=0, le=100_000)]
    bytes: Count
    full_bytes: Count
    files: Count
    published: str
    save_bytes_per_second: NotNegative
    load_bytes_per_second: NotNegative
    save_limit_seconds: NotNegative
    load_limit_seconds: NotNegative
    space_bytes: Count
    engine: Engine
    strategy: Annotated[str, Bounds(pattern=f"^({'|'.join(STRATEGY_OF)})$")]
    memory_bytes: Memory
    demand: Demand
    not_run: str | None
    rehearsal: str | None
    scenarios: list[str]
    deltas: DeltaRule | None
    drains: DrainRule | None
    definition: NotRequired[Model]


class Environment(TypedDict):
    """The environment of a run (`facts.environment.Environment`).

    In a report on a published result of another tool, the environment has only the facts that the result's files state.
    """

    hosts: list[Annotated[HostFacts, Partly(("host", "ranks"))]]
    target: TargetFacts
    versions: dict[str, str]
    launcher: str
    second_client: NotRequired[str]
    plugins: NotRequired[list[PluginFacts]]
    recorders: NotRequired[list[str]]


class Section(TypedDict):
    """A section of the report that a plugin wrote. pytest-ckpt neither measured nor judged its content."""

    plugin: Text
    title: Text
    paragraphs: list[str]
    head: list[str]
    rows: list[list[str]]


class Message(TypedDict):
    """A notice about a file of a published result."""

    path: str
    text: str


_HowKnown = Annotated[str, Bounds(pattern="^(all ranks|inferred from rank 0|at most|rank 0 only)$")]


class Figure(TypedDict):
    """The published times and the judged times of all saves, or of all loads, in a published result.

    - ``published_seconds``: the mean of rank 0's times.
    - ``slowest_mean_seconds``: the mean over all operations. The time of an operation is the time of its slowest
      process.
    - ``judged_seconds``: the time of the slowest process in the slowest operation.
    - ``basis``: how the slowest process is known. ``bases`` is {basis: number of operations}.
    - ``outcome``: whether the time limit was met, as far as the files record the times.
    - ``known_operations``: the number of operations whose slowest process is known.
    """

    kind: OperationKind
    operations: Count
    planned: Count
    basis: str
    bases: dict[_HowKnown, CountFromOne]
    published_seconds: Positive | None
    published_gib_per_second: Positive | None
    published_in: str
    slowest_mean_seconds: Positive | None
    overstatement: float | None
    judged_seconds: Positive | None
    outcome: Literal["met", "failed", "met as far as recorded", "not known"]
    outcome_text: Text
    known_operations: Count


class ReceivedBytes(TypedDict):
    """The bytes that the hosts' network interfaces received during the loads.

    - ``at_least``: the last sample was taken before the loads ended, so more bytes may have been received.
    - ``crossed``: at least 95 % of the loaded bytes were received. False does not prove that loads came from a cache.
    """

    received_bytes: Count
    loaded_bytes: CountFromOne
    at_least: bool
    crossed: bool
    description: Text


class Published(TypedDict):
    """The published and the judged values. Only a report on a published result of another tool has this field."""

    tool: str
    system: str
    runs: list[str]
    figures: list[Figure]
    signs: list[str]
    network: ReceivedBytes | None
    messages: list[Message]


class ChangedLimit(TypedDict):
    """An option that affects a limit: its value in the run, and its value in the new judgement."""

    option: Text
    of_run: str
    value: str


class JudgedAgain(TypedDict):
    """The original run, if this report is a new judgement of a finished run.

    - ``accelerators``, ``grade``: values of the original run. ``grade`` is empty if the run wrote no report.
    - ``judged``: the time of the new judgement, in ISO 8601.
    - ``version``: the version of pytest-ckpt that made the new judgement.
    - ``limits``: the options with a changed value.
    """

    accelerators: CountFromOne
    grade: Grade | Literal[""]
    judged: Moment
    version: Text
    limits: list[ChangedLimit]


class Report(TypedDict):
    """The measurements, verdicts and conclusions of one run of pytest-ckpt.

    A new version of pytest-ckpt may add fields. If the meaning of a field changes, the schema has a new number.
    """

    schema: Literal["pytest-ckpt/report/1"]
    run: Run
    grade: Grade
    grade_reasons: list[str]
    exit_code: ExitCode
    cluster: Cluster
    checkpoints: list[Checkpoint]
    requirements: list[Verdict]
    catalogue: list[CatalogueRow]
    catalogue_names: list[Text]
    gate_table: Gates
    waivers: list[Waiver]
    measurements: list[Measurement]
    observations: list[Observation]
    relevance: list[str]
    not_tested: list[str]
    sufficient_up_to_accelerators: list[ClusterSize]
    scope: Scope
    certified_for: Scope | None
    training: list[TrainingRow]
    forecast: list[Forecast] | None
    framework_overhead: list[FrameworkOverhead]
    system: dict[str, dict[str, Any] | list[dict[str, Any]]] | None
    system_lacks: list[str]
    environment: Environment
    settings: list[Origin]
    disclosures: list[str]
    client_limits: list[str]
    to_certify: list[str]
    sections: list[Section]
    stages: dict[str, NotNegative]
    left_behind: list[str]
    published: NotRequired[Published]
    starts: NotRequired[list[Start]]
    judged_again: NotRequired[JudgedAgain]


SCHEMA = "pytest-ckpt/report/1"


def disclosures(settings: Settings, gates: Gates) -> list[str]:
    """Return the lines that a certificate discloses: changed settings, and relaxed rows of the gate table.

    A setting is disclosed if its option has the role "disclosed" and its value is not the default. The line states the
    origin of the value.
    """
    disclosed = {option.flag for option in with_role("disclosed")}
    return [
        f"{o.option} {o.value} (default {o.default or NOT_SET}; from {o.source})"
        for o in settings.origins
        if o.value != o.default and o.option in disclosed
    ] + [f"relaxed by the gate table '{gates.name}': {sentence}" for sentence in gates.relaxed]


def plugin_sentences(plugins: Iterable[PluginFacts]) -> list[str]:
    """Return a phrase for every plugin that took part, with the plugin's version and hooks."""
    return [
        f"plugin {p.label} takes part with {', '.join(hook.removeprefix('pytest_ckpt_') for hook in p.hooks)}"
        for p in plugins
    ]


def create_document(
    *,
    run: Mapping[str, Any],
    plan: Plan,
    settings: Settings,
    gates: Gates,
    waivers: Sequence[Waiver],
    judgement: Judgement,
    exit_code: int,
    measurements: Sequence[Measurement],
    observations: Sequence[Observation],
    environment: Mapping[str, Any],
    stages: Mapping[str, float],
    left_behind: Sequence[str],
    system: Mapping[str, Any] | None = None,
    catalogue: Mapping[str, Requirement] = REQUIREMENTS,
    catalogue_names: Sequence[str] = CATALOGUE_NAMES,
    foresees: bool = True,
) -> dict[str, Any]:
    """Return the report in the form of ``report.json``, in plain types.

    - ``system``: the vendor's description of the system under test.
    - ``catalogue_names``: the requirements and checks in the version that made the run.
    - ``foresees``: the report contains a forecast. False for published measurements of other tools.
    """
    plain_plan = plan.to_plain()
    scope = scope_of(plan, settings, gates, measurements)
    # A published result has no proof of uncached loads; its page states what its loads imply, and certifies nothing.
    uncached = [v for v in judgement.verdicts if v.id == "COLD" and foresees]
    sizes = cluster_sizes(plan, measurements, {str(v.subject) for v in uncached if v.outcome != "met"})
    target = to_plain(environment.get("target") or {})
    kind = str(target.get("kind", ""))
    has_files = "paths" in (target.get("capabilities") or ())
    plugins = [from_plain(PluginFacts, plugin) for plugin in environment.get("plugins") or ()]
    limits = [
        *client_limits(measurements, networks_of(environment.get("hosts") or ())),
        *ceiling_limits(measurements),
    ]
    document = {
        "schema": SCHEMA,
        "run": run,
        "grade": judgement.grade,
        "grade_reasons": judgement.reasons,
        "exit_code": exit_code,
        "cluster": plain_plan["cluster"],
        "checkpoints": plain_plan["checkpoints"],
        "requirements": judgement.verdicts,
        "catalogue": [row(r) for r in requirements_of_run(settings, gates, catalogue)],
        "catalogue_names": catalogue_names,
        "gate_table": gates,
        "waivers": waivers,
        "measurements": measurements,
        "observations": observations,
        "relevance": relevance(
            plan,
            measurements,
            _of_one_host(kind, has_files=has_files) if target.get("is_local") else "",
            environment.get("recorders") or (),
            (target.get("stack") or {}).get("files") or (),
        ),
        "not_tested": not_tested(settings, gates, catalogue, measurements, observations, has_files=has_files),
        "sufficient_up_to_accelerators": sizes,
        "scope": scope,
        "certified_for": scope if judgement.grade == "certified" else None,
        "training": training_rows(plan, measurements, sizes),
        "forecast": forecasts(plan, measurements) if foresees else [],
        "framework_overhead": framework_overheads(measurements),
        "system": system,
        "system_lacks": missing_facts(system),
        "environment": environment,
        "settings": settings.origins,
        "disclosures": [
            *disclosures(settings, gates),
            *plugin_sentences(plugins),
            *engine_sentences(settings),
            *memory_sentences(plan, measurements),
            *uncounted(kind, (m.cache for m in measurements)),
            *(f"acts before the ranks' program: {phrase}" for phrase in start_hooks(measurements)),
            *limits,
            *differences({host["host"]: host.get("client") or {} for host in environment.get("hosts") or ()}),
        ],
        "client_limits": limits,
        "to_certify": list(dict.fromkeys(s.remedy for s in shortfalls(plan, settings, gates))),
        "sections": [],
        "stages": stages,
        "left_behind": left_behind,
    }
    plain: dict[str, Any] = to_plain(document)
    return plain


def _of_one_host(kind: str, *, has_files: bool) -> str:
    return f"a file system of one host ({kind})" if has_files else "an object store of one host"
