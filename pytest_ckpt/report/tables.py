"""The rows of the tables of a certificate: equal hosts are grouped, and of many rows the relevant ones are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.grading.networks import HostRate, host_rates, networks_of
from pytest_ckpt.report import view
from pytest_ckpt.report.quantity import rates_alike, seconds_alike

MAXIMUM_ROWS = 40
"""Operations of a kind that a table lists; of more, the slowest are listed and report.json has them all."""

MAXIMUM_HOSTS = 16
"""Hosts in the table of moved bytes; if there are more, those with the lowest save rate."""

_MAXIMUM_REQUESTS = 60

HOST_FACTS = ("cpu", "cores", "memory_bytes", "kernel", "os", "python", "client")


def hosts_alike(hosts: Sequence[Mapping[str, Any]]) -> list[tuple[list[str], dict[str, Any]]]:
    """Return the hosts, grouped if they differ only by name."""
    groups: dict[tuple[object, ...], tuple[list[str], dict[str, Any]]] = {}
    for host in hosts:
        facts = {name: host.get(name) for name in HOST_FACTS}
        alike = tuple(tuple(value.items()) if isinstance(value, dict) else value for value in facts.values())
        names, _ = groups.setdefault(alike, ([], facts))
        names.append(str(host["host"]))
    return list(groups.values())


def alike_readings(readings: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], list[str]]]:
    """Return the readings of the cache rule with their hosts, grouped if they differ only by host."""
    groups: dict[tuple[object, ...], tuple[Mapping[str, Any], list[str]]] = {}
    for reading in readings:
        facts = tuple(value for name, value in reading.items() if name != "host")
        groups.setdefault(facts, (reading, []))[1].append(str(reading["host"]))
    return list(groups.values())


def listed_requests(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of requests in a table, in their order; if there are many, the highest 99th percentiles."""

    def weight(at: int) -> tuple[bool, float]:
        # A request without an answer counts as slower than all others.
        p99 = rows[at]["p99_seconds"]
        return p99 is None, p99 or 0.0

    return [rows[at] for at in sorted(sorted(range(len(rows)), key=weight, reverse=True)[:_MAXIMUM_REQUESTS])]


def rates_of_hosts(
    ran: Mapping[str, object], hosts: Sequence[Mapping[str, object]] | None
) -> list[tuple[str, str, HostRate, HostRate]]:
    """Return the save and load rate of each host, next to the rate of its network; empty if both are unknown.

    A row has the host's name and its ranks. Of many hosts, those with the lowest save rate come first.
    """
    networks = networks_of(hosts or ())
    if not networks:
        return []
    measurement = from_plain(Measurement, ran)
    found: dict[str, dict[str, HostRate]] = {}
    for rate in host_rates(measurement, networks):
        found.setdefault(rate.host, {})[rate.kind] = rate
    rows = [
        (host, _in_ranges([r.rank for r in measurement.ranks if r.host == host]), of_kind["save"], of_kind["load"])
        for host, of_kind in found.items()
        if len(of_kind) == 2
    ]
    return rows if len(rows) <= MAXIMUM_HOSTS else sorted(rows, key=lambda row: row[2].bytes_per_second)


def _in_ranges(ranks: Sequence[int]) -> str:
    """Return the numbers of ranks, with consecutive ones as first and last."""
    ranges: list[list[int]] = []
    for rank in sorted(ranks):
        if ranges and rank == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], rank]
        else:
            ranges.append([rank])
    return ", ".join(" to ".join(map(str, of)) for of in ranges)


def table_rows(subject: view.Subject) -> list[dict[str, Any]]:
    """Return the operations by number, each save next to its load."""
    chosen: set[int] = set()
    for kind in subject.kinds:
        slowest = sorted(kind.operations, key=lambda o: -o["seconds"])[:MAXIMUM_ROWS]
        chosen |= {o["index"] for o in (kind.operations if len(kind.operations) <= MAXIMUM_ROWS else slowest)}
    found = {(o["kind"], o["index"]): o for kind in subject.kinds for o in kind.operations}
    return [{"index": n, "save": found.get(("save", n)), "load": found.get(("load", n))} for n in sorted(chosen)]


def columns_alike(subject: view.Subject) -> dict[str, dict[str, Callable[[float | None], str]]]:
    """Return, by kind, the formatters of its columns: decimal points are aligned."""
    return {
        kind.kind: {
            "seconds": seconds_alike(kind.slowest_seconds),
            "rate": rates_alike(kind.bytes / kind.fastest_seconds if kind.bytes and kind.fastest_seconds else None),
        }
        for kind in subject.kinds
    }
