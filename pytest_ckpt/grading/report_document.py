"""The fields of ``report.json``. Its parts are the records that they are made of; `grading.document` fills it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

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
from pytest_ckpt.facts.environment import HostFacts, PluginFacts
from pytest_ckpt.facts.limit_inputs import LimitInput
from pytest_ckpt.facts.measurement import Measurement, OperationKind
from pytest_ckpt.facts.models import Model
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.settings import Origin
from pytest_ckpt.facts.starts import Start
from pytest_ckpt.facts.strategies import STRATEGY_OF
from pytest_ckpt.facts.strategy_results import DrainRule
from pytest_ckpt.facts.targets import TargetFacts
from pytest_ckpt.facts.verdict import Grade, Verdict
from pytest_ckpt.grading.catalogue import CatalogueRow
from pytest_ckpt.grading.forecast import Forecast
from pytest_ckpt.grading.frameworks import FrameworkOverhead
from pytest_ckpt.grading.goodput import ClusterSize, TrainingRow
from pytest_ckpt.grading.scope import Scope
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.judging.waivers import Waiver
from pytest_ckpt.sizing.deltas import DeltaRule
from pytest_ckpt.sizing.limits import Demand

ExitCode = Literal[0, 1, 2, 3, 4, 8]


class Run(TypedDict):
    """Which run this was. ``started`` and ``finished`` are ISO 8601."""

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
    """The cluster that the storage is judged for, and the limits that follow from it."""

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
    """The pattern of a recorded job that the engine replays: its file, the file's SHA-256, and its text.

    ``pace`` is set if the replay makes the pauses of the job.
    """

    file: str
    sha256: str
    text: str
    pace: NotRequired[Literal["recorded"]]


class FileNames(TypedDict):
    """The names of a checkpoint's files if the engine's library chooses them, as `facts.file_rules.FileRule`."""

    of_rank: Text
    shared: list[str]
    passing: list[str]
    pattern: NotRequired[ReplayedPattern]
    maximum_bytes: NotRequired[CountFromOne]
    writers: NotRequired[Annotated[int, Bounds(ge=2)]]
    consolidated: NotRequired[Text]
    commit: NotRequired[Text]


class Engine(TypedDict):
    """The engine that the plan was made with, its owner (empty: built in) and its memory rule.

    ``process_bytes`` a rank, ``state_share`` of the bytes that it saves and ``file_share`` of those in its largest
    file.
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
    """The memory that a checkpoint takes."""

    largest_rank: Count
    largest_host: Count


class Checkpoint(TypedDict):
    """One checkpoint layout of the plan. Limits apply to this layout at its scale."""

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
    """The environment of a run, as `facts.environment.Environment`; for a published result only its stated facts."""

    hosts: list[Annotated[HostFacts, Partly(("host", "ranks"))]]
    target: TargetFacts
    versions: dict[str, str]
    launcher: str
    second_client: NotRequired[str]
    plugins: NotRequired[list[PluginFacts]]
    recorders: NotRequired[list[str]]


class Section(TypedDict):
    """Text that a plugin wrote about the run; pytest-ckpt neither measured nor judged any of it."""

    plugin: Text
    title: Text
    paragraphs: list[str]
    head: list[str]
    rows: list[list[str]]


class Message(TypedDict):
    """The fault of a file of a published result."""

    path: str
    text: str


_HowKnown = Annotated[str, Bounds(pattern="^(all ranks|inferred from rank 0|at most|rank 0 only)$")]


class Figure(TypedDict):
    """The saves, or the loads: as published, by the slowest process, and judged.

    ``published_seconds`` is the mean of rank 0's own times, ``slowest_mean_seconds`` the mean of the slowest process,
    ``judged_seconds`` the slowest operation's slowest process. ``basis`` describes in words how the slowest process is
    known, ``bases`` how many operations have which basis. ``outcome``: whether the time limit was met, as far as the
    files record it; ``known_operations`` are the operations whose slowest process is known.
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
    """What the hosts' network interfaces received during the loads.

    ``at_least``: the interfaces were last read before the loads ended.
    ``crossed``: it is at least 95 % of the loaded bytes; false does not prove that loads came from a cache.
    """

    received_bytes: Count
    loaded_bytes: CountFromOne
    at_least: bool
    crossed: bool
    description: Text


class Published(TypedDict):
    """For a published result only: the published values next to the judged values."""

    tool: str
    system: str
    runs: list[str]
    figures: list[Figure]
    signs: list[str]
    network: ReceivedBytes | None
    messages: list[Message]


class Report(TypedDict):
    """The measurements, verdicts and conclusions of one run of pytest-ckpt.

    Fields may be added; a changed meaning requires a new schema number.
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
    sections: list[Section]
    stages: dict[str, NotNegative]
    left_behind: list[str]
    published: NotRequired[Published]
    starts: NotRequired[list[Start]]
