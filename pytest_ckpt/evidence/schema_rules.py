"""What a JSON schema (draft 2020-12) demands of a value: a rule that is made once of each part of a schema.

A run of days leaves hundreds of thousands of numbers, each checked whenever somebody verifies them. So a rule answers
first, as one function, whether a value follows it, and says only of a value that does not what it lacks and where. It
knows the keywords that our schemas use and refuses any other: what is not understood must not pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Fault = tuple[str, str]
"""Where (``$.runs[3].grade``), and what is wrong there."""

_REFERENCE = "#/$defs/"
# Said for people, or where definitions lie.
_DECIDES_NOTHING = frozenset({"$schema", "$id", "$defs", "title", "description"})
_PLAIN_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")
# Of documents that were read; to JSON schema 1e300 and 2.0 are integers, to what counts with them they are not.
_TYPES: Mapping[str, frozenset[type]] = {
    "number": frozenset({int, float}),
    "integer": frozenset({int}),
    "string": frozenset({str}),
    "boolean": frozenset({bool}),
    "null": frozenset({type(None)}),
    "array": frozenset({list}),
    "object": frozenset({dict}),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """What a part of a schema demands: whether a value follows it, and the faults of one at a place that does not."""

    holds: Callable[[Any], bool]
    faults: Callable[[Any, str], Iterator[Fault]]


class Rules:
    """Makes the rules of a schema with these definitions. None of our schemas holds itself."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        # By the id of a part of the schema, which lives until all of its rules are made.
        self._made: dict[int, Rule] = {}

    def of(self, schema: Mapping[str, Any]) -> Rule:
        """Return the rule of a part of the schema. Raises KeyError for a keyword that is not known here."""
        schema = self._defined(schema)
        if id(schema) not in self._made:
            demands = [keyword for keyword in schema if keyword not in _DECIDES_NOTHING]
            self._made[id(schema)] = _all([self._keyword(keyword, schema) for keyword in demands])
        return self._made[id(schema)]

    def _defined(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the definition that a reference leads to, or the schema that is none."""
        if schema.keys() != {"$ref"}:
            return schema
        return self._defined(self._definitions[schema["$ref"].removeprefix(_REFERENCE)])

    def _keyword(self, keyword: str, schema: Mapping[str, Any]) -> Rule:
        demanded = schema[keyword]
        match keyword:
            case "type":
                return _of_type([demanded] if isinstance(demanded, str) else demanded)
            case "enum":
                return _one_of(demanded, lambda value: f"{value!r} is not one of {demanded!r}")
            case "const":
                return _one_of([demanded], lambda _value: f"{demanded!r} was expected")
            case "required":
                return _required(demanded)
            case "properties":
                return self._properties(demanded)
            case "additionalProperties":
                return self._rest(demanded, schema.get("properties", {}))
            case "items":
                return self._items(self._defined(demanded))
            case "oneOf":
                return self._one_only(demanded)
        return _BOUNDS[keyword](demanded)

    def _properties(self, parts: Mapping[str, Any]) -> Rule:
        rules = {name: self.of(part) for name, part in parts.items()}

        def holds(value: Any) -> bool:
            return type(value) is not dict or all(r.holds(value[name]) for name, r in rules.items() if name in value)

        def faults(value: Any, where: str) -> Iterator[Fault]:
            for name, rule in rules.items():
                if name in value and not rule.holds(value[name]):
                    yield from rule.faults(value[name], where + _step(name))

        return Rule(holds, faults)

    def _rest(self, part: Any, named: Mapping[str, Any]) -> Rule:
        if part is False:
            return _nothing_else(named)
        rule = self.of(part)

        def holds(value: Any) -> bool:
            return type(value) is not dict or all(rule.holds(v) for name, v in value.items() if name not in named)

        def faults(value: Any, where: str) -> Iterator[Fault]:
            for name in value:
                if name not in named and not rule.holds(value[name]):
                    yield from rule.faults(value[name], where + _step(name))

        return Rule(holds, faults)

    def _items(self, part: Mapping[str, Any]) -> Rule:
        rule = self.of(part)
        every = _numbers_above(part) or (lambda values: all(map(rule.holds, values)))

        def faults(value: Any, where: str) -> Iterator[Fault]:
            for place, item in enumerate(value):
                if not rule.holds(item):
                    yield from rule.faults(item, f"{where}[{place}]")

        return Rule(lambda value: type(value) is not list or every(value), faults)

    def _one_only(self, parts: Sequence[Mapping[str, Any]]) -> Rule:
        rules = [self.of(part) for part in parts]

        def faults(value: Any, where: str) -> Iterator[Fault]:
            fit = [repr(part) for part, rule in zip(parts, rules, strict=True) if rule.holds(value)]
            if fit:
                yield where, f"{value!r} is valid under each of {', '.join([*fit[1:], fit[0]])}"
            else:
                yield where, f"{value!r} is not valid under any of the given schemas"

        return Rule(lambda value: [rule.holds(value) for rule in rules].count(True) == 1, faults)


def _all(rules: Sequence[Rule]) -> Rule:
    """Return the rule of which all of these are parts; most have one, or two: a type and a bound."""
    if len(rules) == 1:
        return rules[0]

    def faults(value: Any, where: str) -> Iterator[Fault]:
        for rule in rules:
            if not rule.holds(value):
                yield from rule.faults(value, where)

    checks = [rule.holds for rule in rules]
    if len(checks) == 2:
        one, other = checks
        return Rule(lambda value: one(value) and other(value), faults)
    return Rule(lambda value: all(check(value) for check in checks), faults)


def _says(holds: Callable[[Any], bool], sentence: Callable[[Any], str]) -> Rule:
    """Return a rule that says one sentence of a value that does not follow it."""

    def faults(value: Any, where: str) -> Iterator[Fault]:
        yield where, sentence(value)

    return Rule(holds, faults)


def _of_type(names: Sequence[str]) -> Rule:
    kinds = frozenset().union(*(_TYPES[name] for name in names))
    listed = ", ".join(map(repr, names))
    return _says(lambda value: type(value) in kinds, lambda value: f"{value!r} is not of type {listed}")


def _one_of(values: Sequence[Any], sentence: Callable[[Any], str]) -> Rule:
    """Return what knows a few words and numbers; to Python True is 1, to JSON it is not."""
    known = frozenset((type(value) is bool, value) for value in values)
    scalars = _TYPES["string"] | _TYPES["number"] | _TYPES["boolean"] | _TYPES["null"]
    return _says(lambda value: type(value) in scalars and (type(value) is bool, value) in known, sentence)


def _required(names: Sequence[str]) -> Rule:
    def faults(value: Any, where: str) -> Iterator[Fault]:
        yield from ((where, f"{name!r} is a required property") for name in names if name not in value)

    return Rule(lambda value: type(value) is not dict or all(name in value for name in names), faults)


def _nothing_else(named: Mapping[str, Any]) -> Rule:
    def sentence(value: Any) -> str:
        more = sorted(value.keys() - named.keys())
        verb = "was" if len(more) == 1 else "were"
        return f"Additional properties are not allowed ({', '.join(map(repr, more))} {verb} unexpected)"

    return _says(lambda value: type(value) is not dict or named.keys() >= value.keys(), sentence)


def _numbers_above(part: Mapping[str, Any]) -> Callable[[list[Any]], bool] | None:
    """Return what looks at a list of numbers with a minimum as a whole; None for a list of anything else."""
    if part.keys() != {"type", "minimum"} or part["type"] not in ("number", "integer"):
        return None
    kinds, minimum = _TYPES[part["type"]], part["minimum"]
    # What is not a number at all (NaN) is below no bound; one that comes first hides those that are.
    return lambda values: (
        kinds.issuperset(map(type, values))
        and (min(values, default=minimum) >= minimum or not any(value < minimum for value in values))
    )


def _bound(kind: str, breaks: Callable[[Any, Any], bool], sentence: str) -> Callable[[Any], Rule]:
    """Return what makes the rule of a bound, which says nothing of what is of another kind."""
    kinds = _TYPES[kind]
    return lambda bound: _says(
        lambda value: type(value) not in kinds or not breaks(value, bound),
        lambda value: f"{value!r} " + sentence.format(bound),
    )


def _at_least(kind: str) -> Callable[[int], Rule]:
    return lambda least: _bound(
        kind, lambda value, bound: len(value) < bound, "should be non-empty" if least == 1 else "is too short"
    )(least)


_BOUNDS: Mapping[str, Callable[[Any], Rule]] = {
    "minimum": _bound("number", lambda value, bound: value < bound, "is less than the minimum of {!r}"),
    "exclusiveMinimum": _bound(
        "number", lambda value, bound: value <= bound, "is less than or equal to the minimum of {!r}"
    ),
    "maximum": _bound("number", lambda value, bound: value > bound, "is greater than the maximum of {!r}"),
    "minLength": _at_least("string"),
    "minItems": _at_least("array"),
    "pattern": _bound("string", lambda value, text: re.search(text, value) is None, "does not match {!r}"),
}


def _step(name: str) -> str:
    """Return how a field's name continues a JSON path."""
    if _PLAIN_NAME.fullmatch(name):
        return f".{name}"
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"
