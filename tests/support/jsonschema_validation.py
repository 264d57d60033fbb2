"""Validates a document with the library ``jsonschema``, against a schema that ``pytest-ckpt schema`` prints."""

from __future__ import annotations

import functools
from typing import Any

import jsonschema

from pytest_ckpt.cli.documents import DOCUMENTS
from pytest_ckpt.facts.written import schema_of


def violations(document: Any, name: str) -> list[str]:
    """Return a sentence for each violation of the schema ``name`` by a document."""
    return [f"{error.json_path}: {error.message}" for error in _validator(name).iter_errors(document)]


@functools.cache
def _validator(name: str) -> Any:
    plain = jsonschema.Draft202012Validator
    # In JSON schema, 1e300 and 2.0 are integers; for our code they are not.
    types = plain.TYPE_CHECKER.redefine("integer", lambda _checker, value: type(value) is int)
    return jsonschema.validators.extend(plain, type_checker=types)(schema_of(DOCUMENTS[name]))
