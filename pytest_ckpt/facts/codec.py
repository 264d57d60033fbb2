"""Converts records to plain JSON types and back. Only this module defines the JSON form of records."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Record = TypeVar("Record")
Reader = Callable[[Any], Any]

# Types whose values are already plain; a long run has lists of hundreds of thousands of such values.
_PLAIN = frozenset({str, int, float, bool, types.NoneType})


def to_plain(record: Any) -> Any:
    """Return a record, tuple, set or mapping in plain JSON types.

    An instance of a subclass of str, int or float becomes a plain str, int or float. If the class of a record has
    ``from_text``, the record becomes its text.
    """
    if type(record) in _PLAIN:
        return record
    if hasattr(record, "from_text"):
        return str(record)
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_plain(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, dict):
        return {str(key): to_plain(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return [to_plain(value) for value in record]
    if isinstance(record, frozenset):
        return sorted(to_plain(value) for value in record)
    if isinstance(record, int):
        return int(record)
    if isinstance(record, float):
        return float(record)
    return str(record)


def from_plain(kind: type[Record], data: Any) -> Record:
    """Return a record of class ``kind`` from the output of `to_plain`.

    Unknown keys are ignored, so that older code reads newer files. Raises TypeError if a field without a default is
    missing, and ValueError if the class of a field rejects its text.
    """
    readers = _readers(typing.cast("Hashable", kind))
    return kind(**{name: _read(readers[name], value) for name, value in data.items() if name in readers})


def _read(reader: Reader | None, value: Any) -> Any:
    return value if reader is None or value is None else reader(value)


@functools.cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(kind)


@functools.cache
def _readers(kind: Hashable) -> dict[str, Reader | None]:
    hints = _hints(kind)
    return {f.name: _reader(hints[f.name]) for f in dataclasses.fields(kind)}  # type: ignore[arg-type]


@functools.cache
def _reader(hint: Any) -> Reader | None:
    """Return the function that converts a plain value to the type ``hint``; None if no conversion is needed."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _reader(next(a for a in args if a is not types.NoneType))
    if origin in (tuple, frozenset):
        reader = None if args[0] in _PLAIN else _reader(args[0])
        return origin if reader is None else lambda value: origin(_read(reader, item) for item in value)
    if origin is dict:
        return functools.partial(_read_dict, _reader(args[1]))
    if hasattr(hint, "from_text"):
        return typing.cast("Reader", hint.from_text)
    if dataclasses.is_dataclass(hint):
        return functools.partial(from_plain, typing.cast("type[Any]", hint))
    if _is_named_tuple(hint):
        readers = tuple(map(_reader, _hints(hint).values()))
        return lambda value: hint(*map(_read, readers, value)) if isinstance(value, list) else value
    return None


def _read_dict(reader: Reader | None, value: Any) -> Any:
    return {key: _read(reader, item) for key, item in value.items()} if isinstance(value, dict) else value


def _is_named_tuple(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")
