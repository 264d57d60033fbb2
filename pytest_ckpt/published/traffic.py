"""The bytes that hosts received over the network during loads, and page caches dropped between runs. Pure (no I/O).

mlpstorage copies the kernel's counters of every host. It copies them at the start and end of an invocation
(``cluster_snapshots`` in its metadata) and every 10 s (``*_timeseries.json``). The counters have UTC times in whole
seconds. DLIO's times have no time zone.

Received bytes are a lower bound, because the kernel does not count the traffic of RDMA adapters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from pytest_ckpt.published.values import items, on_clock, parsed_time, table

# Interfaces that count the bytes of another one again (bonds, bridges, VLANs, tunnels), or that never leave the host.
_REPEATED = re.compile(r"lo|(?:bond|team|br|docker|veth|virbr|cni|flannel|cali|cilium|tun|tap|dummy|vxlan|wg)[-_.\w]*")
# Azure's accelerated networking: the synthetic interface eth0 counts what its virtual function enP1234s1 received.
_VIRTUAL_FUNCTION = re.compile(r"enP\d+s\d+\w*")
_TIME_ZONE_SECONDS = 900.0
_ENDLESS = 1 << 63

CROSSED_SHARE = 0.95
"""The minimum share of the loaded bytes that hosts must receive so that loads count as read over the network. Chosen by
this program."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """The counters of one host at the time ``at``, in seconds since 2000 (UTC).

    ``received`` is {interface: received bytes}. ``dropped`` counts how often the kernel's page cache was dropped since
    the host started; None if not recorded.
    """

    at: float
    received: Mapping[str, int]
    dropped: int | None = None


Counters = Mapping[str, Sequence[Sample]]
"""The samples of each host, ordered by time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """The bytes that all hosts received during the loads.

    ``bytes`` covers the time from the last sample before the loads to the first sample after them. ``at_least`` is true
    if a host has no sample after the loads; ``bytes`` is then a lower bound.
    """

    bytes: int
    at_least: bool


def counters_of(metadata: Any, series: Any) -> Counters:
    """Return the samples of each host from mlpstorage's metadata and time series. Either argument may be None."""
    found: dict[str, list[Sample]] = {}
    snapshots = table(table(metadata).get("cluster_snapshots"))
    for snapshot in (table(snapshots.get("start")), table(snapshots.get("end"))):
        for host in items(snapshot.get("hosts")):
            _add(found, host, table(host).get("collection_timestamp"), "network")
    for samples in table(table(series).get("samples_by_host")).values():
        for sample in items(samples):
            _add(found, sample, table(sample).get("timestamp"), "netdev")
    return {name: tuple(sorted(samples, key=lambda s: s.at)) for name, samples in found.items()}


def received_between(counters: Counters, begin: float, end: float, began: float, hosts: int | None) -> Received | None:
    """Return the bytes that all hosts received between the times ``begin`` and ``end`` on a rank's clock.

    ``began`` is the start of the run on the same clock. The time zone of the clock is derived from ``began``. ``hosts``
    is the number of hosts; None if unknown. Return None if a host lacks counters, or if a counter decreased, as after a
    restart.
    """
    samples = [sample for of_host in counters.values() for sample in of_host]
    if not samples or len(counters) != (hosts or len(counters)):
        return None
    zone = _TIME_ZONE_SECONDS * round((began - min(s.at for s in samples)) / _TIME_ZONE_SECONDS)
    total, at_least = 0, False
    for of_host in counters.values():
        counted = [s for s in of_host if s.received]
        before = [s for s in counted if s.at + zone <= begin]
        after = [s for s in counted if s.at + zone >= end]
        if not before or (last := after[0] if after else counted[-1]).at <= before[-1].at:
            return None
        first = before[-1].received
        grown = [last.received[name] - first[name] for name in first if name in last.received]
        if not grown or min(grown) < 0:
            return None
        total += sum(grown)
        at_least = at_least or not after
    return Received(bytes=total, at_least=at_least)


def dropped_between(saving: Counters, loading: Counters) -> bool | None:
    """Return whether each loading host dropped its page cache between two invocations; None if not recorded.

    ``saving`` contains the counters of the invocation that saved; ``loading`` contains the counters of the invocation
    that loaded.
    """
    if not loading or not set(loading) <= set(saving):
        return None
    before = [next((s.dropped for s in reversed(saving[name]) if s.dropped is not None), None) for name in loading]
    after = [next((s.dropped for s in of_host if s.dropped is not None), None) for of_host in loading.values()]
    known = [(b, a) for b, a in zip(before, after, strict=True) if b is not None and a is not None]
    return all(a > b for b, a in known) if len(known) == len(before) else None


def _add(found: dict[str, list[Sample]], host: Any, when: Any, interfaces: str) -> None:
    fields = table(host)
    name, at = fields.get("hostname"), _seconds(when)
    if not isinstance(name, str) or at is None:
        return
    received = {
        text: count
        for row in items(fields.get(interfaces))
        if (text := _name(table(row).get("interface_name")))
        and (count := _count(table(row).get("rx_bytes"))) is not None
    }
    if any(text.startswith("eth") for text in received):
        received = {text: count for text, count in received.items() if not _VIRTUAL_FUNCTION.fullmatch(text)}
    dropped = _count(table(fields.get("vmstat")).get("drop_pagecache"))
    found.setdefault(name, []).append(Sample(at=at, received=received, dropped=dropped))


def _name(value: Any) -> str:
    """Return ``value`` if it is the name of an interface whose bytes must be counted; otherwise an empty text.

    Bytes of other interfaces remain on the host, or a physical interface also counts them.
    """
    if not isinstance(value, str) or "." in value or "@" in value or _REPEATED.fullmatch(value):
        return ""
    return value


def _seconds(value: Any) -> float | None:
    found = parsed_time(value)
    if found is None:
        return None
    if found.tzinfo is not None:
        try:
            found = found.astimezone(UTC).replace(tzinfo=None)
        except OverflowError:
            return None
    return on_clock(found)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _ENDLESS else None
