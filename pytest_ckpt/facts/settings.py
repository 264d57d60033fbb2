"""The settings of a run: the values of all options, for all other packages."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ckpt.facts.bounds import Text
from pytest_ckpt.facts.engines import EngineSpec
from pytest_ckpt.facts.models import Model
from pytest_ckpt.facts.strategies import StrategySpec

EMBEDDED = "embedded"
"""The value of ``--ckpt-endpoint`` with which the run starts its own object store."""

SUITES = ("performance", "strategies", "contention", "conformance", "endurance", "failover", "maintenance", "serving",
          "scaling", "metadata")  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """The amount of work in a run.

    - ``scale``: the share of every tensor that is saved.
    - ``operations``: the number of saves, and of loads.
    - ``effort``: the share of the trials in every check of behaviour.
    - ``left_out``: suites that ``--ckpt-suite=all`` excludes.
    """

    scale: float
    operations: int
    effort: float = 1.0
    left_out: tuple[str, ...] = ()


PROFILES = {
    "acceptance": Profile(scale=1.0, operations=10),
    "nightly": Profile(scale=1 / 100, operations=10),
    "smoke": Profile(scale=1 / 1000, operations=3, effort=1 / 10, left_out=("metadata",)),
}
ACCEPTANCE = PROFILES["acceptance"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Assurance:
    """The confidence that a run must give about operations that were not measured.

    At the level of confidence ``confidence``, at least the share ``share`` of all saves must meet the limit. The same
    applies to loads. The sampling plan permits ``misses`` measured saves, and as many loads, over the limit. If
    ``misses`` is larger, more operations are required.
    """

    confidence: float
    share: float
    misses: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSlots:
    """A host, and the number of ranks that may run on the host."""

    name: str
    slots: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The source of an option's value (such as a file), and the value as the user wrote it in this source."""

    option: Text
    value: str
    default: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """All settings of a run. Durations are in seconds, shares are fractions of 1."""

    target: str | None
    endpoints: tuple[str, ...]
    ca_bundle: str | None
    unversioned: bool
    cluster: int | None
    save_budget: float
    load_budget: float
    checkpoints_per_failure: int
    failures: str
    models: tuple[Model, ...]
    mode: str
    ranks: int
    hosts: tuple[HostSlots, ...]
    ports: tuple[int, int] | None
    nic_rate: float | None
    launcher: str | None
    engines: tuple[EngineSpec, ...]
    strategies: tuple[StrategySpec, ...]
    step_seconds: float
    step_cpu: float
    full_every: int
    changed_pages: float
    compress: str
    local_tier: str | None
    drain_every: int
    target_share: float
    preemption_notice_seconds: float
    serving_readers: int
    serving_limit_seconds: float
    consolidate_limit_seconds: float
    vendor_max_rates: tuple[float, float]
    metadata_files: int
    metadata_directories: int
    loader_bytes_per_second: float
    io_size_bytes: int
    io_depth: int
    profile: str
    scale: float
    operations: int
    assurance: Assurance | None
    drop_caches: str
    io_timeout_seconds: float
    seed: int | None
    keep_files: bool
    keep_last: int
    data_pairs: int
    compressible: float
    duration_seconds: float
    near_full: bool
    suites: tuple[str, ...]
    gate_table: str
    waivers: str | None
    second_mount: str | None
    client_cache_bytes: int | None
    small_volume: str | None
    power_cut: str | None
    power_cuts: int
    fault_command: str | None
    repair_command: str | None
    upgrade_command: str | None
    snapshot_command: str | None
    remove_snapshot_command: str | None
    effort: float
    report: str
    resume: bool
    system: str | None
    pdf: bool
    sign: str | None
    history: str | None
    metrics: str | None
    origins: tuple[Origin, ...]

    def source_of(self, option: str) -> str:
        """Return the source of an option's value as text in brackets.

        The text is empty if the source is the command line or the default.
        """
        source = next((o.source for o in self.origins if o.option == option), "default")
        return "" if source in ("default", "command line") else f" (in {source})"

    def is_set(self, option: str) -> bool:
        """Whether an option has a value other than its default."""
        return any(origin.option == option and origin.value != origin.default for origin in self.origins)

    @property
    def has_several_hosts(self) -> bool:
        """Whether ranks run on more than one host. Another host can then be the second client."""
        return len({host.name for host in self.hosts}) > 1

    @property
    def measures(self) -> bool:
        """Whether the run saves and loads checkpoints. A run that only checks behaviour needs no ranks."""
        return self.suites != ("conformance",)

    @property
    def has_tiers(self) -> bool:
        """Whether a strategy of the run saves to a local tier first."""
        return any(strategy.tiers for strategy in self.strategies)

    @property
    def compresses(self) -> bool:
        """Whether a strategy of the run compresses files with a codec."""
        return any(strategy.compresses for strategy in self.strategies)

    @property
    def includes_strategies(self) -> bool:
        """Whether the run includes the suite "strategies": background saves are judged, and some are killed."""
        return "strategies" in self.suites

    @property
    def includes_notice(self) -> bool:
        """Whether the run sends preemption notices to its jobs, which then save."""
        return self.includes_strategies and bool(self.preemption_notice_seconds)

    @property
    def includes_serving(self) -> bool:
        """Whether the run includes the suite "serving": replicas load weights, and one client rewrites the weights."""
        return "serving" in self.suites

    @property
    def includes_scaling(self) -> bool:
        """Whether the run includes the suite "scaling": increasing numbers of clients save and load."""
        return "scaling" in self.suites

    @property
    def includes_metadata(self) -> bool:
        """Whether the run includes the suite "metadata": many files are created, looked up, listed and removed."""
        return "metadata" in self.suites

    @property
    def includes_contention(self) -> bool:
        """Whether the run includes the suite "contention": saves and loads during other work, and resharded loads."""
        return "contention" in self.suites

    @property
    def includes_endurance(self) -> bool:
        """Whether the run includes the suite "endurance": long series of saves, and saves on a nearly full volume."""
        return "endurance" in self.suites

    @property
    def includes_failover(self) -> bool:
        """Whether the user gave the command that injects a fault during saves and loads."""
        return bool(self.fault_command)

    @property
    def includes_upgrade(self) -> bool:
        """Whether the user gave the command that changes the storage during saves and loads."""
        return bool(self.upgrade_command)

    @property
    def includes_snapshots(self) -> bool:
        """Whether the user gave the command that takes snapshots of the target."""
        return bool(self.snapshot_command)
