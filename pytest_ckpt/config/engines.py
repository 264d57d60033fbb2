"""The available engines (libraries or methods that save and load checkpoints).

Engines are built in, supplied by plugins or installed packages, or recorded in a run. The list is created once, when a
run or a command begins. The code of an installed package is imported only if its engine is chosen.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.compression import CODECS, EXTRA
from pytest_ckpt.facts.engines import BUILT_IN, DEFAULT, EngineSpec, MemoryRule
from pytest_ckpt.facts.file_rules import FileRule, JobPattern
from pytest_ckpt.facts.pattern import read_pattern
from pytest_ckpt.support.errors import UsageError, nearest

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.strategies import StrategySpec


GROUP = "pytest_ckpt.engines"
"""The group of entry points for engines. Each entry point has the name of its engine and refers to an `EngineSpec`."""

OPTION = "--ckpt-engine"
_NOT_OURS = {
    "gds": "GPUDirect Storage is not supported. It requires a GPU and kvikio and was not tested on "
    "such a machine; without them kvikio uses the page cache, which must never be certified as GPUDirect."
}
"""Names of engines that users may expect, and the reason why each is not supported."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_REFERENCE = re.compile(r"[\w.]+:[\w.]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Engines:
    """The available engines: ``known`` maps the name of an engine to a function that returns the engine."""

    known: Mapping[str, Callable[[], EngineSpec]]

    def choose(self, name: str) -> EngineSpec:
        """Return the engine with this name.

        Raises ValueError for an unknown name. Raises UsageError for an engine that is not supported or cannot be
        loaded.
        """
        if name not in self.known:
            if reason := _NOT_OURS.get(name):
                raise UsageError(
                    f"{OPTION} {name}: {reason}", f"Choose an available engine, such as {OPTION}={DEFAULT.name}."
                )
            raise ValueError(f"one of {', '.join(self.known)} is expected{nearest(name, self.known)}")
        return self.known[name]()


def known_engines(specs: Iterable[EngineSpec] = ()) -> Engines:
    """Return the built-in engines and ``specs``, without a search for installed packages.

    If two engines have the same name, the built-in engine is used. Exception: an engine of ``specs`` with a recorded
    pattern replaces the built-in engine.
    """
    specs = list(specs)
    with_pattern = [spec for spec in specs if spec.files.pattern]
    return Engines(known={spec.name: _always(spec) for spec in (*specs, *BUILT_IN, *with_pattern)})


def find_engines(hooked: Iterable[EngineSpec] = ()) -> Engines:
    """Return the available engines.

    These are the built-in engines, the engines of plugins (``hooked``), and the engines of installed packages. Raises
    UsageError if two engines have the same name.
    """
    known = {spec.name: _always(spec) for spec in BUILT_IN}
    owners = dict.fromkeys(known, "pytest-ckpt")
    for spec in hooked:
        _refuse_two(owners, spec.name, spec.owner)
        known[spec.name] = _always(spec)
    for point in importlib.metadata.entry_points(group=GROUP):
        _refuse_two(owners, point.name, _owner(point))
        known[point.name] = _loaded(point)
    return Engines(known=known)


def is_installed(spec: EngineSpec) -> bool:
    """Whether the library of an engine is installed. The check does not import the library."""
    return not missing_packages(spec)


def missing_packages(spec: EngineSpec) -> list[str]:
    """Return the libraries that an engine needs and that are not installed."""
    return [name for name in spec.packages if importlib.util.find_spec(name) is None]


def check_installed(spec: EngineSpec) -> None:
    """Raise UsageError if the library of an engine is not installed."""
    if missing := missing_packages(spec):
        wanted = f"pytest-ckpt[{spec.extra}]" if spec.extra else " ".join(spec.packages)
        others = " or ".join(f"{OPTION}={other.name}" for other in BUILT_IN if is_installed(other))
        raise UsageError(
            f"{OPTION} {spec.name} needs the package {' and '.join(missing)}, which is not installed.",
            f"Run: pip install '{wanted}'. Or use {others}.",
        )


def read_spec(given: object, owner: str) -> EngineSpec:
    """Check an engine that another package supplies. Return the engine with ``owner`` as its owner.

    ``owner`` is the name and version of the package. Raises ValueError with the reason if the engine is invalid.
    """
    if not isinstance(given, EngineSpec):
        raise ValueError(f"{given!r} is not a pytest_ckpt.vendors.EngineSpec")
    if not isinstance(given.name, str) or not _NAME.fullmatch(given.name):
        raise ValueError(
            f"the name {given.name!r} contains signs other than small letters, digits, dots, hyphens and underscores"
        )
    if not isinstance(given.make, str) or not _REFERENCE.fullmatch(given.make):
        raise ValueError(f"make of engine {given.name} is {given.make!r}, and 'module:function' is expected")
    memory = given.memory
    if not isinstance(memory, MemoryRule) or min(memory) < 0:
        raise ValueError(f"memory of engine {given.name} is {memory!r}, and a MemoryRule of numbers from 0 is expected")
    _check_files(given)
    if given.commits not in ("store", "engine"):
        raise ValueError(f"commits of engine {given.name} is {given.commits!r}, and store or engine is expected")
    return given._replace(owner=owner, needs=frozenset(given.needs))


def recorded_engine(plain: Mapping[str, Any]) -> EngineSpec:
    """Return the engine that a plan or report describes. Such an engine can be judged, but it cannot save or load.

    Raises KeyError or TypeError for an invalid description. Raises ValueError if the engine's pattern is invalid or
    does not match its digest.
    """
    named = plain.get("files") or {}
    return EngineSpec(
        name=plain["name"],
        help="",
        make="",
        memory=MemoryRule(
            process_bytes=int(plain["process_bytes"]),
            state_share=float(plain["state_share"]),
            file_share=float(plain.get("file_share", 0.0)),
        ),
        commits=plain["commits"],
        is_collective=plain["is_collective"],
        stages=bool(plain.get("stages", False)),
        files=FileRule(
            of_rank=named.get("of_rank", ""),
            shared=tuple(named.get("shared", ())),
            passing=tuple(named.get("passing", ())),
            maximum_bytes=int(named.get("maximum_bytes", 0)),
            pattern=_recorded_pattern(named["pattern"]) if "pattern" in named else None,
            writers=int(named.get("writers", 1)),
            consolidated=named.get("consolidated", ""),
            commit=named.get("commit", ""),
        ),
        owner=plain["owner"],
        replays="pattern" in named,
    )


def check_codec(engines: Iterable[EngineSpec], strategies: Iterable[StrategySpec], *, compressible: float) -> None:
    """Raise UsageError if a compressing strategy is combined with an unsuitable engine or unsuitable content.

    An engine whose library writes files itself is unsuitable, because its library does not use the codec.
    ``compressible`` is the share of zeros that an option adds to the content. This share must be 0, because zeros would
    make the compression ratio too good.
    """
    named = [strategy.name for strategy in strategies if strategy.compresses]
    if not named:
        return
    for engine in engines:
        if not _writes_through_us(engine):
            raise UsageError(
                f"--ckpt-strategy {named[0]} with --ckpt-engine {engine.name}: its library writes files itself, "
                "without the codec.",
                f"Take {' or '.join(spec.name for spec in BUILT_IN if _writes_through_us(spec))}.",
            )
    if compressible:
        raise UsageError(
            f"--ckpt-compressible with --ckpt-strategy {named[0]}: added zeros would make the codec look better.",
            "Leave --ckpt-compressible out: content compresses as a measured training state does.",
        )


def check_codec_installed(settings: Settings) -> None:
    """Raise UsageError if a strategy compresses and the library of the codec is not installed."""
    package, module = (getattr(CODECS[settings.compress.partition(":")[0]], name) for name in ("package", "module"))
    if settings.compresses and importlib.util.find_spec(module.partition(".")[0]) is None:
        raise UsageError(
            f"--ckpt-strategy=compressed:codec {settings.compress} needs the package {package}, which is not "
            f"installed.",
            f"Run: pip install 'pytest-ckpt[{EXTRA}]'.",
        )


def _check_files(given: EngineSpec) -> None:
    """Raise ValueError if the declared file names of an engine are invalid.

    The clean-up recognises the files of an engine in a checkpoint directory by these names.
    """
    rule = given.files
    if not isinstance(rule, FileRule) or not isinstance(rule.of_rank, str):
        raise ValueError(f"files of engine {given.name} is {rule!r}, and a FileRule is expected")
    if rule.of_rank and "{rank}" not in rule.of_rank and "{shard}" not in rule.of_rank:
        raise ValueError(f"files of engine {given.name} names {rule.of_rank!r} for all ranks, without {{rank}}")
    if not isinstance(rule.writers, int) or rule.writers < 1 or (rule.writers > 1 and "{writer}" not in rule.of_rank):
        raise ValueError(
            f"files of engine {given.name} has {rule.writers!r} writers, and {{writer}} does not name them"
        )
    if not isinstance(rule.maximum_bytes, int) or rule.maximum_bytes < 0:
        raise ValueError(
            f"files of engine {given.name} has {rule.maximum_bytes!r} as maximum_bytes: bytes are expected"
        )
    if rule.maximum_bytes and "{number}" not in rule.of_rank:
        raise ValueError(f"files of engine {given.name} names {rule.of_rank!r} for all files, without {{number}}")
    if rule.consolidated and ("{number}" not in rule.consolidated or not rule.maximum_bytes):
        raise ValueError(
            f"files of engine {given.name} has {rule.consolidated!r} as consolidated: {{number}} and maximum_bytes "
            "are expected"
        )
    if rule.commit and (rule.commit not in rule.shared or given.commits != "engine"):
        raise ValueError(
            f"files of engine {given.name} has {rule.commit!r} as commit: one of shared is expected, and "
            "commits='engine'"
        )
    for name in filter(None, (rule.of_rank, *rule.shared, *rule.passing, rule.consolidated)):
        if not isinstance(name, str) or "/" in name or name in {".", ".."}:
            raise ValueError(f"files of engine {given.name} names {name!r}, and a name without directories is expected")


def _always(spec: EngineSpec) -> Callable[[], EngineSpec]:
    return lambda: spec


def _loaded(point: importlib.metadata.EntryPoint) -> Callable[[], EngineSpec]:
    def load() -> EngineSpec:
        try:
            spec = read_spec(point.load(), _owner(point))
            if spec.name != point.name:
                raise ValueError(f"it calls itself {spec.name}")
        except Exception as error:  # whatever a foreign module does
            raise UsageError(
                f"Engine {point.name} of {_owner(point)} ({point.value}) cannot be read: {error}",
                "Correct the package, or choose another engine.",
            ) from None
        return spec

    return load


def _owner(point: importlib.metadata.EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _refuse_two(owners: dict[str, str], name: str, owner: str) -> None:
    if name in owners:
        raise UsageError(
            f"Two engines have the name {name}: one of {owners[name]}, one of {owner}.", "Run without one of the two."
        )
    owners[name] = owner


def _recorded_pattern(plain: Mapping[str, str]) -> JobPattern:
    kept = JobPattern(**plain)
    if hashlib.sha256(kept.text.encode()).hexdigest() != kept.sha256:
        raise ValueError(f"the pattern of {kept.file} does not match the digest next to it")
    read_pattern(kept.text)
    return kept


def _writes_through_us(engine: EngineSpec) -> bool:
    return not engine.is_collective and "paths" not in engine.needs
