"""Whether a host's network, or its highest rate without storage (its ceiling), limited a measurement. Pure.

The rate of a host is derived from the bytes that the host moved in saves and loads.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.client_ceiling import NEAR_CEILING
from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.environment import HostNetwork
from pytest_ckpt.judging.client_ceiling import host_rate, ranks_by_host
from pytest_ckpt.judging.clients import named_hosts
from pytest_ckpt.support.units import counted, format_percent, format_rate

if TYPE_CHECKING:
    from pytest_ckpt.facts.client_ceiling import ClientCeiling
    from pytest_ckpt.facts.measurement import Measurement, OperationKind

NEAR = 0.8
"""A host counts as the limit of a measurement if it used at least this share of its network's rate.

TCP and a file system's protocol use some percent of the rate, and measurements of one minute vary by a similar share.
"""
BEYOND = 1.1
"""A host that moves more than this multiple of its network's rate must use more links, or another network."""

_KINDS: tuple[OperationKind, ...] = ("save", "load")
_MAXIMUM_NAMED = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRate:
    """The median rate of one host in saves or in loads, and the rate of the host's network, in bytes a second.

    If the rate of the network is unknown, it is None.
    """

    subject: str
    kind: OperationKind
    host: str
    bytes_per_second: float
    network_bytes_per_second: float | None

    @property
    def share(self) -> float | None:
        """The share of the network's rate that the host used; None if the network's rate is unknown."""
        return self.bytes_per_second / self.network_bytes_per_second if self.network_bytes_per_second else None


def networks_of(hosts: Iterable[Mapping[str, object]]) -> dict[str, HostNetwork]:
    """Return {host: network rates} for the ``hosts`` of a report's environment.

    Hosts without network rates are left out.
    """
    return {str(host["host"]): from_plain(HostNetwork, host["network"]) for host in hosts if host.get("network")}


def host_rates(measurement: Measurement, networks: Mapping[str, HostNetwork]) -> list[HostRate]:
    """Return the median rate of each host over all saves, and over all loads.

    The time of a host in an operation is the time of its slowest rank. Operations are left out if the counted bytes
    are not the bytes on the network:

    - saves to a local tier
    - compressed data
    - loads of another host's files, if ranks have files of different sizes
    """
    if measurement.drains or measurement.subject.strategy == "compressed":
        return []
    of_host = ranks_by_host(measurement)
    is_alike = len(set(measurement.rank_bytes)) == 1
    swaps = bool(measurement.cache and measurement.cache.by_other_hosts)
    found = []
    for kind in _KINDS:
        operations = measurement.whole(kind) if kind == "save" or is_alike or not swaps else ()
        for host, ranks in of_host.items():
            if rates := [rate for o in operations if (rate := host_rate(o, ranks, measurement.rank_bytes))]:
                network = networks.get(host)
                carried = network and (
                    network.sends_bytes_per_second if kind == "save" else network.receives_bytes_per_second
                )
                found.append(
                    HostRate(
                        subject=str(measurement.subject),
                        kind=kind,
                        host=host,
                        bytes_per_second=statistics.median(rates),
                        network_bytes_per_second=carried or None,
                    )
                )
    return found


def client_limits(measurements: Iterable[Measurement], networks: Mapping[str, HostNetwork]) -> list[str]:
    """Return sentences on hosts whose network may have limited a measurement, by subject and kind of operation.

    A host is reported in three cases:

    - The host moved nearly as much as its network allows.
    - The host moved clearly more than its network allows. It then used more links, or another network.
    - The rate of the host's network could not be measured.
    """
    unknown: dict[str, list[str]] = {}
    for host, network in networks.items():
        if network.unavailable_reason:
            unknown.setdefault(network.unavailable_reason, []).append(host)
    sentences = [
        f"whether clients were the limit is not known: the network of {named_hosts(names)} was not measured: "
        f"{reason.rstrip('.')}"
        for reason, names in unknown.items()
    ]
    for measurement in measurements:
        rates = host_rates(measurement, networks)
        for kind in _KINDS:
            of_kind = [rate for rate in rates if rate.kind == kind and rate.share is not None]
            near = [rate for rate in of_kind if NEAR <= (rate.share or 0.0) <= BEYOND]
            beyond = [rate for rate in of_kind if (rate.share or 0.0) > BEYOND]
            if near:
                sentences.append(
                    f"the client is the limit: in {kind}s of {measurement.subject} {_named(near, networks)}; the "
                    "storage may be faster than was measured"
                )
            if beyond:
                sentences.append(
                    f"in {kind}s of {measurement.subject} {_named(beyond, networks)}: it moved them over another "
                    "network, or over more links; --ckpt-nic-rate states their rate"
                )
    return sentences


def ceiling_limits(measurements: Iterable[Measurement]) -> list[str]:
    """Return sentences on hosts whose ceiling without storage may have limited a measurement.

    There is one sentence for each subject and kind of operation. If a host moved clearly more than its ceiling, a
    sentence states that the host was slower when the ceiling was measured.
    """
    sentences = []
    for measurement in measurements:
        ceilings = {ceiling.host: ceiling for ceiling in measurement.client_ceilings}
        rates = [rate for rate in host_rates(measurement, {}) if rate.host in ceilings]
        for kind in _KINDS:
            verb = "makes" if kind == "save" else "compares"
            shares = [(r, r.bytes_per_second / ceilings[r.host].rate(kind)) for r in rates if r.kind == kind]
            near, beyond = (
                _of_ceilings([of for of in shares if low <= of[1] <= high], ceilings, verb)
                for low, high in ((NEAR_CEILING, BEYOND), (math.nextafter(BEYOND, math.inf), math.inf))
            )
            if near:
                sentences.append(
                    f"the client is the limit: in {kind}s of {measurement.subject} {near}; the storage may be faster "
                    "than was measured"
                )
            if beyond:
                sentences.append(
                    f"in {kind}s of {measurement.subject} {beyond}: the host was slower when its ceiling was measured, "
                    "so whether the client was the limit is not known"
                )
    return sentences


def _of_ceilings(shares: list[tuple[HostRate, float]], ceilings: Mapping[str, ClientCeiling], verb: str) -> str:
    shown = [
        f"{rate.host} moved {format_rate(rate.bytes_per_second)}, {format_percent(share)} of what it {verb} without "
        f"storage ({format_rate(ceilings[rate.host].rate(rate.kind))})"
        for rate, share in shares[:_MAXIMUM_NAMED]
    ]
    more = len(shares) - _MAXIMUM_NAMED
    return ", ".join([*shown, *([f"{counted(more, 'more host')} as well"] if more > 0 else [])])


def _named(rates: list[HostRate], networks: Mapping[str, HostNetwork]) -> str:
    shown = [
        f"{r.host} moved {format_rate(r.bytes_per_second)}, {format_percent(r.share or 0.0)} of the capacity of its "
        f"network ({format_rate(r.network_bytes_per_second or 0.0)}, {_basis(networks[r.host])})"
        for r in rates[:_MAXIMUM_NAMED]
    ]
    more = [f"{counted(len(rates) - _MAXIMUM_NAMED, 'more host')} as well"] if len(rates) > _MAXIMUM_NAMED else []
    return ", ".join(shown + more)


def _basis(network: HostNetwork) -> str:
    return "as stated" if network.basis == "stated" else f"TCP streams between {network.over}"
