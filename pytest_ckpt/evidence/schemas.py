"""Checks our documents against their JSON schemas in ``templates/``."""

from __future__ import annotations

import functools
import json
from typing import Any

from pytest_ckpt.support import resources

_MOST_FAULTS = 100
_MOST_LETTERS = 200


def faults(document: Any, name: str, part: str = "") -> list[str]:
    """Return a sentence for every place where a document does not follow a schema; none means that it does.

    ``name`` is that of a file in ``templates/``, without ``.schema.json``; ``part`` one of its definitions.
    """
    found = []
    for error in _validator(name, part).iter_errors(document):
        text = error.message
        shown = text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS // 2]} … {text[-_MOST_LETTERS // 2 :]}"
        found.append(f"{error.json_path}: {shown}")
        if len(found) == _MOST_FAULTS:
            break
    return found


@functools.cache
def _validator(name: str, part: str) -> Any:
    import jsonschema  # noqa: PLC0415 - only where a document of another hand is read

    schema = json.loads((resources.folder("templates") / f"{name}.schema.json").read_text(encoding="utf-8"))
    if part:
        schema = {"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": f"#/$defs/{part}"}
    # To JSON schema 1e300 and 2.0 are integers; to what counts with them they are not.
    whole = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _checker, value: type(value) is int)
    extend: Any = jsonschema.validators.extend
    return extend(jsonschema.Draft202012Validator, type_checker=whole)(schema)
