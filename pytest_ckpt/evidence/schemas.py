"""Checks our documents against their JSON schemas in ``templates/``."""

from __future__ import annotations

import functools
import itertools
import json
from typing import Any

from pytest_ckpt.evidence.schema_rules import Rule, Rules
from pytest_ckpt.support import resources

_MAXIMUM_FAULTS = 100
_MAXIMUM_LETTERS = 200


def faults(document: Any, name: str, part: str = "") -> list[str]:
    """Return a sentence for every place where a document does not follow a schema; none means that it does.

    ``name`` is that of a file in ``templates/``, without ``.schema.json``; ``part`` one of its definitions.
    """
    rule = rule_of(name, part)
    if rule.holds(document):
        return []
    return [f"{where}: {_cut(text)}" for where, text in itertools.islice(rule.faults(document, "$"), _MAXIMUM_FAULTS)]


@functools.cache
def rule_of(name: str, part: str = "") -> Rule:
    """Return what a schema, or one of its definitions, demands."""
    schema = json.loads((resources.folder("templates") / f"{name}.schema.json").read_text(encoding="utf-8"))
    definitions = schema["$defs"]
    return Rules(definitions).of(definitions[part] if part else schema)


def _cut(text: str) -> str:
    half = _MAXIMUM_LETTERS // 2
    return text if len(text) <= _MAXIMUM_LETTERS else f"{text[:half]} … {text[-half:]}"
