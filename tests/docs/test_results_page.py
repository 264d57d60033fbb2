"""docs/results.md names every field of every record that a run writes. The files of a real run are compared too."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.facts.written import schema_of
from pytest_ckpt.grading.document import Report
from tests.support.doc_examples import Commands
from tests.support.doc_pages import DOCS

SECTIONS = {
    heading.strip(): text
    for heading, text in re.findall(
        r"^#{2,3} (.*)\n((?:(?!#{2,3} ).*\n)*)", (DOCS / "results.md").read_text(), re.MULTILINE
    )
}
# The section of the page that explains the fields of each record.
SECTION_OF = {
    "Report": "The document", "Run": "run", "Cluster": "cluster", "LimitInput": "cluster",
    "Waiver": "The document", "Origin": "The document",
    "Checkpoint": "checkpoints", "Engine": "checkpoints", "FileNames": "checkpoints", "ReplayedPattern": "checkpoints",
    "Memory": "checkpoints", "Demand": "demand", "Model": "checkpoints", "OwnModel": "checkpoints",
    "LayerKind": "checkpoints",
    "DeltaRule": "checkpoints", "DrainRule": "measurements",
    "Verdict": "requirements", "AcceptanceBound": "requirements", "CatalogueRow": "catalogue", "Gates": "gate_table",
    "Measurement": "measurements", "Requests": "measurements", "HostWaits": "measurements", "HostWait": "measurements",
    "RankFacts": "measurements", "ClientProofs": "measurements", "FsyncEffect": "measurements",
    "HostLoad": "measurements",
    "ClockSpan": "measurements", "RampStep": "measurements", "RequestDepth": "measurements",
    "ClientCeiling": "measurements",
    "Interposed": "measurements", "RankSpan": "measurements",
    "Operation": "operations", "CacheFacts": "cache", "CacheReading": "cache", "CanaryReads": "cache",
    "MovedBytes": "cache", "StorageStack": "cache", "Layer": "cache",
    "Integrity": "integrity", "Fault": "faults", "Durability": "durability",
    "Retention": "retention and data", "DataEffect": "retention and data",
    "Patterns": "patterns", "LoadPattern": "patterns", "Resized": "patterns", "RestartReads": "patterns",
    "NoisyNeighbour": "patterns", "MixedLoad": "patterns",
    "SavePace": "patterns",
    "Endurance": "patterns", "NearFull": "patterns", "FillLevel": "patterns", "Training": "patterns",
    "StepsOfSave": "patterns", "StepBatch": "patterns", "Crashes": "patterns", "Kill": "patterns",
    "Chains": "patterns", "Tiers": "patterns", "TierRestore": "patterns", "NodeLoss": "patterns",
    "Preempted": "patterns", "Serving": "patterns", "WeightsLoad": "patterns", "Consolidation": "patterns",
    "Compression": "patterns", "Scaling": "patterns", "ClientCount": "patterns", "ScaledOperation": "patterns",
    "Metadata": "patterns", "NamesStep": "patterns", "NameFault": "patterns",
    "Failover": "failover", "FailoverTrial": "failover", "OperationTrial": "failover", "CommandRun": "failover",
    "Upgrade": "upgrade", "Snapshots": "snapshots", "SnapshotTrial": "snapshots",
    "Failure": "failure", "OperationRef": "failure", "Observation": "observations", "Anomaly": "observations",
    "BlockedCall": "observations", "ClusterSize": "sufficient_up_to_accelerators", "Scope": "scope",
    "ScopedCheckpoint": "scope",
    "TrainingRow": "training", "Interval": "training", "ClusterGoodput": "training",
    "Forecast": "forecast", "ProjectedRate": "forecast", "ExpectedSlowest": "forecast", "SimulatedMonth": "forecast",
    "FrameworkOverhead": "framework_overhead", "Environment": "environment", "HostFacts": "environment",
    "HostNetwork": "environment", "TargetFacts": "environment", "Capacity": "environment",
    "PluginFacts": "environment", "Section": "sections", "Published": "published", "Figure": "published",
    "ReceivedBytes": "published",
    "Message": "published", "Start": "starts", "JudgedAgain": "judged_again", "ChangedLimit": "judged_again",
    "InterruptedWork": "starts", "RepeatedMeasurement": "starts",
}  # fmt: skip
# Objects whose keys are not field names: for example sentences by quantity, or facts by subject.
FREE = {"facts", "reasons", "kinds", "limits", "versions", "engine_facts", "system", "bases", "client"}


# The fields of every record that a report is made of.
PARTS = schema_of(Report)["$defs"]
FIELDS = {name: set(part["properties"]) for name, part in PARTS.items()}


def section_of(name: str) -> str:
    """Return the section of the page that describes a record.

    If the record has no own section, return the section of the record that contains it.
    """
    if name in SECTION_OF:
        return SECTION_OF[name]
    (outer,) = (outer for outer, part in PARTS.items() if f'"#/$defs/{name}"' in json.dumps(part["properties"]))
    return section_of(outer)


def named_in(section: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", SECTIONS[section]))


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_every_field_of_a_record_is_explained(name: str) -> None:
    assert FIELDS[name] - named_in(section_of(name)) == set()


def test_every_section_is_of_records_that_there_are() -> None:
    assert set(SECTION_OF) <= set(FIELDS)


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
def directory(create_home: Callable[[str], Path]) -> Path:
    """The directory that contains the report directory of a small run. The run wrote every type of file."""
    commands = Commands(create_home("results"))
    code, found = commands.run(
        "mkdir target && pytest --ckpt-target=target --cluster=8 --ckpt-model=llama3-8b --ckpt-mode=open "
        "--ckpt-ranks=2 --ckpt-profile=smoke --ckpt-scale=1/10000 --ckpt-engine=stream --ckpt-keep-last=2 "
        "--ckpt-suite=data-pairs=1 --ckpt-gate-table=speed-only --ckpt-history=history"
    )
    assert "certificate:" in found, f"{code}: {found}"
    return commands.home


def test_every_name_that_a_real_report_holds_is_explained(directory):
    document = json.loads((directory / "ckpt-report" / "report.json").read_text())
    assert document["measurements"][0]["retention"]
    everywhere = {name for section in SECTIONS for name in named_in(section)}
    assert set(keys_of(document)) - everywhere == set()
    assert set(document["stages"]) <= named_in("stages")
    phases = {name for m in document["measurements"] for o in m["operations"] for name in o["phases"]}
    assert phases <= named_in("operations")


def test_every_property_of_junit_is_explained(directory):
    tree = ET.parse(directory / "ckpt-report" / "junit.xml")  # a file that the run wrote itself
    written = {element.attrib["name"] for element in tree.iter("property")}
    assert {"requirement", "grade"} <= written <= named_in("junit.xml")


def test_every_field_of_the_history_is_explained(directory):
    (line,) = (directory / "history" / "history.jsonl").read_text().splitlines()
    assert set(keys_of(json.loads(line))) <= named_in("history.jsonl")


def test_every_file_of_the_run_directory_is_listed(directory):
    listed = set(re.findall(r"`([^`\n]+)`", (DOCS / "contract.md").read_text())) | named_in("The other files")
    entries = {entry.name + ("/" if entry.is_dir() else "") for entry in (directory / "ckpt-report").iterdir()}
    assert not {name for name in entries if not any(known.startswith(name) for known in listed)}
