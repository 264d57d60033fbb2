"""Many names: empty files and directories are created, looked up, listed and removed by all ranks."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pytest_ckpt.facts.failure import describe_failure
from pytest_ckpt.judging.decision import Decision, failed_by, measured_as
from pytest_ckpt.judging.requirement import requirement
from pytest_ckpt.sizing.patterns import saves_complete_checkpoints
from pytest_ckpt.support.units import counted, format_count, format_seconds, format_times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.many_names import Metadata
    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.sizing.limits import ClusterLimits

_OF_NVIDIA = (("files", 1_000_000, "N-013a"), ("directories", 500_000, "N-013b"))
"""The numbers of files and directories in NVIDIA's storage acceptance list, and the lines of the list."""

_CACHED_NAMES = {
    True: "the kernels dropped cached names before each step",
    False: "not every kernel dropped cached names before each step: a rate may be of a cache",
    None: "cached names were not dropped: a rate may be of a cache",
}


@requirement(
    "METADATA",
    title="Many names are kept as they were created",
    severity="advisory",
    units=("files",),
    figure="the number of names that stat or a listing shows wrongly",
    limit="0; no limit on the rates",
    source="POSIX open(), stat(), readdir(), unlink(); the number of files is --ckpt-suite=metadata:files, 100,000 "
    "(storage acceptance list of NVIDIA, N-013a: 1,000,000 files, N-013b: 500,000 sub-directories)",
    requested_by=lambda settings: settings.includes_metadata,
    of_strategy=saves_complete_checkpoints,
    next_step="If a name was missing or stayed, look at the metadata servers, and at mount options that let a client "
    "keep names (NFS: actimeo, lookupcache). If a call failed, its error names the cause, such as a quota of files or "
    "a limit of entries in a directory.",
    help="STALE, VISIBLE, NAMES on NFS",
)
def test_many_names_are_complete(metadata: Metadata, measurement: Measurement, limits: ClusterLimits) -> Decision:
    """All ranks together create, look up, list and remove empty files; no name is missing, and none remains.

    The default is 100,000 files in 1,000 directories. Every created name must be found by stat and listed once. A
    removed name must no longer be listed, and no call may fail. The rate of each kind of call is reported: all ranks
    call at the same time, and the slowest rank counts. Then one rank removes three directories one after another, as
    libraries remove old checkpoints. Each of the three directories has as many files as a checkpoint of the plan. The
    times of the removals are reported next to the interval between saves. Advisory: no limit on these rates is
    published, and they depend on the number of ranks.
    """
    detail = tuple(_described(metadata, measurement, limits))
    if metadata.faults:
        first = metadata.faults[0]
        because = (
            f"{counted(metadata.fault_count, 'name')} of {format_count(metadata.files)} "
            f"{'was' if metadata.fault_count == 1 else 'were'} wrong. The first one: {first.name}, {first.kind} "
            f"(rank {first.rank} on {first.host})."
        )
        return measured_as("anomaly", metadata.fault_count, 0, "files", because, detail)
    if metadata.failure:
        failed = failed_by(metadata.failure)
        return dataclasses.replace(failed, detail=(*failed.detail, *detail))
    because = f"All names of {metadata.extent} were right. Rates of {_clients(measurement)}: {metadata.rates}."
    return measured_as("met", 0, 0, "files", because, detail)


def _described(found: Metadata, measurement: Measurement, limits: ClusterLimits) -> Iterator[str]:
    yield f"{found.extent}, by {_clients(measurement)}, each rank one call at a time"
    for field, number, line in _OF_NVIDIA:
        if (made := getattr(found, field)) >= number:
            yield f"{format_count(made)} {field}: the number of {line} of NVIDIA's storage acceptance list"
    for step in found.steps:
        yield (
            f"{step.call}: {counted(step.count, 'name')} in {format_seconds(step.seconds)}, {step.rate}; "
            f"rank {step.slowest_rank} last"
        )
    hosts = "another host had created" if found.by_other_hosts else "the same host may have created"
    yield f"each rank looked up and listed names that {hosts}; {_CACHED_NAMES[found.names_dropped]}"
    if found.late:
        yield f"another host saw {counted(found.late, 'name')} only later, which STALE judges"
    if found.removal_seconds:
        yield (
            f"removal of an old checkpoint ({counted(found.checkpoint_files, 'file')}) by one rank: "
            f"{format_times(found.removal_seconds)}; the cluster saves every {format_seconds(limits.interval_seconds)}"
        )
    if found.faults and found.failure:
        yield describe_failure(found.failure)
    for fault in found.faults:
        yield f"{fault.kind}: {counted(fault.count, 'name')} from {fault.name} on, rank {fault.rank} on {fault.host}"


def _clients(measurement: Measurement) -> str:
    hosts = len(set(measurement.hosts))
    return f"{counted(measurement.processes, 'rank')} on {counted(hosts, 'host')}"
