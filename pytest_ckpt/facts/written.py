"""The schema of a record's JSON file, derived from the record's class. msgspec checks files against the schema.

`codec.to_plain` writes every field. Therefore a file must contain every field of the record; additional fields are
ignored. msgspec is imported only inside functions, because its import takes longer than the import of a run's records.
Most runs read no file.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import types
import typing
from collections.abc import Hashable
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

from pytest_ckpt.facts.bounds import Bounds, Partly, Text

_MAXIMUM_LETTERS = 200


def fault(document: Any, kind: Any) -> str:
    """Return a text on the first difference between ``document`` and the JSON form of ``kind``; empty if none.

    ``kind`` is a dataclass or a TypedDict. `codec.to_plain` defines the JSON form. Types are strict: 2.0 is not an int,
    and true is not a number.
    """
    import msgspec  # noqa: PLC0415

    try:
        msgspec.convert(document, written(kind), strict=True)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `")
        return f"{place.removesuffix('`') or '$'}: {_cut(what)}"
    except UnicodeEncodeError as error:
        # JSON can contain half of a surrogate pair, which is invalid text; msgspec does not report its place.
        return f"$: a text contains {error.object[error.start : error.end]!a}, half of a surrogate pair"
    return ""


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of the values that `fault` accepts."""
    import msgspec  # noqa: PLC0415

    (top,), parts = msgspec.json.schema_components([written(kind)])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "$defs": parts}


def written(hint: Any) -> Any:
    """Return the msgspec type of the JSON form of a Python type (`codec.to_plain`)."""
    return _written(cast("Hashable", hint))


@functools.cache
def _written(hint: Any) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _bounded(hint)
    if origin is NotRequired:
        return NotRequired[_written(args[0])]
    if origin in (types.UnionType, typing.Union):
        return functools.reduce(operator.or_, map(_written, args))
    if origin in (tuple, frozenset, list):
        return list[_written(args[0])]  # type: ignore[misc]
    if origin is dict:
        return dict[_written(args[0]), _written(args[1])]  # type: ignore[misc]
    if hasattr(hint, "from_text"):
        return _written(Text)
    if dataclasses.is_dataclass(hint) or typing.is_typeddict(hint):
        return _object(hint)
    if hint in (str, int, float, bool, types.NoneType, Any) or origin is Literal:
        return hint
    raise TypeError(f"no file contains a value of {hint}")


def _bounded(hint: Any) -> Any:
    import msgspec  # noqa: PLC0415

    base = hint.__origin__
    for mark in hint.__metadata__:
        if isinstance(mark, Bounds):
            stated = {name: value for name, value in mark._asdict().items() if value is not None}
            return Annotated[_written(base), msgspec.Meta(**stated)]
        if isinstance(mark, Partly):
            return _object(base, mark.fields)
    return _written(base)


def _object(kind: Any, required: tuple[str, ...] | None = None) -> Any:
    """Return the JSON object type of a record whose fields ``required`` are required.

    If ``required`` is None, all fields are required.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    names = [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else list(hints)
    fields = {name: _written(hints[name]) for name in names}
    if required is not None:
        fields = {name: hint if name in required else NotRequired[hint] for name, hint in fields.items()}
    made: Any = TypedDict(kind.__name__, fields)  # type: ignore[misc]
    made.__doc__ = inspect.cleandoc(kind.__doc__ or "")
    return made


def _cut(text: str) -> str:
    half = _MAXIMUM_LETTERS // 2
    return text if len(text) <= _MAXIMUM_LETTERS else f"{text[:half]} … {text[-half:]}"
