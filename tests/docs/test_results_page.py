"""docs/results.md names every field that a run writes: by the schema, by the records, and as a real run writes them."""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.facts import failure, measurement, observation, proofs, verdict
from tests.support.doc_examples import Commands
from tests.support.doc_pages import CHECKOUT, DOCS

SCHEMA = json.loads((CHECKOUT / "templates" / "report.schema.json").read_text())
SECTIONS = {
    heading.strip(): text
    for heading, text in re.findall(
        r"^#{2,3} (.*)\n((?:(?!#{2,3} ).*\n)*)", (DOCS / "results.md").read_text(), re.MULTILINE
    )
}
# What crosses between processes and is in no document; a subject is written as its text.
UNWRITTEN = {"Entry", "DurabilityProof", "CommitProof", "SaveTiming", "Subject"}
RECORDS = {
    name: kind
    for module in (failure, measurement, observation, proofs, verdict)
    for name, kind in vars(module).items()
    if dataclasses.is_dataclass(kind) and name not in UNWRITTEN
}
# Which section has the fields of which object: of the schema, and of the records that are written as they are.
OF_SCHEMA = {
    "engine": "checkpoints", "definition": "checkpoints",
    "": "The document", "run": "run", "cluster": "cluster", "checkpoint": "checkpoints", "demand": "demand",
    "verdict": "requirements", "requirement": "catalogue", "gates": "gates", "measurement": "measurements",
    "requests": "measurements",
    "operation": "operations", "cache": "cache", "integrity": "integrity", "fault": "faults",
    "host_waits": "measurements", "host_network": "environment",
    "durability": "durability", "retention": "retention and data", "data": "retention and data",
    "patterns": "patterns", "load_pattern": "patterns", "endurance": "patterns", "near_full": "patterns",
    "failover": "failover", "tried_operation": "failover", "command_run": "failover",
    "upgrade": "upgrade", "snapshots": "snapshots", "steps_beside_saves": "patterns", "crashes": "patterns",
    "chains": "patterns",
    "tiers": "patterns", "tier_restore": "patterns", "node_loss": "patterns",
    "preempt": "patterns", "drains": "measurements",
    "serving": "patterns", "weights_load": "patterns", "consolidation": "patterns",
    "compression": "patterns",
    "scaling": "patterns", "scaled_operation": "patterns",
    "noisy_neighbour": "patterns", "mixed_load": "patterns", "failure": "failure", "observation": "observations",
    "operation_reference": "failure", "blocked_call": "observations",
    "cluster_size": "certified_cluster", "training": "training", "framework_overhead": "framework_overhead",
    "scope": "scope", "forecast": "forecast",
    "environment": "environment", "target": "environment",
    "published": "published", "start": "starts",
    "client_proofs": "measurements", "storage_stack": "cache",
    "setting": "The document", "plugin": "environment", "section": "sections",
}  # fmt: skip
OF_RECORDS = {
    "Measurement": "measurements", "Requests": "measurements",
    "Operation": "operations", "CacheFacts": "cache", "CacheReading": "cache",
    "CanaryReads": "cache", "MovedBytes": "cache",
    "Integrity": "integrity", "Fault": "faults", "Durability": "durability", "Retention": "retention and data",
    "DataEffect": "retention and data", "Patterns": "patterns", "LoadPattern": "patterns",
    "NoisyNeighbour": "patterns", "MixedLoad": "patterns", "Endurance": "patterns", "NearFull": "patterns",
    "FillLevel": "patterns", "Failover": "failover", "FailoverTrial": "failover",
    "OperationTrial": "failover", "CommandRun": "failover",
    "Training": "patterns", "Crashes": "patterns", "Chains": "patterns",
    "Tiers": "patterns", "Preempted": "patterns", "Serving": "patterns", "WeightsLoad": "patterns",
    "Consolidation": "patterns", "Compression": "patterns", "DrainRule": "measurements",
    "HostWaits": "measurements",
    "Scaling": "patterns", "ClientCount": "patterns", "ScaledOperation": "patterns",
    "Upgrade": "upgrade", "Snapshots": "snapshots", "SnapshotTrial": "snapshots",
    "Failure": "failure", "OperationRef": "failure", "BlockedCall": "observations", "RankFacts": "measurements",
    "Observation": "observations", "Anomaly": "observations",
    "ClientProofs": "measurements", "StorageStack": "cache",
    "Verdict": "requirements",
}  # fmt: skip
# Objects whose names are not fields: sentences by quantity, facts by what was looked at, and the like.
FREE = {"facts", "reasons", "kinds", "limits", "versions", "engine_facts", "system", "bases", "client"}


def named_in(section: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", SECTIONS[section]))


def properties(schema: dict[str, Any]) -> Iterator[str]:
    """Return the names of an object of the schema, with those of objects that have no name of their own."""
    for name, below in schema.get("properties", {}).items():
        yield name
        yield from properties(below)
        yield from properties(below.get("items", {}))


@pytest.mark.parametrize("name", ["", *(n for n, d in SCHEMA["$defs"].items() if "properties" in d)])
def test_every_property_of_the_schema_is_explained(name):
    described = SCHEMA if not name else SCHEMA["$defs"][name]
    assert set(properties(described)) - named_in(OF_SCHEMA[name]) == set()


@pytest.mark.parametrize("name", RECORDS)
def test_every_field_of_a_record_is_explained(name):
    assert {field.name for field in dataclasses.fields(RECORDS[name])} - named_in(OF_RECORDS[name]) == set()


def keys_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield key
            if key not in FREE:
                yield from keys_of(below)
    elif isinstance(value, list):
        for below in value:
            yield from keys_of(below)


@pytest.fixture(scope="module")
def folder(make_home: Callable[[str], Path]) -> Path:
    """The folder of a run that wrote all that a small run writes."""
    commands = Commands(make_home("results"))
    code, found = commands.run(
        "mkdir target && pytest --ckpt-target=target --cluster=8 --ckpt-model=llama3-8b --ckpt-mode=open "
        "--ckpt-ranks=2 --ckpt-profile=smoke --ckpt-scale=1/10000 --ckpt-engine=stream --ckpt-keep-last=2 "
        "--ckpt-data-pairs=1 --ckpt-gate-table=speed-only --ckpt-history=history"
    )
    assert "certificate:" in found, f"{code}: {found}"
    return commands.home


def test_every_name_that_a_real_report_holds_is_explained(folder):
    document = json.loads((folder / "ckpt-report" / "report.json").read_text())
    assert document["measurements"][0]["retention"]
    everywhere = {name for section in SECTIONS for name in named_in(section)}
    assert set(keys_of(document)) - everywhere == set()
    assert set(document["stages"]) <= named_in("stages")
    phases = {name for m in document["measurements"] for o in m["operations"] for name in o["phases"]}
    assert phases <= named_in("operations")


def test_every_property_of_junit_is_explained(folder):
    tree = ET.parse(folder / "ckpt-report" / "junit.xml")  # our own file
    written = {element.attrib["name"] for element in tree.iter("property")}
    assert {"requirement", "grade"} <= written <= named_in("junit.xml")


def test_every_field_of_the_history_is_explained(folder):
    (line,) = (folder / "history" / "history.jsonl").read_text().splitlines()
    assert set(keys_of(json.loads(line))) <= named_in("history.jsonl")


def test_every_file_of_the_run_folder_is_listed(folder):
    listed = set(re.findall(r"`([^`\n]+)`", (DOCS / "contract.md").read_text())) | named_in("The other files")
    entries = {entry.name + ("/" if entry.is_dir() else "") for entry in (folder / "ckpt-report").iterdir()}
    assert not {name for name in entries if not any(known.startswith(name) for known in listed)}
