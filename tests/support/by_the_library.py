"""What the library ``jsonschema`` finds in a document: the measure of our own rules, and the check of what we write."""

from __future__ import annotations

import functools
import json
from typing import Any

import jsonschema

from pytest_ckpt.support import resources


def faults(document: Any, name: str, part: str = "") -> list[str]:
    """Return a sentence for every place where a document does not follow a schema in ``templates/``."""
    return [f"{error.json_path}: {error.message}" for error in _validator(name, part).iter_errors(document)]


@functools.cache
def _validator(name: str, part: str) -> Any:
    schema = json.loads((resources.folder("templates") / f"{name}.schema.json").read_text(encoding="utf-8"))
    if part:
        schema = {"$defs": schema["$defs"], "$ref": f"#/$defs/{part}"}
    plain = jsonschema.Draft202012Validator
    # To JSON schema 1e300 and 2.0 are integers; to what counts with them they are not.
    types = plain.TYPE_CHECKER.redefine("integer", lambda _checker, value: type(value) is int)
    return jsonschema.validators.extend(plain, type_checker=types)(schema)
