"""The facts about a run, such as model, processes and hosts, in a published result's files. Pure (no I/O).

The sources, in order of precedence, are mlpstorage's metadata, DLIO's composed configuration
(``dlio_config/config.yaml``), the overrides of this configuration, and the summary. Each source may be missing, because
published directories are often incomplete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_ckpt.facts.measurement import OperationKind
from pytest_ckpt.facts.models import Model
from pytest_ckpt.published.values import items, table
from pytest_ckpt.sizing.architectures import MODELS

EXPORT = "pytest_ckpt_export"
"""The name of the metadata table that marks a directory as an export of a pytest-ckpt run."""

_MAXIMUM_NAMES = 1_000
_MAXIMUM_SLOTS, _MAXIMUM_DIGITS = 16_384, 5

_GIB = 2**30
# The names of one value in the summaries of different versions; the unit of all is GiB.
_GIGABYTES = ("GB", "GiB")
_PREFIX = "workload."
_ENDLESS = 1e15

# More than any run has; larger counts are errors in a file.
_MAXIMUM_PROCESSES, _MAXIMUM_CHECKPOINTS = 16_384, 4_000


@dataclass(frozen=True, kw_only=True, slots=True)
class DisclosedSettings:
    """One invocation of mlpstorage, described by its metadata and summary. A missing fact is None or empty.

    ``command`` is ``run``, or a command that does not measure, such as ``datasize``. ``changed_parameters`` are
    the names of overridden parameters; None if overrides are not recorded. ``slots`` contains the number of processes
    of each host.

    ``started`` is the start of the invocation and ``ended`` is the end of the run in its summary; both are texts from
    the files. ``exported_by`` is the version of pytest-ckpt that exported the run; empty for results of DLIO.
    """

    has_metadata: bool = False
    accelerator: str = ""
    result_directory: str = ""
    changed_parameters: tuple[str, ...] | None = None
    slots: tuple[int, ...] = ()
    started: str = ""
    ended: str = ""
    exported_by: str = ""
    command: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Separation:
    """mlpstorage's test whether checkpoints and results are on one file system, from ``fs_separation.json``.

    ``same`` is the result of the test; None if the file contains no result. ``checkpoints`` and ``results`` are the two
    paths.
    """

    same: bool | None
    checkpoints: str
    results: str


def separation_of(content: Any) -> Separation | None:
    """Return the result of the test in the content of ``fs_separation.json``; None if ``content`` is None."""
    if content is None:
        return None
    fields = table(content)
    same = fields.get("same_filesystem")
    return Separation(
        same=same if isinstance(same, bool) else None,
        checkpoints=_text(fields.get("data_or_chkpt_path")),
        results=_text(fields.get("results_path")),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemDescription:
    """The statements of a system's description (``systems/SYSTEM.yaml``) about use by several hosts.

    A value is None if the description does not state it. ``remap_seconds`` is the time from the end of a save until
    another host can read the complete checkpoint.
    """

    several_hosts: bool | None
    simultaneous_writes: bool | None
    simultaneous_reads: bool | None
    remap_seconds: float | None


def system_of(content: Any) -> SystemDescription | None:
    """Return the statements in the content of a system's description; None if ``content`` is None.

    The format of round v3.0 and the format in the text of the rules are supported.
    """
    if content is None:
        return None
    solution = table(table(table(content).get("system_under_test")).get("solution"))
    declared = table(solution.get("capabilities"))
    shared = table(table(table(content).get("System")).get("shared_capabilities"))

    def either(name: str, *others: str) -> bool | None:
        answers = (declared.get(name), *(shared.get(other) for other in others))
        return next((answer for answer in answers if isinstance(answer, bool)), None)

    remap = declared.get("remap_time_in_seconds")
    return SystemDescription(
        several_hosts=either("multi_host", "multi_host_support"),
        simultaneous_writes=either("simultaneous_write", "simultaneous_write_support"),
        # The rules' text has two underscores in this name.
        simultaneous_reads=either("simultaneous_read", "simultaneous_read_support", "simultaneous_read__support"),
        remap_seconds=0.0 if remap == 0 and not isinstance(remap, bool) else _number(remap),
    )


def disclosed_of(metadata: Mapping[str, Any], summary: Mapping[str, Any]) -> DisclosedSettings:
    """Return the settings of one invocation from its metadata and summary. Either argument may be empty."""
    args = metadata.get("args")
    fields = {**(args if isinstance(args, dict) else {}), **metadata}
    changed = metadata.get("override_parameters")
    export = metadata.get(EXPORT)
    return DisclosedSettings(
        has_metadata=bool(metadata),
        accelerator=_text(fields.get("accelerator")) or _text(fields.get("accelerator_type")),
        result_directory=_text(fields.get("result_dir")) or _text(fields.get("results_dir")),
        changed_parameters=tuple(map(str, list(changed)[:_MAXIMUM_NAMES])) if isinstance(changed, dict) else None,
        slots=_slots(fields.get("hosts")),
        started=_text(metadata.get("invocation_start_time")),
        ended=_text(summary.get("end")) or _text(summary.get("end_time")),
        exported_by=f"pytest-ckpt {_text(export.get('version'))}".strip() if isinstance(export, dict) else "",
        command=_text(metadata.get("command")),
    )


def _slots(hosts: Any) -> tuple[int, ...]:
    """Return the number of processes of each host from texts ``name:slots``; empty if a text has no number."""
    words = [_text(host) for host in hosts] if isinstance(hosts, list) else []
    counts = [word.rpartition(":")[2] for word in words[:_MAXIMUM_SLOTS]]
    if not words or not all(":" in word for word in words) or not all(_is_count(c) for c in counts):
        return ()
    return tuple(map(int, counts))


def _is_count(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= _MAXIMUM_DIGITS


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """The published values of the saves or of the loads. Both values are means over rank 0's times.

    ``gib_per_second`` is in GiB/s, even if the name of the value in the file contains "GB".
    """

    seconds: float | None
    gib_per_second: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The facts about a run from all files except the ranks' statistics. A missing fact is None or empty.

    ``planned`` is {kind: requested number of operations}. ``seconds_between`` is the pause between operations.
    ``pause_varies`` is true if each pause was random. ``rank_sync`` is true if every rank waited for the slowest rank
    before it stopped its clock. ``cached_bytes`` is the total page cache of all hosts at the start of the run.
    ``contradictions`` are sentences on files that contradict each other.
    """

    model: str = ""
    architecture: Mapping[str, Any] = field(default_factory=dict)
    processes: int | None = None
    mode: str = ""
    seconds_between: float | None = None
    pause_varies: bool = False
    rank_sync: bool = False
    planned: Mapping[OperationKind, int] = field(default_factory=dict)
    fsync: bool | None = None
    checkpoint_folder: str = ""
    bytes: int | None = None
    hosts: tuple[str, ...] = ()
    host_count: int | None = None
    host_memory_bytes: tuple[int, ...] = ()
    cached_bytes: int | None = None
    published: Mapping[OperationKind, Published] = field(default_factory=dict)
    kind_of_benchmark: str = ""
    contradictions: tuple[str, ...] = ()
    disclosed: DisclosedSettings = field(default_factory=DisclosedSettings)
    separation: Separation | None = None
    system: SystemDescription | None = None


def facts_of(metadata: Any, config: Any, overrides: Any, summary: Any) -> Facts:
    """Return the combined facts from all files of a run.

    Each argument is the parsed content of a file; None if the file is missing.
    """
    meta, about = table(metadata), table(summary)
    workload = table(table(config).get("workload"))
    seen = _overridden(overrides)
    parts = [table(meta.get("parameters")), workload]
    checkpoint: dict[str, Any] = {}
    for part in (seen, *(table(p.get("checkpoint")) for p in reversed(parts))):
        checkpoint |= part
    architecture = next((m for p in parts if (m := table(p.get("model")))), {})
    counts = {
        "mlpstorage's metadata": _count(meta.get("num_processes")),
        "summary.json": _count(about.get("num_accelerators")),
    }
    known = {name: count for name, count in counts.items() if count}
    contradictions = []
    if len(set(known.values())) > 1:
        contradictions.append(
            "The files disagree on the processes: " + ", ".join(f"{n} says {c:,}" for n, c in known.items()) + "."
        )
    pauses = {
        name: _between(table(part.get("checkpoint")).get("time_between_checkpoints"))
        for name, part in zip(("mlpstorage's metadata", "config.yaml"), parts, strict=True)
    }
    recorded = {name: pause for name, pause in pauses.items() if pause is not None}
    if len(set(recorded.values())) > 1:
        contradictions.append(
            "The files disagree on the time between checkpoints: "
            + ", ".join(f"{n} says {p:g} s" for n, p in recorded.items())
            + "."
        )
    metric = table(about.get("metric"))
    machines = [table(h) for h in items(table(meta.get("system_info")).get("hosts"))]
    memory = [_number(table(m.get("memory")).get("total")) for m in machines]
    if not any(memory):
        memory = [None if (gib := _number(g)) is None else gib * _GIB for g in items(about.get("host_memory_GB"))]
    size = next((n for g in _GIGABYTES if (n := _number(metric.get(f"checkpoint_size_{g}")))), None)
    hosts = tuple(str(m["hostname"]) for m in machines if m.get("hostname"))
    return Facts(
        model=_text(meta.get("model")) or _text(seen.get("workload")) or _text(architecture.get("name")),
        architecture=architecture,
        processes=next(iter(known.values()), None),
        mode=_text(checkpoint.get("mode")),
        seconds_between=_between(checkpoint.get("time_between_checkpoints")),
        pause_varies=_varies(checkpoint.get("time_between_checkpoints")),
        rank_sync=checkpoint.get("rank_sync") is True,
        planned=_planned(checkpoint),
        fsync=checkpoint["fsync"] if isinstance(checkpoint.get("fsync"), bool) else None,
        checkpoint_folder=_text(checkpoint.get("checkpoint_folder")),
        bytes=None if not size else round(size * _GIB),
        hosts=hosts or tuple(filter(None, [_text(about.get("hostname"))])),
        host_count=_count(about.get("num_hosts")) or len(machines) or None,
        host_memory_bytes=tuple(int(m) for m in memory if m),
        cached_bytes=_cached(meta),
        published={kind: found for kind in ("save", "load") if (found := _published(metric, kind))},
        kind_of_benchmark=_text(meta.get("benchmark_type")),
        contradictions=tuple(contradictions),
        disclosed=disclosed_of(meta, about),
    )


def model_by_name(name: str) -> Model | None:
    """Return the Llama 3 model whose size is at the end of ``name``; None if there is no such model.

    ``llama3-405b``, ``llama_405b`` and ``llama3_405b`` name the same model.
    """
    size = name.lower().replace("_", "-").rsplit("-", 1)[-1]
    return MODELS.get(f"llama3-{size}") if name.lower().startswith("llama") else None


def model_by_architecture(architecture: Mapping[str, Any]) -> Model | None:
    """Return the model with exactly this architecture; None if there is no such model."""
    shape, cut = table(architecture.get("transformer")), table(architecture.get("parallelism"))
    layout = (
        architecture.get("num_layers"),
        shape.get("hidden_size"),
        shape.get("ffn_hidden_size"),
        shape.get("vocab_size"),
        shape.get("num_attention_heads"),
        shape.get("num_kv_heads"),
        cut.get("tensor"),
        cut.get("pipeline"),
        cut.get("zero_stage"),
    )
    for model in MODELS.values():
        ours = (
            model.layers,
            model.hidden,
            model.feed_forward,
            model.vocabulary,
            model.heads,
            model.key_value_heads,
            model.tensor_parallel,
            model.pipeline_parallel,
            model.zero_stage,
        )
        if layout == ours:
            return model
    return None


def _published(metric: Mapping[str, Any], kind: str) -> Published | None:
    seconds = _number(metric.get(f"{kind}_checkpoint_duration_mean_seconds"))
    rate = next(
        (n for g in _GIGABYTES if (n := _number(metric.get(f"{kind}_checkpoint_io_mean_{g}_per_second")))), None
    )
    return Published(seconds=seconds, gib_per_second=rate) if seconds or rate else None


def _planned(checkpoint: Mapping[str, Any]) -> dict[OperationKind, int]:
    """Return {kind: requested number of saves or loads}. A negative number, such as DLIO's -1, counts as 0."""
    found: dict[OperationKind, int] = {}
    if (
        writes := _whole_number(checkpoint.get("num_checkpoints_write"))
    ) is not None and writes <= _MAXIMUM_CHECKPOINTS:
        found["save"] = max(0, writes)
    if (reads := _whole_number(checkpoint.get("num_checkpoints_read"))) is not None and reads <= _MAXIMUM_CHECKPOINTS:
        found["load"] = max(0, reads)
    return found


def _overridden(overrides: Any) -> dict[str, Any]:
    """Return {name: value} of the checkpoint settings in Hydra's override lines.

    An example of a line is ``++workload.checkpoint.fsync=True``.
    """
    found: dict[str, Any] = {}
    for line in items(overrides):
        name, _, value = str(line).lstrip("+").partition("=")
        if name == "workload":
            found["workload"] = value
        elif name.startswith(f"{_PREFIX}checkpoint."):
            found[name.removeprefix(f"{_PREFIX}checkpoint.")] = _as_number(value)
    return found


def _as_number(text: str) -> Any:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return {"true": True, "false": False}.get(text.lower(), text)


def _between(value: Any) -> float | None:
    """Return the configured pause between operations in seconds; None if ``value`` gives no number.

    As in DLIO, a negative pause counts as positive. A table with only a mean counts as this mean. A random
    distribution gives None.
    """
    if isinstance(value, dict) and not _varies(value):
        value = value.get("mean")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(abs(value)) if abs(value) < _ENDLESS else None


def _varies(value: Any) -> bool:
    """Whether a pause is configured as a random distribution."""
    return isinstance(value, dict) and bool(value) and ("type" in value or "stdev" in value or "mean" not in value)


def _cached(meta: Mapping[str, Any]) -> int | None:
    """Return the total page cache of all hosts when mlpstorage began, in bytes.

    Return None if the size for any host is not recorded.
    """
    began = table(table(meta.get("cluster_snapshots")).get("start"))
    hosts = items(began.get("hosts")) or items(table(meta.get("system_info")).get("hosts"))
    cached = [_whole_number(table(table(host).get("memory")).get("cached")) for host in hosts]
    known = [amount for amount in cached if amount is not None and amount >= 0]
    return sum(known) if known and len(known) == len(cached) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _whole_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _ENDLESS else None


def _count(value: Any) -> int | None:
    whole = _whole_number(value)
    return whole if whole is not None and 0 < whole <= _MAXIMUM_PROCESSES else None


def _number(value: Any) -> float | None:
    """Return ``value`` if it is a finite number above 0; otherwise None. NaN, the mean of an empty list, gives None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < _ENDLESS else None
