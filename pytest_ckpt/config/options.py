"""Declares the options and turns command line, environment, files and hooks into Settings."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.analysis.acceptance import trials_for
from pytest_ckpt.config import parsers
from pytest_ckpt.config.engines import Engines, check_codec, known_engines
from pytest_ckpt.config.models import Models
from pytest_ckpt.config.pattern_files import with_pattern
from pytest_ckpt.facts.engines import BUILT_IN
from pytest_ckpt.facts.options import GROUPS, OPTIONS, Option, declaration
from pytest_ckpt.facts.settings import PROFILES, Assurance, Origin, Profile, Settings
from pytest_ckpt.facts.strategies import STRATEGIES
from pytest_ckpt.support.errors import UsageError, nearest
from pytest_ckpt.support.user_files import parse_toml, read_user_text, user_path

if TYPE_CHECKING:
    import argparse

    from pytest_ckpt.facts.engines import EngineSpec
    from pytest_ckpt.facts.models import Model
    from pytest_ckpt.facts.strategies import StrategySpec

DEFAULT_PROCESSES = 8
_BY_NAME = {option.ini_name: option for option in OPTIONS}
# Options with which the storage changes while it is measured.
_CHANGES = ("fault_command", "upgrade_command", "snapshot")


def add_options(parser: argparse.ArgumentParser, options: Iterable[Option] = OPTIONS) -> None:
    """Declare options to a command, in their groups."""
    options = list(options)
    for title in GROUPS:
        if of_group := [option for option in options if option.group == title]:
            group = parser.add_argument_group(title)
            for option in of_group:
                group.add_argument(*option.flags, **declaration(option))


def said_of(asked: argparse.Namespace, options: Iterable[Option] = OPTIONS) -> dict[str, str | None]:
    """Return what a command line said of the options: ini names and texts, None where nothing was said."""
    return {option.ini_name: getattr(asked, option.ini_name) for option in options}


def resolve(
    command_line: Mapping[str, str | None],
    ini: Mapping[str, str | None],
    *,
    ini_source: str = "pytest configuration",
    hooked: Mapping[str, tuple[str, str]] | None = None,
    engines: Engines | None = None,
    kept: Mapping[str, Model] | None = None,
) -> Settings:
    """Make the settings of a run. The command line wins over the TOML file, that over the ini file, that over defaults.

    Both mappings go from ini names (``ckpt_target``) to text, None where nothing was said; ``ini_source`` says what the
    second one is. ``hooked`` goes from ini names to (source, text) of what plugins said; it wins over defaults alone.
    ``engines`` are those that can be chosen, and which is the default; without it the built-in ones. ``kept`` are the
    models that a run has kept, by what was said of them: their files are not read.
    Raises UsageError that names the option, the value, what is accepted and the nearest correct word.
    """
    layers: list[tuple[str, Mapping[str, str | None]]] = [("command line", command_line)]
    config = command_line.get("ckpt_config") or ini.get("ckpt_config")
    engines = engines or known_engines()
    if config:
        _parse(_BY_NAME["ckpt_config"], config, "command line", engines)
        layers.append((config, _read_toml(user_path(config, "--ckpt-config"))))
    layers.append((ini_source, ini))
    defaults = {"ckpt_engine": (engines.default_source, engines.default), **(hooked or {})}
    values: dict[str, Any] = {}
    origins = []
    for option in OPTIONS:
        source, text = defaults.get(option.ini_name, ("default", option.default))
        for name, layer in layers:
            if (given := layer.get(option.ini_name)) is not None:
                source, text = name, given
                break
        if option.is_flag:
            text = {"true": "on", "false": "off"}.get(text.lower(), text)
        if not text and source != "default":
            raise UsageError(f"{option.flag} has no value{_where(source)}.", f"{option.flag}: {option.help}.")
        values[option.key] = _parse(option, text, source, engines) if text else option.unset
        origins.append(Origin(option=option.flag, value=text, default=option.default, source=source))
    profile = PROFILES[values["profile"]]
    operations = _planned_operations(values["operations"], values["confidence"], profile)
    if values["keep_last"] and values["keep_last"] > operations:
        raise UsageError(
            f"--ckpt-keep-last {values['keep_last']}: the run has {operations} saves, and no more can be kept.",
            f"Keep fewer, or leave it out: without it all {operations} stay until they have been loaded.",
        )
    models = Models(parallelism=values["parallel"], kept=kept or {})
    values["model"] = models.choose(values["model"])
    names = [strategy.name for strategy in values["strategy"]]
    values["engine"] = with_pattern(
        values["engine"], values["replay_file"], names, values["replay_timing"], values["io_timeout"]
    )
    _check_staging(values["engine"], values["strategy"])
    _check_commits(values["engine"], values["strategy"])
    _check_certificates(values["engine"], values["ca_bundle"])
    _check_together(values)
    _check_deltas(values)
    _check_tiers(values)
    check_codec(values["engine"], values["strategy"], compressible=values["compressible"])
    fields = {option.field or option.key: values[option.key] for option in OPTIONS if option.field != "-"}
    # What depends on more than one option.
    fields |= {
        "ranks": values["ranks"] or sum(host.slots for host in values["hosts"]) or DEFAULT_PROCESSES,
        "scale": values["scale"] or profile.scale,
        "operations": operations,
        "effort": profile.effort,
    }
    return Settings(**fields, origins=tuple(origins))


def _planned_operations(said: int | None, wanted: Assurance | None, profile: Profile) -> int:
    """Return the number of saves, and of loads. Raises UsageError if fewer are asked for than the confidence needs."""
    if wanted is None:
        return said or profile.operations
    needed = trials_for(wanted.share, wanted.confidence)
    if said and said < needed:
        raise UsageError(
            f"--ckpt-operations {said} with --ckpt-confidence: that confidence needs {needed} saves and loads.",
            "Leave one of them out: --ckpt-confidence sets the number of operations itself.",
        )
    return said or max(needed, profile.operations)


def _parse(option: Option, text: str, source: str, engines: Engines) -> Any:
    try:
        value = getattr(parsers, option.parse)(text)
        return tuple(map(engines.choose, value)) if option.key == "engine" else value
    except ValueError as error:
        where = _where(source)
        raise UsageError(f"{option.flag} {text}{where}: {error}.", f"{option.flag}: {option.help}.") from None


def _check_staging(engines: Iterable[EngineSpec], strategies: Iterable[StrategySpec]) -> None:
    """Raise UsageError where an engine cannot save in the way that a strategy needs."""
    for strategy in strategies:
        for engine in engines:
            if strategy.stages and not engine.stages:
                raise UsageError(
                    f"--ckpt-strategy {strategy.name} with --ckpt-engine {engine.name}: this engine saves the state "
                    "itself, and no copy of it.",
                    f"Take {' or '.join(e.name for e in BUILT_IN if e.stages)}, or --ckpt-strategy="
                    f"{STRATEGIES[0].name}.",
                )


def _check_commits(engines: Iterable[EngineSpec], strategies: Iterable[StrategySpec]) -> None:
    """Raise UsageError where a checkpoint that an engine's library commits itself were to be made in another way."""
    for strategy in strategies:
        for engine in engines:
            if engine.files.commit and (strategy.saves_deltas or strategy.tiers):
                why = "saves some checkpoints as pages" if strategy.saves_deltas else "saves to a directory first"
                ways = " or ".join(s.name for s in STRATEGIES if not (s.saves_deltas or s.tiers or s.compresses))
                raise UsageError(
                    f"--ckpt-strategy {strategy.name} with --ckpt-engine {engine.name}: this strategy {why}. The "
                    "library of this engine saves whole checkpoints to a bucket and commits them itself.",
                    f"Take --ckpt-strategy={ways}, or --ckpt-engine=stream.",
                )


def _check_certificates(engines: Iterable[EngineSpec], ca_bundle: str | None) -> None:
    """Raise UsageError where certificates are named that an engine's library cannot be told of."""
    for engine in engines:
        if ca_bundle and engine.system_certificates:
            raise UsageError(
                f"--ckpt-ca-bundle with --ckpt-engine {engine.name}: its library verifies TLS by the certificates of "
                "the system alone.",
                "Add yours to those of every host (update-ca-certificates) and leave --ckpt-ca-bundle out, or take "
                f"{' or '.join(e.name for e in BUILT_IN if 'paths' not in e.needs and not e.system_certificates)}.",
            )


def _check_together(values: Mapping[str, Any]) -> None:
    """Raise UsageError where single ranks are to fail and go on, and an engine's ranks save and load together only."""
    for key in _CHANGES:
        for engine in values["engine"]:
            if values[key] and engine.is_collective:
                flag = _BY_NAME[f"ckpt_{key}"].flag
                raise UsageError(
                    f"{flag} with --ckpt-engine {engine.name}: while the storage changes, single ranks meet errors and "
                    "try again. The ranks of this engine save and load together only.",
                    f"Take {' or '.join(e.name for e in BUILT_IN if not e.is_collective)}.",
                )


def _check_deltas(values: Mapping[str, Any]) -> None:
    """Raise UsageError where deltas lack what they need, or something else cannot be had beside them."""
    named = [strategy.name for strategy in values["strategy"] if strategy.saves_deltas]
    if not named:
        return
    if not values["changed_pages"]:
        raise UsageError(
            f"--ckpt-strategy {named[0]} needs the share of the pages that change between two checkpoints.",
            "Say --ckpt-changed-pages=10% for sparse experts, adapters or frozen layers. Dense training changes all "
            "pages: deltas gain nothing there.",
        )
    if values["keep_last"]:
        raise UsageError(
            f"--ckpt-keep-last with --ckpt-strategy {named[0]}: it deletes one checkpoint at a time, and a delta is of "
            "no use without those before it.",
            "Leave --ckpt-keep-last out: RETAIN-CHAIN deletes a whole chain and loads another.",
        )


def _check_tiers(values: Mapping[str, Any]) -> None:
    """Raise UsageError where saves in tiers lack what they need, or something else cannot be had beside them."""
    named = [strategy.name for strategy in values["strategy"] if strategy.tiers]
    if not named:
        return
    if not values["local_tier"]:
        raise UsageError(
            f"--ckpt-strategy {named[0]} needs a local tier.",
            "Say --ckpt-local-tier=/mnt/nvme/ckpt: a directory on a disk or in memory of the host itself.",
        )
    several = len({host.name for host in values["hosts"]}) > 1
    if several and (
        shared := [engine.name for engine in values["engine"] if engine.files.shared or engine.is_collective]
    ):
        raise UsageError(
            f"--ckpt-engine {shared[0]} with --ckpt-strategy {named[0]} over several hosts: one rank writes files that "
            "all read, and no other host finds them in its local tier.",
            "Name one host, or take --ckpt-engine=torch or stream.",
        )
    for key in _CHANGES:
        if values[key]:
            flag = _BY_NAME[f"ckpt_{key}"].flag
            raise UsageError(
                f"{flag} with --ckpt-strategy {named[0]}: whether the target or the local tier met the change could "
                "not be told.",
                f"Leave {flag} out, or take --ckpt-strategy={STRATEGIES[0].name}.",
            )


def _where(source: str) -> str:
    return "" if source == "command line" else f" (in {source})"


def _read_toml(path: Path) -> dict[str, str | None]:
    try:
        table = parse_toml(read_user_text(path))
    except OSError as error:
        raise UsageError(f"--ckpt-config {path}: it cannot be read: {error.strerror}.", "Name a TOML file.") from None
    except ValueError as error:
        raise UsageError(f"--ckpt-config {path}: it is not TOML: {error}.", "Each line is ckpt_name = value.") from None
    given: dict[str, str | None] = {}
    for name, value in table.items():
        if name not in _BY_NAME or name == "ckpt_config":
            raise UsageError(
                f"--ckpt-config {path}: '{name}' is no option{nearest(name, _BY_NAME)}.",
                f"Known are {', '.join(n for n in _BY_NAME if n != 'ckpt_config')}.",
            )
        if isinstance(value, list):
            value = ",".join(map(str, value))  # noqa: PLW2901 - lists are another way to write commas
        given[name] = {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
    return given


def command_words(settings: Settings, without: tuple[str, ...] = ()) -> str:
    """Return the options that were said, as words for another command with the same settings."""
    words = []
    for origin in settings.origins:
        if origin.source != "default" and origin.option not in without:
            words.append(origin.option if origin.value == "on" else f"{origin.option}={shlex.quote(origin.value)}")
    return " ".join(words)
