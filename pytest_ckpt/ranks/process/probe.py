"""Describes the ranks' hosts before a run, so problems are found before the first write.

The networks of all hosts are measured concurrently. The hosts form a ring, and each host exchanges data with the next
and the previous host.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pytest_ckpt import __version__
from pytest_ckpt.facts.across_hosts import Marker, TargetView, TierView
from pytest_ckpt.facts.environment import CLOCK_AHEAD, HostFacts, HostNetwork
from pytest_ckpt.facts.events import HostsSeen
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.host_state import (
    cores_of_this_process,
    host_state,
    memory_available_bytes,
    memory_of_host,
    mount_state,
    numa_state,
    readahead_state,
    version_state,
)
from pytest_ckpt.support.references import load
from pytest_ckpt.wire.streams import StreamListener, closing, connected, send_and_receive

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from pytest_ckpt.facts.environment import Streams
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import Job
    from pytest_ckpt.targets.protocol import AreaView, Store, StoreOfPaths

# A client that has never looked up a name cannot have it cached, and clients rarely cache a directory listing for
# longer than this.
_PATIENCE_SECONDS = 15.0
_AND = " and "
_MEET_SECONDS = 5.0


def probe(group: Group, activity: Activity, job: Job, bound: Mapping[str, str]) -> None:
    """Collect the facts of every host, and send them from rank 0 to the controller.

    The facts include which files each host finds on the target and in its local tier, and the rates of its network. All
    ranks call this together. ``bound`` is a client fact: the binding of this rank to cores.
    """
    store = load(job.area.opener)(job.area)
    own = host_facts(group.host, group.rank, store)
    answers = group.gather(replace(own, client={**own.client, **bound}))
    clocks = _clocks(group) if group.spans_hosts else {}
    lacking = group.gather((group.host, tuple(name for name in job.libraries if find_spec(name) is None)))
    views: list[TargetView] = []
    if job.sign:
        here = cast("StoreOfPaths", store).host_view()
        views = _files_visible_to_hosts(group, here, job.sign, min(_PATIENCE_SECONDS, job.deadline_seconds / 4))
    tiers: list[TierView] = []
    if job.local and job.tier_sign:
        tier = cast("StoreOfPaths", load(job.local.opener)(job.local)).host_view()
        tiers = _tiers_of_hosts(group, tier, job.tier_sign)
    # Ranks that wait for another job keep no file of the target open.
    store.close()
    networks = measured_networks(group, activity, job.streams) if job.streams and group.spans_hosts else {}
    if group.rank != 0:
        return
    hosts: dict[str, HostFacts] = {}
    for facts in answers:
        first = hosts.setdefault(facts.host, facts)
        if first is not facts:
            client = facts_of_all(first.client, facts.client)
            hosts[facts.host] = replace(first, ranks=(*first.ranks, *facts.ranks), client=client)
    all_facts = tuple(
        replace(facts, network=networks.get(host), client=facts.client | clocks.get(host, {}))
        for host, facts in hosts.items()
    )
    lacks = {host: names for host, names in lacking if names}
    activity.report(HostsSeen(hosts=all_facts, views=tuple(views), tiers=tuple(tiers), lacks=lacks))


def _clocks(group: Group) -> dict[str, dict[str, str]]:
    """Return on rank 0, for each host, the seconds by which its clock is ahead of the clock of rank 0's host.

    The seconds are whole numbers. A difference of 1 s counts as 0, because hosts read their clocks at slightly
    different times.
    """
    group.start_together()
    times = group.gather((group.host, time.time()))
    ahead = {host: round(now - times[0][1]) for host, now in reversed(times)}
    return {host: {CLOCK_AHEAD: str(seconds if abs(seconds) > 1 else 0)} for host, seconds in ahead.items()}


def facts_of_all(client: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """Return the combined facts of two ranks of a host.

    If the two ranks have different values of a fact, the combined fact contains both values. Gate tables reject such a
    fact, because every rank must meet a requirement.
    """
    combined = {}
    for name in {**client, **other}:
        listed = [*client.get(name, "not known").split(_AND), other.get(name, "not known")]
        combined[name] = _AND.join(dict.fromkeys(listed))
    return combined


def _files_visible_to_hosts(group: Group, here: AreaView, sign: Marker, seconds: float) -> list[TargetView]:
    """Return on rank 0 which files each host finds on the target: the controller's file and the next host's file.

    Each host creates a file on the target. ``sign`` describes the controller's file. ``seconds`` is the longest wait
    for a file.
    """
    leads = group.leads_host
    with here.shown(sign.of_rank(group.rank)) if leads else contextlib.nullcontext("") as reason:
        misses = here.instead_of(sign, seconds) if leads else ""
        # If a host does not see the controller's file, this is reported, and other hosts do not look for this host's
        # file.
        maker = (group.rank, group.host) if leads and not reason and not misses else None
        makers: list[tuple[int, str]] = group.share([maker for maker in group.gather(maker) if maker])
        view = _view(group, here, misses, reason) if leads else None
        if view and not misses and (next_host := _next_host(group.rank, makers)):
            rank, host = next_host
            view = replace(view, other=host, mismatch_of_other=here.instead_of(sign.of_rank(rank), seconds))
        # A file must stay until all other hosts have looked for it.
        return [view for view in group.gather(view) if view]


def _tiers_of_hosts(group: Group, here: AreaView, sign: Marker) -> list[TierView]:
    """Return on rank 0 a view of each host's local tier, with the names of the other hosts that share the tier.

    Each host creates a file, described by ``sign``, in its tier. If a host finds another host's file, the two hosts
    share the tier.
    """
    leads = group.leads_host
    with here.shown(sign.of_rank(group.rank)) if leads else contextlib.nullcontext("") as reason:
        maker = (group.rank, group.host) if leads and not reason else None
        makers: list[tuple[int, str]] = group.share([maker for maker in group.gather(maker) if maker])
        seen = None
        if leads:
            seen = TierView(
                host=group.host,
                free_bytes=here.free_bytes,
                unavailable_reason=reason,
                shared_with=tuple(
                    host
                    for rank, host in makers
                    if rank != group.rank and not here.instead_of(sign.of_rank(rank), seconds=0.0)
                ),
            )
        # A file must stay until all other hosts have looked for it.
        return [view for view in group.gather(seen) if view]


def _next_host(rank: int, makers: list[tuple[int, str]]) -> tuple[int, str] | None:
    """Return (rank, name) of the next host in the ring after the host of ``rank``; None without other hosts.

    ``makers`` contains (rank of the leader, host name) of each host that created a file, in ascending order.
    """
    others = [maker for maker in makers if maker[0] != rank]
    return next((maker for maker in others if maker[0] > rank), others[0] if others else None)


def _view(group: Group, here: AreaView, misses: str, reason: str) -> TargetView:
    return TargetView(
        host=group.host,
        package=__version__,
        mount=here.mount,
        is_directory=here.is_directory,
        misses=misses,
        cannot_write=reason,
    )


def host_facts(host: str, rank: int, store: Store) -> HostFacts:
    """Return the facts of this host. ``rank`` is the number of the rank that reports them. Memory is in bytes."""
    return HostFacts(
        host=host,
        ranks=(rank,),
        cpu=_cpu(),
        cores=os.cpu_count() or 0,
        memory_bytes=memory_of_host().get("MemTotal", 0),
        memory_available_bytes=memory_available_bytes(),
        kernel=f"{platform.system()} {platform.release()}",
        os=_os_name(),
        python=platform.python_version(),
        target_is_reached=store.is_reachable(),
        client=_client(store),
    )


def _client(store: Store) -> dict[str, str]:
    """Return the facts of this host as a client of the target. If the target has no paths, mount facts are omitted."""
    found = host_state()
    if host_view := getattr(store, "host_view", None):
        here = cast("AreaView", host_view())
        with contextlib.suppress(OSError):
            mount = here.mount
            found |= mount_state(mount.kind, mount.options) | version_state(mount.kind)
            found |= readahead_state(mount.kind, here.device)
    return found | numa_state(found.get("nic", ""), cores_of_this_process())


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"


@dataclass(frozen=True, kw_only=True, slots=True)
class _ListenAddress:
    """The address at which a host's leader accepts connections.

    If the leader cannot listen, ``port`` is 0 and ``unavailable_reason`` is set.
    """

    host: str
    addresses: tuple[str, ...] = ()
    port: int = 0
    unavailable_reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Flow:
    """The rate at which host ``receiver`` received data from host ``sender``.

    ``bytes_per_second`` is None if the rate could not be measured. ``over`` contains the addresses of both hosts.
    """

    sender: str
    receiver: str
    bytes_per_second: float | None
    over: str


def measured_networks(group: Group, activity: Activity, streams: Streams) -> dict[str, HostNetwork]:
    """Return {host: network rates} on rank 0, and an empty dictionary elsewhere.

    All ranks call this together. The call returns within seconds, even if the network fails.
    """
    meeting, offer = _meeting(group.host, streams) if group.leads_host else (None, None)
    offers: list[_ListenAddress] = group.share([offer for offer in group.gather(offer) if offer])
    flows: list[_Flow] = []
    if offer and len(offers) > 1:
        # Ranks that wait for others do not cause a delay, and this rank transfers no bytes of the target.
        with activity.wait():
            flows = _streamed(offers, offers.index(offer), meeting, streams)
    if meeting:
        meeting.close()
    gathered = group.gather(flows)
    every = [flow for of_rank in gathered for flow in of_rank]
    return {offer.host: _network_of(offer, every) for offer in offers} if group.rank == 0 else {}


def _meeting(host: str, streams: Streams) -> tuple[StreamListener | None, _ListenAddress]:
    try:
        meeting = StreamListener(bytes.fromhex(streams.token), streams.ports)
    except (UsageError, OSError) as error:
        return None, _ListenAddress(host=host, unavailable_reason=getattr(error, "what", "") or str(error))
    return meeting, _ListenAddress(host=host, addresses=meeting.addresses, port=meeting.port)


def _streamed(
    offers: list[_ListenAddress], place: int, meeting: StreamListener | None, streams: Streams
) -> list[_Flow]:
    """Exchange data with the next and the previous host in the ring.

    Return the rates at which this host received data from these hosts. ``offers`` contains the address of every host in
    ring order; this host is at index ``place``. Each host opens the connection to the next host. ``meeting`` accepts
    the connection of the previous host.
    """
    predecessor, here, successor = offers[place - 1], offers[place], offers[(place + 1) % len(offers)]
    token = bytes.fromhex(streams.token)
    called: list[socket.socket] = []
    answering = threading.Thread(target=lambda: called.extend(meeting.accepted(_MEET_SECONDS) if meeting else ()))
    answering.start()
    calling = connected(token, successor.addresses, successor.port) if successor.port else []
    answering.join()
    flows: list[_Flow] = []

    def stream(links: list[socket.socket], other: _ListenAddress, *, calls: bool) -> None:
        # After the other side has closed a stream, getpeername fails.
        ends = (links[0].getsockname()[0], links[0].getpeername()[0])
        rate = send_and_receive(links, streams.seconds, sends_first=calls)
        over = " and ".join(end.removeprefix("::ffff:") for end in ends)
        flows.append(_Flow(sender=other.host, receiver=here.host, bytes_per_second=rate, over=over))

    with closing(calling, called):
        both = [
            threading.Thread(target=stream, args=(links, other), kwargs={"calls": calls})
            for links, other, calls in ((calling, successor, True), (called, predecessor, False))
            if links
        ]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
    return flows


def _network_of(offer: _ListenAddress, flows: list[_Flow]) -> HostNetwork:
    """Return the highest send rate and the highest receive rate that were measured for a host.

    ``offer`` contains the host's address. ``flows`` are the measured rates between all hosts.
    """
    sends = [flow.bytes_per_second for flow in flows if flow.sender == offer.host and flow.bytes_per_second]
    receives = [flow.bytes_per_second for flow in flows if flow.receiver == offer.host and flow.bytes_per_second]
    over = next((flow.over for flow in flows if flow.receiver == offer.host), "")
    unseen = "" if sends and receives else offer.unavailable_reason or "no stream from or to another host came to be"
    return HostNetwork(
        basis="streams",
        sends_bytes_per_second=max(sends, default=None),
        receives_bytes_per_second=max(receives, default=None),
        over=over,
        unavailable_reason=unseen,
    )
