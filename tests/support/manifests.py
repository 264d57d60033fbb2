"""Reads the Kubernetes manifests, and replaces their variables by values, as ``envsubst`` does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.doc_pages import DOCS

DIRECTORY = DOCS / "recipes" / "kubernetes"
MANIFESTS = ("ssh.yaml", "mpijob-claim.yaml", "mpijob-bucket.yaml", "job-claim.yaml", "job-bucket.yaml")
_VARIABLE = re.compile(r"\$\{(CKPT_[A-Z_]+)\}")


def values(**others: str) -> dict[str, str]:
    """Return the variables of the file ``values.env``, with ``others`` added or replaced."""
    lines = (DIRECTORY / "values.env").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {name: " ".join(shlex.split(text)) for name, text in found.items()} | others


def filled(name: str, of: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the documents of the manifest ``name``, with each variable replaced by its value in ``of``.

    Raises KeyError if a value is missing.
    """
    text = _VARIABLE.sub(lambda found: of[found[1]], (DIRECTORY / name).read_text())
    return list(yaml.safe_load_all(text))


def variables(path: Path) -> set[str]:
    """Return the names of the variables that a manifest uses."""
    return set(_VARIABLE.findall(path.read_text()))


def templates(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the pod templates in a document."""
    if document["kind"] == "Job":
        yield document["spec"]["template"]
    elif document["kind"] == "MPIJob":
        yield from (replica["template"] for replica in document["spec"]["mpiReplicaSpecs"].values())
