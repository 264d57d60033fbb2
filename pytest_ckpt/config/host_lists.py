"""The hosts of a list or of a line of a host file: Slurm's ranges, and the words of Open MPI's host files. Pure."""

from __future__ import annotations

import itertools
import math
import re

from pytest_ckpt.facts.settings import HostSlots

MAXIMUM_HOSTS = 16_384
"""As many as there can be processes."""

# As many as there can be processes, and no other script's digits.
_SLOTS = re.compile(r"0*[1-9][0-9]{0,4}", re.ASCII)
_COMMA_OUTSIDE = re.compile(r",(?![^\[\]]*\])")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
_NO_NAME = re.compile(r"[\s,\[\]]")
_WORDS = frozenset(("slots", "max_slots", "max-slots"))


def split_hosts(text: str) -> list[str]:
    """Return the words of a list; a comma within brackets is part of a word."""
    return [word for word in map(str.strip, _COMMA_OUTSIDE.split(text)) if word]


def line_of_file(line: str) -> str:
    """Return a line of a host file as ``host:slots``, or empty. Raises ValueError for a word that is not known."""
    host, *words = re.sub(r"\s*=\s*", "=", line.split("#", maxsplit=1)[0]).split() or [""]
    given = {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in _WORDS or not _SLOTS.fullmatch(value):
            raise ValueError(f"'{word}' in the line '{line.strip()}' is none of slots=8 and max_slots=8")
        given[key.replace("-", "_")] = int(value)
    if "slots" in given:
        host = f"{host}:{given['slots']}"
    slots = host.rpartition(":")[2]
    # mpiexec would refuse to start more ranks on the host.
    if "max_slots" in given and (int(slots) if _SLOTS.fullmatch(slots) and ":" in host else 1) > given["max_slots"]:
        raise ValueError(f"the line '{line.strip()}' has more slots than max_slots")
    return host


def expand_hosts(words: list[str]) -> tuple[HostSlots, ...]:
    """Return the hosts of all words, in order. Raises ValueError for an invalid word, or for too many hosts."""
    hosts: list[HostSlots] = []
    for word in words:
        name, _, slots = word.partition(":")
        if not name or not _SLOTS.fullmatch(slots or "1") or _NO_NAME.search(_BRACKETS.sub("", name)):
            raise ValueError(f"'{word}' is not host:slots, such as node1:8 or node[01-16]:8")
        hosts += [HostSlots(name=each, slots=int(slots or "1")) for each in _names(name, MAXIMUM_HOSTS - len(hosts))]
    return tuple(hosts)


def _names(name: str, most: int) -> list[str]:
    pieces = _BRACKETS.split(name)
    ranges = [_ranges(inside, name) for inside in pieces[1::2]]
    # Counted before any is made: a range of nine digits would fill the memory.
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
    """Return first, last and digits of each range between two brackets."""
    found = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"'[{inside}]' in '{name}' is no range, such as [01-16] or [1,3-5]")
        found.append((int(match[1]), int(match[2] or match[1]), len(match[1])))
    return found
