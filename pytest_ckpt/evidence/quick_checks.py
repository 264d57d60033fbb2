"""What a JSON schema says of a value as one function, which answers yes or perhaps.

The library makes an object for every value that it looks at, and looks references up each time: 40 µs for a number. A
run of days holds hundreds of thousands. A function that is made once of a schema says in a fraction of that whether a
value follows it; of one that does not, the library says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Check = Callable[[Any], bool]
IsType = Callable[[Any, str], bool]

_REFERENCE = "#/$defs/"
# Said for people, or where definitions lie.
_DECIDES_NOTHING = frozenset({"$schema", "$id", "$defs", "title", "description"})


def inlined(schema: Any, definitions: Mapping[str, Any], done: dict[str, Any]) -> Any:
    """Return a schema with its definitions in the place of references to them. None of our schemas holds itself."""
    if isinstance(schema, list):
        return [inlined(part, definitions, done) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.keys() == {"$ref"}:
        name = schema["$ref"].removeprefix(_REFERENCE)
        if name not in done:
            done[name] = inlined(definitions[name], definitions, done)
        return done[name]
    return {key: value if key == "$defs" else inlined(value, definitions, done) for key, value in schema.items()}


class QuickChecks:
    """Makes the functions of one schema, in which references are inlined; ``is_type`` says what its types mean."""

    def __init__(self, is_type: IsType) -> None:
        self._is_type = is_type
        # By the id of a part of the schema, which lives as long as its validator.
        self._made: dict[int, Check | None] = {}

    def of(self, schema: Any) -> Check | None:
        """Return what says whether a value follows a part of the schema; None where that is left to the library."""
        if id(schema) not in self._made:
            self._made[id(schema)] = self._make(schema)
        return self._made[id(schema)]

    def _make(self, schema: Any) -> Check | None:
        if not isinstance(schema, dict):
            return None
        parts: list[Check] = []
        for keyword, value in schema.items():
            if keyword in _DECIDES_NOTHING:
                continue
            part = self._part(keyword, value, schema)
            if part is None:
                return None
            parts.append(part)
        if len(parts) == 1:
            return parts[0]
        if len(parts) == 2:
            # As for every number of a list: its type, and a bound.
            one, other = parts
            return lambda value: one(value) and other(value)
        return lambda value: all(part(value) for part in parts)

    def _part(self, keyword: str, given_value: Any, schema: Mapping[str, Any]) -> Check | None:
        """Return what one keyword demands; None for a keyword that is not known here."""
        if keyword == "type":
            return self._type([given_value] if isinstance(given_value, str) else given_value)
        if keyword in ("enum", "const"):
            return _one_of(given_value if keyword == "enum" else [given_value])
        if keyword in _BOUNDS:
            return _BOUNDS[keyword](given_value)
        if keyword == "required":
            return lambda value: not isinstance(value, dict) or all(name in value for name in given_value)
        if keyword == "properties":
            return self._properties(given_value)
        if keyword == "additionalProperties":
            return self._rest(given_value, schema.get("properties", {}))
        if keyword == "items" and "prefixItems" not in schema:
            return self._items(given_value)
        if keyword == "oneOf":
            return self._one_only(given_value)
        return None

    def _type(self, names: Sequence[str]) -> Check:
        is_type = self._is_type
        exact = frozenset(kind for name in names for kind in _EXACT[name])
        return lambda value: type(value) in exact or any(is_type(value, name) for name in names)

    def _properties(self, given_value: Mapping[str, Any]) -> Check | None:
        checks = {name: self.of(part) for name, part in given_value.items()}
        known = {name: check for name, check in checks.items() if check}
        if len(known) < len(checks):
            return None
        return lambda value: (
            not isinstance(value, dict) or all(check(value[name]) for name, check in known.items() if name in value)
        )

    def _rest(self, given_value: Any, named: Mapping[str, Any]) -> Check | None:
        if given_value is False:
            return lambda value: not isinstance(value, dict) or named.keys() >= value.keys()
        check = self.of(given_value)
        if check is None:
            return None
        return lambda value: not isinstance(value, dict) or all(check(v) for k, v in value.items() if k not in named)

    def _items(self, given_value: Any) -> Check | None:
        if (
            isinstance(given_value, dict)
            and given_value.keys() == {"type", "minimum"}
            and given_value["type"] in ("number", "integer")
        ):
            kinds, minimum = frozenset(_EXACT[given_value["type"]]), given_value["minimum"]
            return lambda value: (
                not isinstance(value, list)
                or (kinds.issuperset(map(type, value)) and min(value, default=minimum) >= minimum)
            )
        check = self.of(given_value)
        return None if check is None else lambda value: not isinstance(value, list) or all(map(check, value))

    def _one_only(self, given_value: Sequence[Any]) -> Check | None:
        checks = [check for part in given_value if (check := self.of(part))]
        # Of a value that follows none quickly, and of two, the library decides.
        return (
            None
            if len(checks) < len(given_value)
            else lambda value: [check(value) for check in checks].count(True) == 1
        )


def _one_of(values: Sequence[Any]) -> Check | None:
    """Return what knows a few words and numbers; to Python True is 1, to JSON it is not."""
    kinds = {type(value) for value in values}
    if not kinds <= {str, int, type(None)}:
        return None
    known = frozenset(values)
    return lambda value: type(value) in kinds and value in known


def _for_numbers(holds: Callable[[Any, Any], bool]) -> Callable[[Any], Check]:
    """Return what makes the check of a bound, which says nothing of what is no number."""
    return lambda bound: lambda value: holds(value, bound) if type(value) in (int, float) else not _is_odd_number(value)


def _is_odd_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_BOUNDS: Mapping[str, Callable[[Any], Check]] = {
    "minimum": _for_numbers(lambda value, bound: value >= bound),
    "exclusiveMinimum": _for_numbers(lambda value, bound: value > bound),
    "maximum": _for_numbers(lambda value, bound: value <= bound),
    "minLength": lambda minimum: lambda value: not isinstance(value, str) or len(value) >= minimum,
    "minItems": lambda minimum: lambda value: not isinstance(value, list) or len(value) >= minimum,
    "pattern": lambda text: lambda value: not isinstance(value, str) or re.search(text, value) is not None,
}
# Of types without subclasses in a document that was read; whole numbers are numbers too.
_EXACT: Mapping[str, tuple[type, ...]] = {
    "number": (int, float),
    "integer": (int,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
