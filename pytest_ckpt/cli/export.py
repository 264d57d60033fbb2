"""``pytest-ckpt export``: write a run in the format of MLPerf Storage."""

from __future__ import annotations

import json
import re
import shlex
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.support.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.published.export import ExportedMeasurement

HELP = "write the times of a run in the format of DLIO's results, marked as not a submission"
DESCRIPTION = (
    "Write a run as a tree of results in the format of DLIO and mlpstorage, which pytest-ckpt judge and other tools "
    "read: times of full checkpoints, saved while the job is blocked. The tree is not a submission, and a notice in "
    "it states this. Verdicts and proofs are in its file pytest-ckpt.json."
)
_DIVISION, _SUBMITTER = "not-a-submission", "pytest-ckpt"
_MAXIMUM_LETTERS = 60
# The format writes years with four digits.
_MAXIMUM_SECONDS = 1e9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("directory", metavar="DIRECTORY", help="the directory of a run, such as ckpt-report")
    parser.add_argument("--mlperf", metavar="OUT", required=True, help="directory to write: a new one, or an empty one")


def run(args: argparse.Namespace) -> int:
    """Write the measurements that the format of MLPerf Storage can express. Return 0.

    The command prints which measurements were written and which were left out.
    """
    from pytest_ckpt.evidence.judged_run import changes_of_facts, judge_sealed_directory  # noqa: PLC0415
    from pytest_ckpt.evidence.run_files import read_report  # noqa: PLC0415
    from pytest_ckpt.facts.codec import from_plain  # noqa: PLC0415
    from pytest_ckpt.facts.measurement import Measurement  # noqa: PLC0415
    from pytest_ckpt.published.export import NOT_A_SUBMISSION, side_file, unavailable_reason  # noqa: PLC0415
    from pytest_ckpt.report.svg import printable  # noqa: PLC0415

    directory, out = Path(args.directory), Path(args.mlperf)
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory.", "Name the directory of a run, such as ckpt-report.")
    report = read_report(directory)
    document = judge_sealed_directory(directory, {})
    measurements = [from_plain(Measurement, m) for m in document["measurements"]]
    left_out = [f"{m.subject}: {reason}" for m in measurements if (reason := unavailable_reason(m))]
    fitting = [m for m in measurements if not unavailable_reason(m)]
    if not fitting:
        described = "".join(f"\n  {line}" for line in left_out) or " It has no measurements."
        raise UsageError(
            f"{directory} has no measurement that fits the format.{described}",
            "Run one of the four models at full size, with --ckpt-strategy=sync.",
        )
    _refuse_existing_file(out)
    system = _system_name(document)
    taken: set[str] = set()
    for measurement in fitting:
        exported = _exported(directory, report, measurement)
        name = system if exported.model.name not in taken else f"{system}-{measurement.subject.slug}"
        taken.add(exported.model.name)
        place = out / _DIVISION / _SUBMITTER / "results" / name / "checkpointing" / exported.model.name
        _write(place / exported.started.strftime("%Y%m%d_%H%M%S"), exported)
        print(
            printable(
                f"{measurement.subject}: {len(measurement.operations)} operations of {measurement.processes} ranks"
            )
        )
    (out / "pytest-ckpt.json").write_text(json.dumps(side_file(document, left_out), indent=1) + "\n")
    (out / "NOT-A-SUBMISSION.txt").write_text(NOT_A_SUBMISSION + "\n")
    if changed := changes_of_facts(directory):
        print(
            printable(
                f"The directory is not as its run left it: {', '.join(changed)}. The exported times may be wrong."
            )
        )
    for line in left_out:
        print(printable(f"left out: {line}"))
    print(printable(f"{NOT_A_SUBMISSION}\njudge it: pytest-ckpt judge {shlex.quote(str(out))} --cluster=N"))
    return 0


def _refuse_existing_file(out: Path) -> None:
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UsageError(f"--mlperf {out} already exists.", "Name a directory that does not exist, or that is empty.")


def _exported(directory: Path, report: Mapping[str, Any], measurement: Measurement) -> ExportedMeasurement:
    from pytest_ckpt.evidence.starts import ends_of  # noqa: PLC0415
    from pytest_ckpt.published.export import ExportedMeasurement, Host  # noqa: PLC0415

    try:
        started = datetime.fromisoformat(report["run"]["started"])
    except ValueError:
        raise UsageError(
            f"{directory}: its report does not state when the run started.",
            "pytest-ckpt verify lists the changed files of the directory.",
        ) from None
    if sum(o.seconds for o in measurement.operations) > _MAXIMUM_SECONDS or started.year > 9900:
        raise UsageError(f"{directory}: its operations end later than the last possible date.", "Export another run.")
    ends = ends_of(directory, measurement)
    hosts = {host["host"]: host for host in report["environment"]["hosts"]}
    return ExportedMeasurement(
        measurement=measurement,
        run_id=str(report["run"]["id"]),
        version=str(report["run"]["version"]),
        started=started,
        location=str(report["environment"]["target"]["location"]),
        hosts=tuple(
            Host(
                name=name,
                memory_bytes=int(hosts.get(name, {}).get("memory_bytes") or 0),
                cpu=str(hosts.get(name, {}).get("cpu") or ""),
                cores=int(hosts.get(name, {}).get("cores") or 0),
            )
            for name in measurement.hosts
        ),
        ends=ends if all(0 <= end < _MAXIMUM_SECONDS for end in ends) else (),
    )


def _system_name(document: Mapping[str, Any]) -> str:
    """Return a directory name from vendor and product of the storage; a placeholder if neither is declared."""
    described = (document.get("system") or {}).get("system") or {}
    words = [str(described[name]) for name in ("vendor", "product") if described.get(name)]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", " ".join(words))[:_MAXIMUM_LETTERS].strip("-.") or "system-not-described"


def _write(place: Path, exported: ExportedMeasurement) -> None:
    from ruamel.yaml import YAML  # noqa: PLC0415 - only here

    from pytest_ckpt.published.export import metadata, statistics_files, summary, workload  # noqa: PLC0415

    (place / "dlio_config").mkdir(parents=True)
    for name, content in statistics_files(exported).items():
        (place / name).write_text(json.dumps(content, indent=1) + "\n")
    (place / "summary.json").write_text(json.dumps(summary(exported), indent=1) + "\n")
    (place / f"checkpointing_{place.name}_metadata.json").write_text(json.dumps(metadata(exported), indent=1) + "\n")
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    # Pydantic cannot sort these keys; this is the order of the format's own files.
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    with (place / "dlio_config" / "config.yaml").open("w") as file:
        writer.dump({"workload": workload(exported)}, file)
