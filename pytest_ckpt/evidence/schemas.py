"""Checks our documents against their JSON schemas in ``templates/``."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_ckpt.evidence.quick_checks import QuickChecks, inlined
from pytest_ckpt.support import resources

_MAXIMUM_FAULTS = 100
_MAXIMUM_LETTERS = 200


def faults(document: Any, name: str, part: str = "") -> list[str]:
    """Return a sentence for every place where a document does not follow a schema; none means that it does.

    ``name`` is that of a file in ``templates/``, without ``.schema.json``; ``part`` one of its definitions.
    """
    found = []
    for error in _validator(name, part).iter_errors(document):
        text = error.message
        shown = (
            text
            if len(text) <= _MAXIMUM_LETTERS
            else f"{text[: _MAXIMUM_LETTERS // 2]} … {text[-_MAXIMUM_LETTERS // 2 :]}"
        )
        found.append(f"{error.json_path}: {shown}")
        if len(found) == _MAXIMUM_FAULTS:
            break
    return found


@functools.cache
def _validator(name: str, part: str) -> Any:
    import jsonschema  # noqa: PLC0415 - only where a document of another hand is read

    schema = json.loads((resources.folder("templates") / f"{name}.schema.json").read_text(encoding="utf-8"))
    definitions = schema["$defs"]
    if part:
        schema = {"$schema": schema["$schema"], "$defs": definitions, **definitions[part]}
    plain = jsonschema.Draft202012Validator
    # To JSON schema 1e300 and 2.0 are integers; to what counts with them they are not.
    types = plain.TYPE_CHECKER.redefine("integer", lambda _checker, value: type(value) is int)
    keywords = _quick_keywords(QuickChecks(types.is_type), plain.VALIDATORS)
    extend: Any = jsonschema.validators.extend
    return extend(plain, keywords, type_checker=types)(inlined(schema, definitions, {}))


def _quick_keywords(quick: QuickChecks, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return what looks into lists and tables, and gives the library only what in them does not follow the schema."""

    def items(validator: Any, of: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        if "prefixItems" in schema or not isinstance(instance, list):
            yield from plain["items"](validator, of, instance, schema) or ()
            return
        check = quick.of(of)
        for number, value in enumerate(instance):
            if check is None or not check(value):
                yield from validator.descend(value, of, path=number)

    def properties(validator: Any, of: Mapping[str, Any], instance: Any, _schema: Any) -> Iterator[Any]:
        for name, part in of.items() if isinstance(instance, dict) else ():
            if name in instance and not ((check := quick.of(part)) and check(instance[name])):
                yield from validator.descend(instance[name], part, path=name, schema_path=name)

    return {"items": items, "properties": properties}
