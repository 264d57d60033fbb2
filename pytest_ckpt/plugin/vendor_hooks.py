"""Calls the hooks of vendors' plugins, one plugin at a time, so that the plugin of each result and error is known.

The effect of an error depends on the time of the call. Before the first write, the error is a UsageError. Immediately
before or after a launch, the error fails the measurement. At the end of the run, the error replaces that plugin's
sections of the report.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.config.engines import read_spec
from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.engines import EngineSpec
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.options import OPTIONS
from pytest_ckpt.facts.settings import Settings
from pytest_ckpt.facts.targets import TargetSpec
from pytest_ckpt.grading.catalogue import REQUIREMENTS, CatalogueRow, row
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.launching.recorder import HookFailed, LaunchHooks
from pytest_ckpt.plugin import hookspecs
from pytest_ckpt.support.errors import UsageError, nearest
from pytest_ckpt.support.redaction import HIDDEN, may_be_secret
from pytest_ckpt.targets.schemes import add_target
from pytest_ckpt.vendors import PluginFacts, error_text, read_facts, read_requirement, read_section

PREFIX = "pytest_ckpt_"
HOOKS = tuple(name for name in vars(hookspecs) if name.startswith(PREFIX))
TWINS = {
    "pytest_ckpt_drop_caches": "ckpt_drop_caches",
    "pytest_ckpt_power_cut": "ckpt_power_cut",
    "pytest_ckpt_fault_command": "ckpt_fault_command",
    "pytest_ckpt_repair_command": "ckpt_repair_command",
    "pytest_ckpt_launch_command": "ckpt_launcher",
}
"""Hooks that are equivalent to an option, with the option's name in ini files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VendorPlugin:
    """A plugin that implements hooks. ``implements`` is {hook name: pluggy's record of the implementation}."""

    name: str
    version: str
    implements: dict[str, Any]

    @property
    def label(self) -> str:
        """The plugin's name and version, for error messages."""
        return f"{self.name} {self.version}".rstrip()


def hooks_of(manager: pytest.PytestPluginManager, plugin: object) -> list[Any]:
    """Return all hooks of a plugin whose names have the prefix of pytest-ckpt, including unknown hooks."""
    return [h for h in manager.get_hookcallers(plugin) or () if h.name.startswith(PREFIX)]


def plugin_name(config: pytest.Config, plugin: object, registered: str) -> str:
    """Return the name of a plugin for reports and errors. ``registered`` is the plugin's name in pytest."""
    if registered.isdigit():
        return type(plugin).__qualname__
    place = Path(registered)
    return str(place.relative_to(config.rootpath)) if place.is_relative_to(config.rootpath) else registered


def identify(config: pytest.Config, plugin: object, registered: str) -> VendorPlugin:
    """Return a record with the plugin's name and version. `Plugins.of` adds the hooks later."""
    distributions = config.pluginmanager.list_plugin_distinfo()
    versions = [str(d.version) for known, d in distributions if known is plugin]
    version = versions[0] if versions else str(getattr(plugin, "__version__", ""))
    return VendorPlugin(name=plugin_name(config, plugin, registered), version=version, implements={})


def with_unique_names(plugins: Iterable[VendorPlugin]) -> tuple[VendorPlugin, ...]:
    """Return the plugins with unique names. If a name is repeated, a number is added to it."""
    named: dict[str, VendorPlugin] = {}
    for plugin in plugins:
        name, number = plugin.name, 1
        while name in named:
            number += 1
            name = f"{plugin.name} ({number})"
        named[name] = dataclasses.replace(plugin, name=name)
    return tuple(named.values())


_BEFORE, _AFTER, _SECTIONS = "pytest_ckpt_before_measure", "pytest_ckpt_after_measure", "pytest_ckpt_report_sections"
# These hooks are also called in workers of xdist. The other hooks may exist only in the controller.
_EVERYWHERE = (_BEFORE, _AFTER, "pytest_ckpt_requirements", "pytest_ckpt_suites")
_NO_COMMANDS = ("auto", "never")
_FLAGS = {option.ini_name: option.flag for option in OPTIONS}
_MEND = "Fix the plugin, or run without it."


class Plugins(LaunchHooks):
    """The loaded plugins that implement hooks of pytest-ckpt, in pytest's order of calls."""

    def __init__(self, config: pytest.Config, found: Sequence[VendorPlugin]) -> None:
        self._config = config
        self._found = tuple(found)

    @classmethod
    def of(cls, config: pytest.Config) -> Plugins:
        """Return the loaded plugins. Raises UsageError if a plugin implements an unknown hook or wraps a hook."""
        manager = config.pluginmanager
        plugins: dict[int, VendorPlugin] = {}
        for name in HOOKS:
            for implementation in reversed(getattr(manager.hook, name).get_hookimpls()):
                plugin = implementation.plugin
                mine = plugins.setdefault(id(plugin), identify(config, plugin, implementation.plugin_name))
                if implementation.wrapper or implementation.hookwrapper:
                    raise UsageError(
                        f"Plugin {mine.label} wraps {name}, but each plugin is called separately.",
                        "Implement the hook without wrapper=True.",
                    )
                mine.implements[name] = implementation
        for plugin in manager.get_plugins():
            for hook in hooks_of(manager, plugin):
                if hook.name not in HOOKS and not all(i.optionalhook for i in hook.get_hookimpls()):
                    name = identify(config, plugin, manager.get_name(plugin) or "").name
                    raise UsageError(
                        f"Plugin {name} implements {hook.name}, which is not a hook{nearest(hook.name, HOOKS)}.",
                        f"Valid hooks: {', '.join(HOOKS)}.",
                    )
        return cls(config, with_unique_names(plugins.values()))

    def records(self) -> list[PluginFacts]:
        """Return the name, version and hooks of every plugin."""
        return [
            PluginFacts(name=p.name, version=p.version, hooks=tuple(h for h in HOOKS if h in p.implements))
            for p in self._found
        ]

    def facts(self, settings: Settings) -> list[PluginFacts]:
        """Return the record of every plugin, including the plugin's facts about the environment.

        Raises UsageError if a hook fails.
        """
        records = {record.name: record for record in self.records()}
        for plugin, answer in self._call_hook("pytest_ckpt_environment_facts", settings=settings):
            with _checks(plugin, "pytest_ckpt_environment_facts"):
                facts = read_facts(answer)
            hidden = {n: HIDDEN if may_be_secret(n) else value for n, value in facts.items()}
            records[plugin.name] = dataclasses.replace(records[plugin.name], facts=hidden)
        return list(records.values())

    def settings(self, settings: Settings) -> dict[str, tuple[str, str]]:
        """Return the settings that plugins choose: {name of the option in ini files: (source, text)}.

        Plugins are asked only for options that still have the default in ``settings``. Raises UsageError if an answer
        is invalid, or if two plugins answer for one option.
        """
        decided = {}
        for hook, ini_name in TWINS.items():
            option = _FLAGS[ini_name]
            if any(o.option == option and o.source != "default" for o in settings.origins):
                continue
            answers = [(p, answer) for p, answer in self._call_hook(hook, settings=settings) if answer is not None]
            for plugin, answer in answers:
                with _checks(plugin, hook):
                    if not isinstance(answer, str) or not answer.strip():
                        raise ValueError(f"{answer!r} is not a command; expected a text, or None")
                    if answer.strip() in _NO_COMMANDS:
                        raise ValueError(
                            f"'{answer}' is not a command: only the operator can state that, with {option}"
                        )
            if len(answers) > 1:
                names = " and ".join(plugin.label for plugin, _ in answers)
                raise UsageError(
                    f"Plugins {names} both answer {hook}, and one command is needed.",
                    f"Choose one: {option} wins over plugins.",
                )
            for plugin, answer in answers:
                decided[ini_name] = (f"hook of {plugin.name}", answer)
        return decided

    def requirements(self, settings: Settings) -> tuple[Requirement, ...]:
        """Return the requirements of all plugins. Raises UsageError if an answer is invalid or an id is used twice."""
        hook = "pytest_ckpt_requirements"
        rows: dict[str, Requirement] = {}
        for plugin, answer in self._call_hook(hook, settings=settings):
            with _checks(plugin, hook):
                for one in _listed(answer, "requirements"):
                    requirement = read_requirement(one, plugin.name)
                    other = "pytest-ckpt" if requirement.id in REQUIREMENTS else None
                    if requirement.id in rows:
                        other = f"plugin {rows[requirement.id].plugin}"
                    if other:
                        raise ValueError(
                            f"the id {requirement.id} belongs to a requirement of {other}; choose another id"
                        )
                    rows[requirement.id] = requirement
        return tuple(rows.values())

    def engines(self) -> list[EngineSpec]:
        """Return the engines of all plugins, each with its owner. Raises UsageError if an answer is invalid."""
        hook = "pytest_ckpt_engines"
        specs = []
        for plugin, answer in self._call_hook(hook):
            with _checks(plugin, hook):
                if isinstance(answer, EngineSpec):
                    raise ValueError(f"engine {answer.name} was returned; expected a list of engines")
                specs += [read_spec(one, f"plugin {plugin.label}") for one in _listed(answer, "engines")]
        return specs

    def targets(self) -> dict[str, TargetSpec]:
        """Return the kinds of targets of all plugins: {scheme: kind}. Raises UsageError if an answer is invalid."""
        hook = "pytest_ckpt_targets"
        known: dict[str, TargetSpec] = {}
        for plugin, answer in self._call_hook(hook):
            with _checks(plugin, hook):
                rows = _listed(answer, "targets")
            for one in rows:
                add_target(known, one, f"plugin {plugin.label}")
        return known

    def suites(self, settings: Settings) -> list[str]:
        """Return the test directories and files of all plugins.

        Raises UsageError if a directory or file does not exist.
        """
        hook = "pytest_ckpt_suites"
        places = []
        for plugin, answer in self._call_hook(hook, settings=settings):
            with _checks(plugin, hook):
                for place in _listed(answer, "directories or files"):
                    if not isinstance(place, str | Path) or not Path(place).exists():
                        raise ValueError(f"{place!r} is not a directory or file")
                    places.append(str(Path(place).absolute()))
        return list(dict.fromkeys(places))

    @property
    def is_active(self) -> bool:
        """Whether a plugin implements `pytest_ckpt_before_measure` or `pytest_ckpt_after_measure`."""
        return any(_BEFORE in p.implements or _AFTER in p.implements for p in self._found)

    def before(self, subjects: tuple[str, ...]) -> None:
        """Call `pytest_ckpt_before_measure` of every plugin. Raises HookFailed at the first failure."""
        for _ in self._call(_BEFORE, subjects=subjects):
            pass

    def after(self, measurement: Measurement) -> None:
        """Call `pytest_ckpt_after_measure` of every plugin with a copy of the measurement, even if a plugin fails.

        After the last plugin, the first failure is raised as HookFailed.
        """
        broke: list[HookFailed] = []
        for plugin in self._found:
            copied = json.loads(json.dumps(to_plain(measurement)))
            try:
                for _ in self._call(_AFTER, only=plugin, measurement=from_plain(Measurement, copied)):
                    pass
            except HookFailed as error:
                broke.append(error)
        if broke:
            raise HookFailed(str(broke[0]), "\n".join(error.trace for error in broke))

    def sections(self, document: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the plugins' sections of the report. Each plugin receives a copy of ``document``.

        If a plugin fails, the result contains one section with the error instead of the plugin's sections.
        """
        sections = []
        for plugin in self._found:
            try:
                for _, answer in self._call(_SECTIONS, only=plugin, document=json.loads(json.dumps(document))):
                    with _checks(plugin, _SECTIONS):
                        sections += [{"plugin": plugin.name} | read_section(one) for one in _listed(answer, "sections")]
            except (HookFailed, UsageError, KeyboardInterrupt) as error:
                # The results must not be lost because of one section, and a missing section must be reported.
                text = error.what if isinstance(error, UsageError) else str(error) or error_text(error)
                failed = {"title": "This plugin's sections could not be written", "paragraphs": [text]}
                sections.append({"plugin": plugin.name, **failed, "head": [], "rows": []})
        return sections

    def differs(
        self, recorded: Sequence[PluginFacts], rows: Sequence[CatalogueRow], extras: Sequence[Requirement]
    ) -> str:
        """Return a sentence if this worker and the controller have different plugins or requirements; otherwise empty.

        ``recorded`` and ``rows`` are the controller's plugins and requirements. ``extras`` are this worker's
        requirements.
        """
        if odd := sorted(_everywhere(recorded) ^ _everywhere(self.records())):
            names = ", ".join(f"{f'{name} {version}'.rstrip()} ({', '.join(hooks)})" for name, version, hooks in odd)
            return (
                f"A worker of pytest-xdist has not the plugins of the run: {names} is not on both sides. Load plugins "
                "so that workers have them too: with -p, an entry point, or a conftest.py."
            )
        if [row(r) for r in extras] != list(rows):
            return "A worker of pytest-xdist has other requirements of plugins than the run."
        return ""

    def _call_hook(self, hook: str, **given: Any) -> Iterator[tuple[VendorPlugin, Any]]:
        """Yield (plugin, answer) for each plugin that implements a hook. Raises UsageError if a plugin fails."""
        try:
            yield from self._call(hook, **given)
        except HookFailed as error:
            raise UsageError(str(error), _MEND) from None

    def _call(self, hook: str, *, only: VendorPlugin | None = None, **given: Any) -> Iterator[tuple[VendorPlugin, Any]]:
        """Yield (plugin, answer) for each plugin that implements a hook. Raises HookFailed if a plugin fails.

        If ``only`` is given, call only this plugin.
        """
        for plugin in self._found if only is None else (only,):
            implementation = plugin.implements.get(hook)
            if implementation is None:
                continue
            arguments = given | {"config": self._config}
            try:
                answer = implementation.function(**{name: arguments[name] for name in implementation.argnames})
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # also what pytest's own skip and fail raise
                raise _broken(plugin, hook, implementation.function, error) from None
            yield plugin, answer


def _everywhere(records: Iterable[PluginFacts]) -> set[tuple[str, str, tuple[str, ...]]]:
    """Return {(name, version, hooks)} of the plugins with at least one hook that workers call.

    Here, ``hooks`` are only the hooks that workers call.
    """
    plugins = ((p.name, p.version, tuple(h for h in p.hooks if h in _EVERYWHERE)) for p in records)
    return {plugin for plugin in plugins if plugin[2]}


@contextlib.contextmanager
def _checks(plugin: VendorPlugin, hook: str) -> Iterator[None]:
    """In the ``with`` block, convert a ValueError into a UsageError that names the plugin and the hook."""
    try:
        yield
    except ValueError as error:
        raise UsageError(f"{hook} of plugin {plugin.label}: {error}.", _MEND) from None


def _listed(answer: object, what: str) -> Iterable[Any]:
    if not isinstance(answer, list | tuple):
        raise ValueError(f"{answer!r} was returned, and a list of {what} is expected")
    return answer


def _broken(plugin: VendorPlugin, hook: str, function: Any, error: BaseException) -> HookFailed:
    file = function.__code__.co_filename
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    where = f" ({Path(file).name}, line {lines[-1]})" if lines else ""
    answer = str(error) if isinstance(error, UsageError | pytest.UsageError) else error_text(error)
    trace = "".join(traceback.format_exception(error))
    return HookFailed(f"Plugin {plugin.label} failed in {hook}: {answer}{where}", trace)
