"""Adds the options to parsers, and combines their sources (command line, environment, files, hooks) into Settings."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_ckpt.analysis.acceptance import trials_for
from pytest_ckpt.config import parsers
from pytest_ckpt.config.engines import Engines, check_codec, known_engines
from pytest_ckpt.config.models import Models
from pytest_ckpt.config.parsers import read_actions
from pytest_ckpt.config.pattern_files import with_pattern
from pytest_ckpt.facts.engines import BUILT_IN
from pytest_ckpt.facts.options import (
    GROUPS,
    LISTS,
    OPTIONS,
    Option,
    declarations,
    parameter_hint,
    parameters_of,
    written,
)
from pytest_ckpt.facts.settings import PROFILES, SUITES, Assurance, Origin, Profile, Settings
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
OFTEN_USED = ("target", "endpoint", "hosts", "ranks", "cluster", "model", "engine", "strategy", "profile", "suite",
              "gate_table", "config")  # fmt: skip
"""The options that the help of commands lists; ``pytest-ckpt options`` lists the others too."""
# Options that change the storage while it is measured.
_CHANGES = ("fault_command", "upgrade_command", "snapshot")


class _SourcedText(NamedTuple):
    """The text of an option from one source, with the option's name in that source."""

    text: str
    source: str
    flag: str


def add_options(
    parser: argparse.ArgumentParser, options: Iterable[Option] = OPTIONS, listed: Container[str] | None = None
) -> None:
    """Add options to a command's parser, in their groups.

    If ``listed`` is given, --help shows only the options with these keys.
    """
    options = list(options)
    for title in GROUPS:
        if of_group := [option for option in options if option.group == title]:
            group = parser.add_argument_group(title)
            for option in of_group:
                for flag, words in declarations(option, is_listed=listed is None or option.key in listed):
                    group.add_argument(flag, **words)


def options_of_command_line(args: argparse.Namespace, options: Iterable[Option] = OPTIONS) -> dict[str, str | None]:
    """Return {ini name: text} of the options on a command line; the text is None for options that are not given."""
    return {option.ini_name: written(getattr(args, option.ini_name)) for option in options if option.is_option}


def resolve(
    command_line: Mapping[str, str | None],
    ini: Mapping[str, str | None],
    *,
    ini_source: str = "pytest configuration",
    hooked: Mapping[str, tuple[str, str]] | None = None,
    engines: Engines | None = None,
    kept: Mapping[str, Model] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings of a run, combined from all sources.

    Precedence, highest first: command line, TOML file, ini file, file of actions, hooks, environment variables,
    defaults.

    ``command_line`` and ``ini`` map ini names, such as "ckpt_target", to texts; a text is None if the option is not
    given. ``ini_source`` is the name of the source ``ini`` in messages. ``hooked`` is {ini name: (source, text)} from
    the hooks of plugins. ``engines`` are the available engines (default: the built-in engines). ``kept`` is {name:
    model} for users' models that a run recorded; the files of these models are not read. ``environment`` contains the
    environment variables.

    Raises UsageError with the option, its value, the valid values and the most similar valid value.
    """
    layers = [_layer(command_line, "command line")]
    config = command_line.get("ckpt_config") or ini.get("ckpt_config")
    engines = engines or known_engines()
    if config:
        _parse(_BY_NAME["ckpt_config"], _SourcedText(config, "command line", "--ckpt-config"), engines)
        layers.append(_layer(_read_toml(user_path(config, "--ckpt-config")), config))
    layers.append(_layer(ini, ini_source))
    if actions := next((layer["ckpt_actions"] for layer in layers if "ckpt_actions" in layer), None):
        _parse(_BY_NAME["ckpt_actions"], actions, engines)
        layers.append(_layer(read_actions(actions.text), actions.text))
    layers.append(
        {name: _SourcedText(text, source, _BY_NAME[name].flag) for name, (source, text) in (hooked or {}).items()}
    )
    values: dict[str, Any] = {}
    origins = []
    for option in OPTIONS:
        given = next((layer[option.ini_name] for layer in layers if option.ini_name in layer), None)
        given = given or _of_environment(option, environment or {}, values.get("target"), values.get("endpoint", ()))
        given = given or _SourcedText(option.default, "default", option.flag)
        if option.is_flag:
            given = given._replace(text={"true": "on", "false": "off"}.get(given.text.lower(), given.text))
        if not given.text and given.source != "default":
            raise UsageError(f"{given.flag} has no value{_source_suffix(given.source)}.", _remedy(option))
        values[option.key] = _parse(option, given, engines) if given.text else option.unset
        origins.append(Origin(option=option.flag, value=given.text, default=option.default, source=given.source))
    profile = PROFILES[values["profile"]]
    operations = _planned_operations(values["operations"], values["confidence"], profile)
    if values["keep_last"] and values["keep_last"] > operations:
        raise UsageError(
            f"--ckpt-keep-last {values['keep_last']}: the run has {operations} saves, and no more can be kept.",
            f"Use a smaller number, or leave the option out: then all {operations} stay until they have been loaded.",
        )
    models = Models(parallelism=values["parallel"], optimizer=values["optimizer"], kept=kept or {})
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
    # Values that depend on more than one option.
    fields |= {
        "ranks": values["ranks"] or sum(host.slots for host in values["hosts"]) or DEFAULT_PROCESSES,
        "scale": values["scale"] or profile.scale,
        "operations": operations,
        "suites": _without_omitted(values["suite"], profile),
        "effort": profile.effort,
    }
    return Settings(**fields, origins=tuple(origins))


def _without_omitted(suites: tuple[str, ...], profile: Profile) -> tuple[str, ...]:
    """Return the chosen suites. If all suites are chosen, leave out the suites that the profile omits."""
    return tuple(suite for suite in suites if suites != SUITES or suite not in profile.left_out)


def _planned_operations(stated: int | None, wanted: Assurance | None, profile: Profile) -> int:
    """Return the number of saves of a run, which is also the number of loads.

    ``stated`` is the number that the user gave. Raises UsageError if ``stated`` is too small for the confidence that
    the user demands (``wanted``).
    """
    if wanted is None:
        return stated or profile.operations
    needed = trials_for(wanted.share, wanted.confidence, wanted.misses)
    if stated and stated < needed:
        raise UsageError(
            f"--ckpt-operations {stated} with --ckpt-confidence: that confidence needs {needed} saves and loads.",
            "Leave one of them out: --ckpt-confidence sets the number of operations itself.",
        )
    return stated or max(needed, profile.operations)


def _layer(given: Mapping[str, str | None], source: str) -> dict[str, _SourcedText]:
    """Return {ini name: value} of one source of options.

    If the value of an option contains parameters, such as ``incremental:changed=10%``, each parameter becomes a
    separate entry.
    """
    found: dict[str, _SourcedText] = {}
    for name, text in given.items():
        if text is not None and name in _BY_NAME:
            option = _BY_NAME[name]
            found |= (
                _split(option, text, source) if option.key in LISTS else {name: _SourcedText(text, source, option.flag)}
            )
    return found


def _split(option: Option, text: str, source: str) -> dict[str, _SourcedText]:
    """Split the text of a list option into names and parameters; return {ini name: value}.

    Each line of the text is one occurrence of the option. Its items are ``name``, ``name:parameter=value`` (this also
    adds the name) or ``parameter=value``. The last form belongs to the preceding name of the line. Without a preceding
    name, the parameter is set, and no name is added.

    In the result, one entry contains the names of the last line that has names. Each parameter of any line has its own
    entry.
    """
    found: dict[str, _SourcedText] = {}
    names: list[str] = []
    for line in text.split("\n"):
        owner, here, seen = "", [], dict[str, str]()
        for item in line.split(","):
            head, equals, value = item.partition("=")
            name, colon, key = head.strip().rpartition(":")
            if not equals or colon:
                owner = name if equals else item.strip()
                here.append(owner)
            if equals:
                row = _parameter(option, owner, key, source)
                if seen.setdefault(row.ini_name, value) != value:
                    raise UsageError(
                        f"{option.flag} {line}{_source_suffix(source)}: {key} is given twice.",
                        "Give it one value for all.",
                    )
                found[row.ini_name] = _SourcedText(value.strip(), source, row.flag_of(owner) if owner else row.flag)
        names = here or names
    return found | ({option.ini_name: _SourcedText(",".join(names), source, option.flag)} if names else {})


def _parameter(option: Option, owner: str, key: str, source: str) -> Option:
    """Return the declaration of a parameter. Raises UsageError for an unknown parameter.

    ``option`` is a list option, ``owner`` a value of the list, and ``key`` the name of the parameter.
    """
    rows = parameters_of(option.key, owner)
    if row := next((row for row in rows if row.name == key), None):
        return row
    if elsewhere := next((row for row in parameters_of(option.key) if row.name == key), None):
        remedy = f"{key} is a parameter of {', '.join(elsewhere.owners)}{nearest(owner, elsewhere.owners)}."
    else:
        remedy = f"Parameters of {owner or option.key}: {', '.join(row.name for row in rows) or 'none'}."
    what = f"'{owner}' has no parameter '{key}'" if owner else f"unknown parameter '{key}'"
    raise UsageError(f"{option.flag}{_source_suffix(source)}: {what}{nearest(key, [r.name for r in rows])}.", remedy)


def _of_environment(
    option: Option, environment: Mapping[str, str], target: str | None, endpoints: tuple[str, ...]
) -> _SourcedText | None:
    """Return the value of an option from its environment variables.

    Returns None if no such variable is set. Also returns None if the target is not an object store, or if all its
    endpoints are without TLS.
    """
    name = next((name for name in option.variables if environment.get(name)), "")
    if not name or "://" not in (target or ""):
        return None
    uses_tls = not endpoints or any(url.startswith("https:") for url in endpoints)
    return _SourcedText(environment[name], f"environment variable {name}", name) if uses_tls else None


def _parse(option: Option, given: _SourcedText, engines: Engines) -> Any:
    try:
        value = getattr(parsers, option.parse)(given.text)
        return tuple(map(engines.choose, value)) if option.key == "engine" else value
    except ValueError as error:
        raise UsageError(
            f"{given.flag} {given.text}{_source_suffix(given.source)}: {error}.", _remedy(option)
        ) from None


def _remedy(option: Option) -> str:
    """Return the description of an option with an example, for error messages."""
    return f"{option.flag}: {option.help}. Example: {option.example}."


def _check_staging(engines: Iterable[EngineSpec], strategies: Iterable[StrategySpec]) -> None:
    """Raise UsageError if an engine does not support the kind of save that a strategy needs."""
    for strategy in strategies:
        for engine in engines:
            if strategy.stages and not engine.stages:
                raise UsageError(
                    f"--ckpt-strategy {strategy.name} with --ckpt-engine {engine.name}: this engine cannot save "
                    "a copy of the state while training continues.",
                    f"Take {' or '.join(e.name for e in BUILT_IN if e.stages)}, or --ckpt-strategy="
                    f"{STRATEGIES[0].name}.",
                )
            if strategy.own_process and not engine.has_process:
                raise UsageError(
                    f"--ckpt-strategy {strategy.name} with --ckpt-engine {engine.name}: the library of this engine has "
                    "no process that saves.",
                    f"Take --ckpt-engine={' or '.join(e.name for e in BUILT_IN if e.has_process)}, or "
                    "--ckpt-strategy=async.",
                )


def _check_commits(engines: Iterable[EngineSpec], strategies: Iterable[StrategySpec]) -> None:
    """Raise UsageError if a strategy cannot be used because an engine's library commits checkpoints itself."""
    for strategy in strategies:
        for engine in engines:
            if engine.files.commit and (strategy.saves_deltas or strategy.tiers):
                reason = "saves some checkpoints as pages" if strategy.saves_deltas else "saves to a directory first"
                ways = " or ".join(s.name for s in STRATEGIES if not (s.saves_deltas or s.tiers or s.compresses))
                raise UsageError(
                    f"--ckpt-strategy {strategy.name} with --ckpt-engine {engine.name}: this strategy {reason}. The "
                    "library of this engine saves whole checkpoints to a bucket and commits them itself.",
                    f"Take --ckpt-strategy={ways}, or --ckpt-engine=stream.",
                )


def _check_certificates(engines: Iterable[EngineSpec], ca_bundle: str | None) -> None:
    """Raise UsageError if an engine's library cannot use the certificates that the environment names."""
    for engine in engines:
        if ca_bundle and engine.system_certificates:
            variables = " and ".join(_BY_NAME["ckpt_ca_bundle"].variables)
            raise UsageError(
                f"{variables} {ca_bundle} with --ckpt-engine {engine.name}: its library verifies TLS only by the "
                "certificates of the system.",
                f"Add yours to the system certificates of every host (update-ca-certificates) and unset {variables}, "
                "or use "
                f"{' or '.join(e.name for e in BUILT_IN if 'paths' not in e.needs and not e.system_certificates)}.",
            )


def _check_together(values: Mapping[str, Any]) -> None:
    """Raise UsageError if a command changes the storage during the run, and an engine saves and loads collectively.

    During such a change, single ranks must be able to fail and continue. The ranks of a collective engine cannot do
    this.
    """
    for key in _CHANGES:
        for engine in values["engine"]:
            if values[key] and engine.is_collective:
                flag = _BY_NAME[f"ckpt_{key}"].flag
                raise UsageError(
                    f"{flag} with --ckpt-engine {engine.name}: while the storage changes, single ranks get errors and "
                    "try again. The ranks of this engine save and load only together.",
                    f"Take {' or '.join(e.name for e in BUILT_IN if not e.is_collective)}.",
                )


def _check_deltas(values: Mapping[str, Any]) -> None:
    """Raise UsageError if a prerequisite of delta saves is missing, or if another option conflicts with delta saves."""
    named = [strategy.name for strategy in values["strategy"] if strategy.saves_deltas]
    if not named:
        return
    if not values["changed_pages"]:
        raise UsageError(
            f"--ckpt-strategy {named[0]} needs the share of the pages that change between two checkpoints.",
            "Use --ckpt-strategy=incremental:changed=10% for sparse experts, adapters or frozen layers. Dense "
            "training changes all pages: deltas have no benefit there.",
        )
    if values["keep_last"]:
        raise UsageError(
            f"--ckpt-keep-last with --ckpt-strategy {named[0]}: it deletes one checkpoint at a time, and a delta is of "
            "no use without those before it.",
            "Leave --ckpt-keep-last out: RETAIN-CHAIN deletes a whole chain and loads another.",
        )


def _check_tiers(values: Mapping[str, Any]) -> None:
    """Raise UsageError if a prerequisite of tiered saves is missing, or if another option conflicts with them."""
    named = [strategy.name for strategy in values["strategy"] if strategy.tiers]
    if not named:
        return
    if not values["local_tier"]:
        raise UsageError(
            f"--ckpt-strategy {named[0]} needs a local tier.",
            "Say --ckpt-strategy=tiered:local-tier=/mnt/nvme/ckpt: a directory on a disk or in memory of the "
            "host itself.",
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
                f"{flag} with --ckpt-strategy {named[0]}: the run could not show whether the change affected the "
                "target or the local tier.",
                f"Leave {flag} out, or take --ckpt-strategy={STRATEGIES[0].name}.",
            )


def _source_suffix(source: str) -> str:
    return "" if source == "command line" else f" (in {source})"


def _read_toml(path: Path) -> dict[str, str | None]:
    try:
        table = parse_toml(read_user_text(path))
    except OSError as error:
        raise UsageError(f"--ckpt-config {path}: it cannot be read: {error.strerror}.", "Name a TOML file.") from None
    except ValueError as error:
        raise UsageError(f"--ckpt-config {path}: it is not TOML: {error}.", "Each line is ckpt_name = value.") from None
    known = [option.ini_name for option in OPTIONS if option.is_option and option.key != "config"]
    given: dict[str, str | None] = {}
    for name, value in table.items():
        if name in LISTS and isinstance(value, dict):
            given |= _read_parameters(_BY_NAME[f"ckpt_{name}"], value, str(path))
        elif name in known:
            given[name] = _text(value)
        else:
            raise UsageError(
                f"--ckpt-config {path}: '{name}' is not an option{parameter_hint(name) or nearest(name, known)}.",
                f"Valid names: {', '.join(known)}.",
            )
    return given


def _read_parameters(option: Option, tables: Mapping[str, object], source: str) -> dict[str, str | None]:
    """Return {ini name: text} of the parameters in TOML tables such as ``[suite.endurance]``."""
    given: dict[str, str | None] = {}
    for owner, table in tables.items():
        if not isinstance(table, dict):
            raise UsageError(
                f"--ckpt-config {source}: [{option.key}] contains '{owner}', which is not a table.",
                f"Write [{option.key}.{parameters_of(option.key)[0].owners[0]}].",
            )
        for key, value in table.items():
            given[_parameter(option, owner, key, source).ini_name] = _text(value)
    return given


def _text(value: Any) -> str:
    if isinstance(value, list):
        value = ",".join(map(str, value))  # also accepted: a list instead of commas
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def command_line_of(settings: Settings, without: tuple[str, ...] = ()) -> str:
    """Return the given options as one text of command-line arguments. ``without`` lists options to leave out."""
    texts = {o.option: o for o in settings.origins if o.source != "default" and o.option not in without}
    words = []
    for option in OPTIONS:
        if not option.is_option:
            continue
        text = texts[option.flag].value if option.flag in texts else ""
        if option.key in LISTS:
            text = _joined(option, text, {row: texts[row.flag].value for row in OPTIONS if row.flag in texts})
        if text:
            words.append(option.flag if option.is_flag and text == "on" else f"{option.flag}={shlex.quote(text)}")
    return " ".join(words)


def _joined(option: Option, names: str, given: Mapping[Option, str]) -> str:
    """Return the value of a list option as command-line text: its names, each with its parameters.

    ``given`` contains the values of all given options, including parameters. A parameter that belongs to none of the
    ``names`` is written before the first name.
    """
    chosen = [name for name in names.split(",") if name]
    items: dict[str, list[str]] = {name: [] for name in ["", *chosen]}
    for row, value in given.items():
        if row.parent == option.key:
            owner = next((name for name in chosen if name in row.owners), "")
            items[owner].append(f"{row.name}={value}")
    return ",".join([*items.pop(""), *(":".join(filter(None, [n, ",".join(found)])) for n, found in items.items())])
