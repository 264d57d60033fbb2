"""One table of options: it feeds the plugin, the command and the documentation, and makes the Settings of a run."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_ckpt.config.engines import Engines, known_engines
from pytest_ckpt.config.parsers import (
    count_to,
    one_of,
    read_command,
    read_engines,
    read_failures,
    read_hosts,
    read_models,
    read_request,
    read_scale,
    read_seconds,
    read_seed,
    read_share,
    read_suites,
    read_text,
)
from pytest_ckpt.facts.engines import BUILT_IN, DEFAULT
from pytest_ckpt.facts.settings import PROFILES, Origin, Settings
from pytest_ckpt.support.errors import UsageError, nearest

MODES = ("auto", "full", "subset", "open")
DEFAULT_PROCESSES = 8
_MOST_DEPTH = 16

# What the content of a checkpoint can tell apart (ranks.content), and beyond any cluster.
_MOST_PROCESSES, _MOST_OPERATIONS, _MOST = 16_384, 4_093, 1_000_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One option: its name is ``ckpt_<key>`` in ini files, ``--ckpt-<key>`` on a command line."""

    key: str
    metavar: str
    default: str
    help: str
    parse: Callable[[str], Any]
    aliases: tuple[str, ...] = ()
    is_flag: bool = False

    @property
    def ini_name(self) -> str:
        """The name in pytest's ini files and in the TOML file."""
        return f"ckpt_{self.key}"

    @property
    def flag(self) -> str:
        """The name on a command line."""
        return "--" + self.ini_name.replace("_", "-")

    @property
    def flags(self) -> tuple[str, ...]:
        """All names on a command line."""
        return (*self.aliases, self.flag)


OPTIONS = (
    Option(key="target", metavar="PATH", default="", parse=read_text,
           help="the folder on the storage under test where checkpoints go; it must exist"),
    Option(key="cluster", metavar="N", default="", parse=count_to(_MOST), aliases=("--cluster",),
           help="accelerators in the cluster that the storage is meant for"),
    Option(key="overhead", metavar="PERCENT", default="5%", parse=read_share,
           help="share of training time that saving may cost"),
    Option(key="restore_budget", metavar="PERCENT", default="1%", parse=read_share,
           help="share of the time between failures that loading may cost"),
    Option(key="checkpoints_per_failure", metavar="K", default="20", parse=count_to(_MOST),
           help="checkpoints that are saved for each failure of the cluster"),
    Option(key="failures", metavar="MODEL", default="llama3", parse=read_failures,
           help="how often accelerators fail: llama3, mttf:50000h, node-days:6.5 (failures in 1,000 node-days), "
           "observed:419/54d@16000"),
    Option(key="model", metavar="NAMES", default="all", parse=read_models,
           help="models whose checkpoints are run, separated by commas: llama3-8b, llama3-70b, llama3-405b, llama3-1t"),
    Option(key="mode", metavar="MODE", default="auto", parse=one_of(MODES),
           help="full: all ranks of the layout; subset: its ranks 0 to 7, one node; open: as many ranks as "
           "--ckpt-processes says; auto: full where the processes suffice, else subset on a local file system"),
    Option(key="processes", metavar="N", default="", parse=count_to(_MOST_PROCESSES),
           help="ranks to start; the slots of --ckpt-hosts, or 8"),
    Option(key="hosts", metavar="LIST", default="localhost", parse=read_hosts,
           help="host:slots,… or @hostfile"),
    Option(key="launcher", metavar="COMMAND", default="", parse=read_command,
           help="what starts the ranks, such as mpirun or 'srun --mpi=pmix'; {processes}, {hosts} (a:8,b:8) and "
           "{nodes} (a,b) are filled in; without it, the mpiexec that was installed"),
    Option(key="engine", metavar="NAME", default=DEFAULT.name, parse=read_engines,
           help="how bytes get to the storage: " + ", ".join(f"{spec.name} ({spec.help})" for spec in BUILT_IN)),
    Option(key="request", metavar="SIZE", default="4MiB", parse=read_request,
           help="size of a request of the engine stream"),
    Option(key="depth", metavar="N", default="2", parse=count_to(_MOST_DEPTH),
           help="requests in flight for each rank of the engine stream"),
    Option(key="profile", metavar="NAME", default="acceptance", parse=one_of(tuple(PROFILES)),
           help="acceptance: full size, 10 saves and 10 loads; nightly: 1/100 of the size, 10 and 10; "
           "smoke: 1/1000, 3 and 3"),
    Option(key="scale", metavar="FRACTION", default="", parse=read_scale,
           help="share of the full size, in place of the profile's; below 1 the run is a rehearsal"),
    Option(key="operations", metavar="N", default="", parse=count_to(_MOST_OPERATIONS),
           help="number of saves and of loads, in place of the profile's; below 10 the run is a rehearsal"),
    Option(key="drop_caches", metavar="HOW", default="auto", parse=read_command,
           help="auto, never, or a command that drops the page cache, run on every host without a shell"),
    Option(key="deadline", metavar="DURATION", default="300s", parse=read_seconds,
           help="how long a rank may be silent or make no progress before it counts as hung"),
    Option(key="retain", metavar="K", default="", parse=count_to(_MOST_OPERATIONS),
           help="keep only the newest K checkpoints; the loads cycle over them, with a drop before each"),
    Option(key="data_pairs", metavar="N", default="", parse=count_to(_MOST_OPERATIONS),
           help="compare N saves and loads of constant data with as many of unique data (requirement DATA)"),
    Option(key="compressible", metavar="FRACTION", default="", parse=read_share,
           help="share of zeros in every page, to see an array's data reduction; the run is then a rehearsal"),
    Option(key="duration", metavar="DURATION", default="", parse=read_seconds,
           help="how long the suite endurance saves in a cycle, such as 4h (requirement ENDURE)"),
    Option(key="near_full", metavar="", default="off", parse=one_of(("on", "off")), is_flag=True,
           help="let the suite endurance fill the volume of the target to 80 and 90 % with ballast, which is removed "
           "(requirement NEARFULL); refused where the volume holds other data"),
    Option(key="seed", metavar="N", default="", parse=read_seed,
           help="seed of the checkpoints' content; random without it, and always reported"),
    Option(key="keep", metavar="", default="off", parse=one_of(("on", "off")), is_flag=True,
           help="leave the checkpoints on the target"),
    Option(key="suite", metavar="NAMES", default="auto", parse=read_suites,
           help="what is run, separated by commas: performance, contention, conformance, endurance, all; auto: those "
           "in which the gates require something. What is required and not chosen counts as not run"),
    Option(key="gates", metavar="NAME", default="auto", parse=read_text,
           help="which requirements gate, with which limits: posix-shared, posix-local, gateway, speed-only, or a TOML "
           "file that extends one of them; auto: by the target's file system"),
    Option(key="waive", metavar="FILE", default="", parse=read_text,
           help="a TOML file of waivers, each with requirement, subject, reason and expiry date; what is required and "
           "waived is not certified"),
    Option(key="second_mount", metavar="PATH", default="", parse=read_text,
           help="how another mount of the same storage on this host calls the folder of the target: a second client"),
    Option(key="full_target", metavar="PATH", default="", parse=read_text,
           help="a folder on a volume or quota of its own on the same storage that may be filled for a moment"),
    Option(key="power_cut", metavar="COMMAND", default="", parse=read_command,
           help="cuts the power of the storage and returns when it is back; run on this host without a shell"),
    Option(key="power_cuts", metavar="N", default="3", parse=count_to(1000),
           help="how often the power is cut; the bound on losses that follows is 3/N"),
    Option(key="report", metavar="FOLDER", default="ckpt-report", parse=read_text,
           help="the folder for the certificate, the report and all evidence"),
    Option(key="system", metavar="FILE", default="", parse=read_text,
           help="a TOML file that describes the system under test (template: pytest-ckpt doctor --write-system FILE)"),
    Option(key="pdf", metavar="", default="off", parse=one_of(("on", "off")), is_flag=True,
           help="write the certificate as certificate.pdf too, which needs the extra: pip install 'pytest-ckpt[pdf]'"),
    Option(key="sign", metavar="KEY", default="", parse=read_text,
           help="a private key (Ed25519, PEM) that signs report and manifest at the end of the run"),
    Option(key="history", metavar="FOLDER", default="", parse=read_text,
           help="a folder that keeps this run among others, for pytest-ckpt trend"),
    Option(key="config", metavar="FILE", default="", parse=read_text,
           help="a TOML file with any of these options, such as ckpt_overhead = \"3%\""),
)  # fmt: skip
# The options that only decide: with them a run that is over can be judged again.
LIMITS = tuple(
    option
    for option in OPTIONS
    if option.key in ("cluster", "overhead", "restore_budget", "checkpoints_per_failure", "failures", "gates")
)
_BY_NAME = {option.ini_name: option for option in OPTIONS}


def add_options(add: Callable[..., Any], options: Iterable[Option] = OPTIONS) -> None:
    """Declare options with ``add``, which takes what argparse's ``add_argument`` takes."""
    for option in options:
        default = f" (default: {option.default})" if option.default else ""
        text = (option.help + default).replace("%", "%%")
        if option.is_flag:
            add(*option.flags, dest=option.ini_name, action="store_const", const="on", help=text)
        else:
            add(*option.flags, dest=option.ini_name, metavar=option.metavar, help=text)


def resolve(
    command_line: Mapping[str, str | None],
    ini: Mapping[str, str | None],
    *,
    ini_source: str = "pytest configuration",
    hooked: Mapping[str, tuple[str, str]] | None = None,
    engines: Engines | None = None,
) -> Settings:
    """Make the settings of a run. The command line wins over the TOML file, that over the ini file, that over defaults.

    Both mappings go from ini names (``ckpt_target``) to text, None where nothing was said; ``ini_source`` says what the
    second one is. ``hooked`` goes from ini names to (source, text) of what plugins said; it wins over defaults alone.
    ``engines`` are those that can be chosen, and which is the default; without it the built-in ones.
    Raises UsageError that names the option, the value, what is accepted and the nearest correct word.
    """
    layers: list[tuple[str, Mapping[str, str | None]]] = [("command line", command_line)]
    config = command_line.get("ckpt_config") or ini.get("ckpt_config")
    if config:
        layers.append((config, _read_toml(Path(config))))
    layers.append((ini_source, ini))
    engines = engines or known_engines()
    defaults = {"ckpt_engine": (engines.default_source, engines.default), **(hooked or {})}
    values: dict[str, Any] = {}
    origins = []
    for option in OPTIONS:
        source, text = defaults.get(option.ini_name, ("default", option.default))
        for name, layer in layers:
            if (said := layer.get(option.ini_name)) is not None:
                source, text = name, said
                break
        if option.is_flag:
            text = {"true": "on", "false": "off"}.get(text.lower(), text)
        if not text and source != "default":
            raise UsageError(f"{option.flag} has no value{_where(source)}.", f"{option.flag} is {option.help}.")
        values[option.key] = _parse(option, text, source, engines) if text else None
        origins.append(Origin(option=option.flag, value=text, default=option.default, source=source))
    profile = PROFILES[values["profile"]]
    operations = values["operations"] or profile.operations
    if values["retain"] and values["retain"] > operations:
        raise UsageError(
            f"--ckpt-retain {values['retain']}: the run has {operations} saves, and no more can be kept.",
            f"Keep fewer, or leave it out: without it all {operations} stay until they have been loaded.",
        )
    hosts = values["hosts"] or ()
    return Settings(
        target=values["target"],
        cluster=values["cluster"],
        overhead=values["overhead"],
        restore_budget=values["restore_budget"],
        checkpoints_per_failure=values["checkpoints_per_failure"],
        failures=values["failures"],
        models=values["model"],
        mode=values["mode"],
        processes=values["processes"] or sum(h.slots for h in hosts) or DEFAULT_PROCESSES,
        hosts=hosts,
        launcher=values["launcher"],
        engines=values["engine"],
        request_bytes=values["request"],
        depth=values["depth"],
        profile=values["profile"],
        scale=values["scale"] or profile.scale,
        operations=operations,
        drop_caches=values["drop_caches"],
        deadline_seconds=values["deadline"],
        seed=values["seed"],
        keep=values["keep"] == "on",
        retain=values["retain"] or 0,
        data_pairs=values["data_pairs"] or 0,
        compressible=values["compressible"] or 0.0,
        duration_seconds=values["duration"] or 0.0,
        near_full=values["near_full"] == "on",
        suites=values["suite"],
        gates=values["gates"],
        waive=values["waive"],
        second_mount=values["second_mount"],
        full_target=values["full_target"],
        power_cut=values["power_cut"],
        power_cuts=values["power_cuts"],
        effort=profile.effort,
        report=values["report"],
        system=values["system"],
        pdf=values["pdf"] == "on",
        sign=values["sign"],
        history=values["history"],
        origins=tuple(origins),
    )


def _parse(option: Option, text: str, source: str, engines: Engines) -> Any:
    try:
        value = option.parse(text)
        return tuple(engines.choose(name) for name in value) if option.key == "engine" else value
    except ValueError as error:
        where = _where(source)
        raise UsageError(f"{option.flag} {text}{where}: {error}.", f"{option.flag} is {option.help}.") from None


def _where(source: str) -> str:
    return "" if source == "command line" else f" (in {source})"


def _read_toml(path: Path) -> dict[str, str | None]:
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"--ckpt-config {path}: it cannot be read: {error.strerror}.", "Name a TOML file.") from None
    except ValueError as error:
        raise UsageError(f"--ckpt-config {path}: it is not TOML: {error}.", "Each line is ckpt_name = value.") from None
    said: dict[str, str | None] = {}
    for name, value in table.items():
        if name not in _BY_NAME or name == "ckpt_config":
            raise UsageError(
                f"--ckpt-config {path}: '{name}' is no option{nearest(name, _BY_NAME)}.",
                f"Known are {', '.join(n for n in _BY_NAME if n != 'ckpt_config')}.",
            )
        if isinstance(value, list):
            value = ",".join(map(str, value))  # noqa: PLW2901 - lists are another way to write commas
        said[name] = {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
    return said


def command_words(settings: Settings, without: tuple[str, ...] = ()) -> str:
    """Return the options that were said, as words for another command with the same settings."""
    words = []
    for origin in settings.origins:
        if origin.source != "default" and origin.option not in without:
            words.append(origin.option if origin.value == "on" else f"{origin.option}={shlex.quote(origin.value)}")
    return " ".join(words)
