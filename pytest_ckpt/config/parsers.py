"""Parsers of option values: text to value. A parser raises ValueError with the valid values.

The rows of `facts.options` name these functions.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import shlex
import urllib.parse
from collections.abc import Callable, Iterable
from pathlib import Path

from pytest_ckpt.analysis.acceptance import MLPERF_TRIALS, shows_ten_of_ten, trials_for
from pytest_ckpt.config.models import is_file, read_parallelism
from pytest_ckpt.config.optimizers import parse_optimizer
from pytest_ckpt.facts.compression import CODECS
from pytest_ckpt.facts.file_rules import PACES
from pytest_ckpt.facts.metrics import FILE_SUFFIX, OTLP
from pytest_ckpt.facts.options import ACTIONS, OPTIONS
from pytest_ckpt.facts.settings import EMBEDDED, PROFILES, SUITES, Assurance, HostSlots
from pytest_ckpt.facts.strategies import STRATEGY_OF, StrategySpec
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.pacing import LOADER_WORKLOADS
from pytest_ckpt.sizing.reliability import SECONDS_PER_DAY, parse_failure_model
from pytest_ckpt.support.errors import UsageError, nearest
from pytest_ckpt.support.units import format_count, format_percent, parse_duration, parse_fraction, parse_size
from pytest_ckpt.support.user_files import parse_toml, read_user_text, user_path

MAXIMUM_HOSTS = 16_384
"""The maximum number of hosts in a list or file of hosts."""

# A number of slots: at most five digits. Only ASCII digits match.
_SLOTS = re.compile(r"0*[1-9][0-9]{0,4}", re.ASCII)
_COMMA_OUTSIDE = re.compile(r",(?![^\[\]]*\])")
_BRACKETS_OF_HOSTS = re.compile(r"\[([^\[\]]*)\]")
_RANGE_OF_HOSTS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
_NO_NAME = re.compile(r"[\s,\[\]]")
_WORDS_OF_HOST_FILES = frozenset(("slots", "max_slots", "max-slots"))


def split_hosts(text: str) -> list[str]:
    """Split a list of hosts at its commas. A comma within brackets does not separate entries."""
    return [word for word in map(str.strip, _COMMA_OUTSIDE.split(text)) if word]


def line_of_file(line: str) -> str:
    """Return the host of a line in a host file, as ``host:slots`` or ``host``; empty for a line without a host.

    Raises ValueError for an unknown word, or if slots exceeds max_slots.
    """
    host, *words = re.sub(r"\s*=\s*", "=", line.split("#", maxsplit=1)[0]).split() or [""]
    given = {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in _WORDS_OF_HOST_FILES or not _SLOTS.fullmatch(value):
            raise ValueError(f"'{word}' in the line '{line.strip()}' is not a word such as slots=8 or max_slots=8")
        given[key.replace("-", "_")] = int(value)
    if "slots" in given:
        host = f"{host}:{given['slots']}"
    slots = host.rpartition(":")[2]
    # mpiexec would refuse to start more ranks on the host.
    if "max_slots" in given and (int(slots) if _SLOTS.fullmatch(slots) and ":" in host else 1) > given["max_slots"]:
        raise ValueError(f"the line '{line.strip()}' has more slots than max_slots")
    return host


def expand_hosts(words: list[str]) -> tuple[HostSlots, ...]:
    """Return all hosts with their slots, in order. A word, such as ``node[01-16]:8``, names one or several hosts.

    Raises ValueError for an invalid word, or for too many hosts.
    """
    hosts: list[HostSlots] = []
    for word in words:
        name, _, slots = word.partition(":")
        if not name or not _SLOTS.fullmatch(slots or "1") or _NO_NAME.search(_BRACKETS_OF_HOSTS.sub("", name)):
            raise ValueError(f"'{word}' is not host:slots, such as node1:8 or node[01-16]:8")
        hosts += [HostSlots(name=each, slots=int(slots or "1")) for each in _names(name, MAXIMUM_HOSTS - len(hosts))]
    return tuple(hosts)


def _names(name: str, most: int) -> list[str]:
    pieces = _BRACKETS_OF_HOSTS.split(name)
    ranges = [_ranges(inside, name) for inside in pieces[1::2]]
    # The count is checked before the names are created: a range of nine digits would fill the memory.
    if math.prod(sum(last - first + 1 for first, last, _ in each) for each in ranges) > most:
        raise ValueError(f"at most {MAXIMUM_HOSTS:,} hosts are expected; '{name}' names more")
    numbers = [
        [f"{number:0{width}d}" for first, last, width in each for number in range(first, last + 1)] for each in ranges
    ]
    between = pieces[2::2]
    return [
        pieces[0] + "".join(number + text for number, text in zip(chosen, between, strict=True))
        for chosen in itertools.product(*numbers)
    ]


def _ranges(inside: str, name: str) -> list[tuple[int, int, int]]:
    """Return (first number, last number, digits) for each range in the text between two brackets."""
    found = []
    for part in inside.split(","):
        match = _RANGE_OF_HOSTS.fullmatch(part.strip())
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"'[{inside}]' in '{name}' is not a range, such as [01-16] or [1,3-5]")
        found.append((int(match[1]), int(match[2] or match[1]), len(match[1])))
    return found


_FIRST_PORT, _LAST_PORT = 1024, 65_535
_REQUEST_STEP_BYTES, _MAXIMUM_REQUEST_BYTES = 64 << 10, 16 << 20
# The ranks' synchronisation would hide shorter steps, and too few of longer steps would run during a save.
_MINIMUM_STEP_SECONDS, _MAXIMUM_STEP_SECONDS = 0.01, 60.0
_MINIMUM_CHANGED = 0.01
_MINIMUM_ASSURANCE = 0.5
_PERCENT = re.compile(r"\d{1,3}(?:\.\d{1,6})?", re.ASCII)
_MISSES = re.compile(r"misses\s*=\s*(\d{1,4})", re.ASCII)
_MAXIMUM_SECONDS = 30 * 86_400.0
_MAXIMUM_NAME, _MAXIMUM_PATH = 255, 4095
_RAREST = 1e-9  # failures a day
# The first two are the ranks and checkpoints that the content of a page can encode (`sizing.content_places`).
_MAXIMUM_PROCESSES, _MAXIMUM_OPERATIONS, _MAXIMUM, _MAXIMUM_DEPTH, _MAXIMUM_CUTS = (
    16_384,
    4_093,
    1_000_000_000,
    16,
    1000,
)


def read_path(value: str) -> str:
    """Return a path unchanged. Raises ValueError for a path that the kernel would reject."""
    if "\0" in value:
        raise ValueError("a path cannot contain a NUL byte")
    longest = max(len(os.fsencode(part)) for part in value.split("/"))
    if longest > _MAXIMUM_NAME or len(os.fsencode(value)) > _MAXIMUM_PATH:
        raise ValueError(f"names in a path have at most {_MAXIMUM_NAME} bytes, and the path {_MAXIMUM_PATH:,}")
    return value


def read_endpoints(value: str) -> tuple[str, ...]:
    """Return the URLs of endpoints without duplicates. ``embedded`` cannot be combined with other endpoints."""
    words = tuple(dict.fromkeys(word.strip().rstrip("/") for word in value.split(",")))
    if EMBEDDED in words:
        if len(words) > 1:
            raise ValueError(f"{EMBEDDED} cannot be combined with other endpoints")
        return words
    for word in words:
        try:
            url = urllib.parse.urlsplit(word)
            is_url = url.scheme in {"http", "https"} and bool(url.hostname) and (url.port or 1) > 0
        except ValueError:
            is_url = False
        if not is_url or url.path or url.query or url.fragment or any(c.isspace() for c in word):
            raise ValueError(f"'{word}' is not an endpoint, such as https://s3.array.example:9000 or {EMBEDDED}")
        if "@" in url.netloc:
            raise ValueError("an endpoint contains no user and no password: credentials come from AWS_ACCESS_KEY_ID")
    return words


def read_metrics(value: str) -> str:
    """Return the destination of live metrics: a file with the suffix ``.prom``, or the endpoint of a collector."""
    scheme, separator, _ = value.partition("://")
    if not separator:
        if not value.endswith(FILE_SUFFIX) or value.endswith(f"/{FILE_SUFFIX}"):
            raise ValueError(f"a file whose name ends in {FILE_SUFFIX}, or otlp://HOST:PORT, is expected")
        return read_path(value)
    try:
        url = urllib.parse.urlsplit(value)
        is_endpoint = scheme == OTLP and bool(url.hostname) and (url.port or 1) > 0 and url.path in ("", "/")
    except ValueError:
        is_endpoint = False
    if not is_endpoint or url.query or url.fragment or any(c.isspace() for c in value):
        raise ValueError("otlp://HOST:PORT is expected, such as otlp://localhost:4318")
    if "@" in url.netloc:
        raise ValueError("an endpoint contains no user and no password: headers come from OTEL_EXPORTER_OTLP_HEADERS")
    return f"{OTLP}://{url.netloc}"


def count_to(maximum: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from 1 to ``maximum``."""

    def parse(value: str) -> int:
        try:
            number = int(value.replace(",", "").replace("_", ""))
        except ValueError:
            raise ValueError("a whole number is expected, such as 16000") from None
        if number < 1:
            raise ValueError("a whole number of at least 1 is expected")
        if number > maximum:
            raise ValueError(f"a whole number of at most {format_count(maximum)} is expected")
        return number

    return parse


read_number = read_accelerators = count_to(_MAXIMUM)
read_processes, read_operations = count_to(_MAXIMUM_PROCESSES), count_to(_MAXIMUM_OPERATIONS)
read_depth, read_cuts = count_to(_MAXIMUM_DEPTH), count_to(_MAXIMUM_CUTS)
read_parallel, read_optimizer, read_cache_size = read_parallelism, parse_optimizer, parse_size


def read_seed(value: str) -> int:
    """Return a seed for random numbers."""
    try:
        number = int(value, 0)
    except ValueError:
        raise ValueError("a whole number is expected") from None
    if not 0 <= number < 1 << 63:
        raise ValueError("a whole number from 0 to 2^63 - 1 is expected")
    return number


def read_share(value: str) -> float:
    """Return a share between 0 and 1, both excluded."""
    share = parse_fraction(value)
    if not 0 < share < 1:
        raise ValueError("more than 0 % and less than 100 % is expected, such as 5%")
    return share


def read_assurance(value: str) -> Assurance:
    """Return confidence, share and permitted misses from a text such as ``95/99:misses=1``.

    Raises ValueError for an invalid text, and for a proof that needs more operations than a run can have. Also raises
    ValueError for a plan with misses that proves less than ten operations without a miss.
    """
    shares, colon, planned = value.partition(":")
    confidence, slash, share = (part.strip().removesuffix("%").strip() for part in shares.partition("/"))
    if not (slash and _PERCENT.fullmatch(confidence) and _PERCENT.fullmatch(share)):
        raise ValueError("confidence and share in percent are expected, such as 95/99")
    found = _MISSES.fullmatch(planned.strip())
    if colon and not found:
        raise ValueError("misses=N is expected after the colon, such as 95/99:misses=1")
    misses = int(found[1]) if found else 0
    wanted = Assurance(confidence=float(confidence) / 100, share=float(share) / 100, misses=misses)
    for name, part in (("confidence", wanted.confidence), ("share", wanted.share)):
        if not _MINIMUM_ASSURANCE <= part < 1:
            raise ValueError(f"a {name} from {format_percent(_MINIMUM_ASSURANCE)} to below 100 % is expected")
    needed = trials_for(wanted.share, wanted.confidence, misses)
    if needed > _MAXIMUM_OPERATIONS:
        raise ValueError(
            f"{format_count(needed)} saves and loads would be needed, and a run has at most "
            f"{format_count(_MAXIMUM_OPERATIONS)}"
        )
    if misses and not shows_ten_of_ten(wanted.share, wanted.confidence, misses):
        raise ValueError(
            f"a plan with misses must show at least as much as {MLPERF_TRIALS} of {MLPERF_TRIALS} operations: "
            f"this plan, with misses={misses} in {needed} operations, shows less"
        )
    return wanted


def read_engines(value: str) -> tuple[str, ...]:
    """Return the names of engines without duplicates. The names are not checked here."""
    return tuple(dict.fromkeys(name.strip() for name in value.split(",")))


def read_strategies(value: str) -> tuple[StrategySpec, ...]:
    """Return save strategies without duplicates."""
    names = dict.fromkeys(name.strip() for name in value.split(","))
    for name in names:
        if name not in STRATEGY_OF:
            # Suggest a variant of a strategy only if the word contains a colon.
            near = [known for known in STRATEGY_OF if ":" in name or ":" not in known]
            raise ValueError(f"one of {', '.join(STRATEGY_OF)} is expected{nearest(name, near)}")
    return tuple(STRATEGY_OF[name] for name in names)


def read_step(value: str) -> float:
    """Return the seconds of a simulated training step."""
    seconds = parse_duration(value)
    if not _MINIMUM_STEP_SECONDS <= seconds <= _MAXIMUM_STEP_SECONDS:
        raise ValueError(f"{_MINIMUM_STEP_SECONDS * 1000:g}ms to {_MAXIMUM_STEP_SECONDS:g}s are expected, such as 50ms")
    return seconds


def read_full_every(value: str) -> int:
    """Return N, at least 2: every N-th save is a full save."""
    number = read_number(value)
    if number < 2:
        raise ValueError("2 or more is expected, such as 10: with 1 every save would be a full one")
    return number


def read_changed(value: str) -> float:
    """Return the share of pages that are modified between two saves, at least 1 %."""
    share = read_share(value)
    if share < _MINIMUM_CHANGED:
        raise ValueError("1 % or more is expected, such as 10%")
    return share


def read_codec(value: str) -> str:
    """Return a codec with its level, such as ``zstd:1``. If the value has no level, the codec's default is added."""
    name, colon, level = value.strip().partition(":")
    if name not in CODECS:
        raise ValueError(f"one of {', '.join(CODECS)} is expected{nearest(name, CODECS)}")
    codec = CODECS[name]
    if not colon:
        return f"{name}:{codec.level}"
    if not (level.isascii() and level.isdigit()) or not codec.lowest <= int(level[:9]) <= codec.highest:
        raise ValueError(f"{name}:{codec.lowest} to {name}:{codec.highest} are expected, such as {name}:{codec.level}")
    return f"{name}:{int(level)}"


def read_suites(value: str) -> tuple[str, ...]:
    """Return the names of the chosen suites in execution order; ("auto",) for the value ``auto``."""
    names = [name.strip() for name in value.split(",")]
    for name in names:
        if name not in (*SUITES, "all", "auto"):
            known = (*SUITES, "all", "auto")
            raise ValueError(f"'{name}' is not a suite{nearest(name, known)}; valid values: {', '.join(known)}")
    if "auto" in names:
        if len(names) > 1:
            raise ValueError("auto cannot be combined with other suites")
        return ("auto",)
    return tuple(name for name in SUITES if name in names or "all" in names)


def read_scale(value: str) -> float:
    """Return a share above 0 and at most 1."""
    scale = parse_fraction(value)
    if not 0 < scale <= 1:
        raise ValueError("more than 0 and at most 1 is expected, such as 1/100")
    return scale


def read_seconds(value: str) -> float:
    """Return a duration above 0 in seconds."""
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError("a duration above 0 is expected, such as 300s")
    return seconds


def read_days(value: str) -> float:
    """Return a duration in seconds; it is above 0 and at most 30 days."""
    seconds = read_seconds(value)
    if seconds > _MAXIMUM_SECONDS:
        raise ValueError("up to 30 days are expected, such as 24h")
    return seconds


def read_ports(value: str) -> tuple[int, int]:
    """Return the first and the last TCP port of a range."""
    first, _, last = value.partition("-")
    if not (first.isdecimal() and last.isdecimal() and _FIRST_PORT <= int(first) <= int(last) <= _LAST_PORT):
        raise ValueError(f"two ports from {_FIRST_PORT} to {_LAST_PORT} are expected, such as 20000-20100")
    return int(first), int(last)


def read_request(value: str) -> int:
    """Return the size of a request in bytes."""
    count = parse_size(value)
    if count % _REQUEST_STEP_BYTES or not 0 < count <= _MAXIMUM_REQUEST_BYTES:
        raise ValueError("a multiple of 64KiB up to 16MiB is expected, such as 4MiB")
    return count


def read_ceilings(value: str) -> tuple[float, float]:
    """Return the maximum rates of saves and of loads in bytes a second. A single rate applies to both."""
    rates = [read_rate(word) for word in value.split(":")]
    if len(rates) > 2:
        raise ValueError("expected one rate, or two with a colon between them, such as 60GB/s:120GB/s")
    return rates[0], rates[-1]


def read_rate(value: str) -> float:
    """Return a rate above 0 in bytes a second. GB/s and GBps mean bytes; Gb/s, Gbps and Gbit/s mean bits (10^9)."""
    amount = value.strip().removesuffix("/s").removesuffix("ps").removesuffix("it")
    in_bits = amount.endswith("b")
    rate = parse_size(f"{amount.removesuffix('b')}B" if in_bits else amount) / (8 if in_bits else 1)
    if rate <= 0:
        raise ValueError("expected a rate above 0, such as 25GB/s (bytes) or 200Gb/s (bits)")
    return rate


def read_loader_rate(value: str) -> float:
    """Return the rate of a host's data loader in bytes a second.

    The value is a rate, or a number of accelerators of a published workload, such as ``8xresnet50``.
    """
    count, times, name = value.strip().rpartition("x")
    workload = LOADER_WORKLOADS.get(name)
    if workload is None:
        try:
            return read_rate(value)
        except ValueError as error:
            raise ValueError(f"{error}; or one of {', '.join(LOADER_WORKLOADS)}, such as 8xresnet50") from None
    return workload.bytes_per_second * (read_number(count) if times else 1)


def one_of(known: tuple[str, ...]) -> Callable[[str], str]:
    """Return a parser that accepts only the values in ``known``."""

    def parse(value: str) -> str:
        if value not in known:
            raise ValueError(f"one of {', '.join(known)} is expected{nearest(value, known)}")
        return value

    return parse


read_mode = one_of(("auto", "full", "subset", "open"))
read_pace = one_of(PACES)
read_profile = one_of(tuple(PROFILES))


def read_switch(value: str) -> bool:
    """Return whether a flag is on. The TOML values true and false are valid."""
    words = {"on": True, "true": True, "off": False, "false": False}
    if value.lower() not in words:
        raise ValueError(f"one of on, off is expected{nearest(value, words)}")
    return words[value.lower()]


def read_models(value: str) -> tuple[str, ...]:
    """Return the names and files of models without duplicates. Files are not read here."""
    words = tuple(dict.fromkeys(word.strip() for word in value.split(",") if word.strip()))
    if not words:
        raise ValueError(f"names of models are expected: all, {', '.join(MODELS)}, or a file")
    if "all" in words and len(words) > 1 and not any(map(is_file, words)):
        raise ValueError("all cannot be combined with names of models, only with files")
    for word in words:
        _check_model(word, ("all", *MODELS))
    return words


def read_model(value: str) -> str:
    """Return the name or the file of one model unchanged. Raises ValueError for an unknown name."""
    _check_model(value, MODELS)
    return value


def _check_model(word: str, known: Iterable[str]) -> None:
    if is_file(word):
        read_path(word)
    elif word not in known:
        raise ValueError(
            f"'{word}' is not a model; valid values: {', '.join(known)}{nearest(word, MODELS)}, and files such as "
            "./my-model.toml"
        )


def read_hosts(value: str) -> tuple[HostSlots, ...]:
    """Return the hosts with their slots from a list or a host file (``@FILE``); an empty result means localhost."""
    if value == "localhost":
        return ()
    if "\0" in value:
        raise ValueError("a host cannot contain a NUL byte")
    if value.startswith("@"):
        try:
            lines = read_user_text(Path(value[1:])).splitlines()
        except OSError as error:
            raise ValueError(f"the host file cannot be read: {error.strerror}") from None
        words = [host for host in map(line_of_file, lines) if host]
    else:
        words = split_hosts(value)
    hosts = expand_hosts(words)
    if not hosts:
        raise ValueError("at least one host:slots is expected")
    return hosts


def read_failures(value: str) -> str:
    """Return the text of a failure model unchanged. Raises ValueError for an invalid text."""
    rate = parse_failure_model(value).failures_per_accelerator_day
    if not _RAREST <= rate <= SECONDS_PER_DAY:
        raise ValueError(
            "for one accelerator, at most a failure a second and at least one in 2.7 million years is expected"
        )
    return value


def read_command(value: str) -> str:
    """Return a command unchanged. Raises ValueError for a text that cannot be split into words."""
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise ValueError(f"a command is expected: {error}") from None
    if not words:
        raise ValueError("a command is expected")
    return value


_ACTIONS_OPTION = f"--ckpt-{ACTIONS}"
_TABLES_OF_ACTIONS = {
    table: {option.name: option for option in OPTIONS if option.parent == ACTIONS and table in option.owners}
    for table in dict.fromkeys(option.owners[0] for option in OPTIONS if option.parent == ACTIONS)
}


def read_actions(word: str) -> dict[str, str | None]:
    """Return {ini name: value} of the entries in a file of actions. Raises UsageError for an invalid file."""
    try:
        tables = parse_toml(read_user_text(user_path(word, _ACTIONS_OPTION)))
    except OSError as error:
        raise UsageError(
            f"{_ACTIONS_OPTION} {word}: it cannot be read: {error.strerror}.", "Name a TOML file."
        ) from None
    except ValueError as error:
        raise UsageError(f"{_ACTIONS_OPTION} {word}: it is not TOML: {error}.", _example()) from None
    given: dict[str, str | None] = {}
    for table, entries in tables.items():
        if table not in _TABLES_OF_ACTIONS or not isinstance(entries, dict):
            raise UsageError(
                f"{_ACTIONS_OPTION} {word}: unknown table '{table}'{nearest(table, _TABLES_OF_ACTIONS)}.",
                f"Tables: {', '.join(_TABLES_OF_ACTIONS)}.",
            )
        for name, value in entries.items():
            if name not in _TABLES_OF_ACTIONS[table]:
                raise UsageError(
                    f"{_ACTIONS_OPTION} {word}: [{table}] has no '{name}'{nearest(name, _TABLES_OF_ACTIONS[table])}.",
                    f"Entries: {', '.join(_TABLES_OF_ACTIONS[table])}.",
                )
            given[_TABLES_OF_ACTIONS[table][name].ini_name] = str(value)
    if not given:
        raise UsageError(f"{_ACTIONS_OPTION} {word}: the file has no entries.", _example())
    return given


def _example() -> str:
    option = next(option for option in OPTIONS if option.parent == ACTIONS)
    return f'Example: {option.owners[0]} = {{ {option.name} = "{option.example}" }}.'
