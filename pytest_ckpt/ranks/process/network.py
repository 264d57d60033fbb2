"""Measures the network of each host, all at once: each streams to the next in a ring, and back."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.environment import HostNetwork
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.wire.streams import Meeting, both_ways, closing, connected

if TYPE_CHECKING:
    import socket

    from pytest_ckpt.facts.environment import Streams
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group

_MEET_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Offer:
    """Where the host of a leading rank listens; port 0: nowhere, for the reason ``why_not``."""

    host: str
    addresses: tuple[str, ...] = ()
    port: int = 0
    why_not: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Flow:
    """What one host received of another."""

    sender: str
    receiver: str
    bytes_per_second: float | None
    over: str


def measured_networks(group: Group, activity: Activity, streams: Streams) -> dict[str, HostNetwork]:
    """Return on rank 0 what the network of each host carries, and an empty table elsewhere.

    Called by all ranks together; it ends within seconds, whatever the network does.
    """
    meeting, offer = _meeting(group.host, streams) if group.leads_host else (None, None)
    offers: list[_Offer] = group.share([offer for offer in group.gather(offer) if offer])
    flows: list[_Flow] = []
    if offer and len(offers) > 1:
        # Ranks that wait for others are not the ones to blame, and this one moves no byte of the target.
        with activity.wait():
            flows = _streamed(offers, offers.index(offer), meeting, streams)
    if meeting:
        meeting.close()
    gathered = group.gather(flows)
    every = [flow for of_rank in gathered for flow in of_rank]
    return {offer.host: _network_of(offer, every) for offer in offers} if group.rank == 0 else {}


def _meeting(host: str, streams: Streams) -> tuple[Meeting | None, _Offer]:
    try:
        meeting = Meeting(bytes.fromhex(streams.token), streams.ports)
    except (UsageError, OSError) as error:
        return None, _Offer(host=host, why_not=getattr(error, "what", "") or str(error))
    return meeting, _Offer(host=host, addresses=meeting.addresses, port=meeting.port)


def _streamed(offers: list[_Offer], place: int, meeting: Meeting | None, streams: Streams) -> list[_Flow]:
    """Stream with the next host as the one who calls, and with the one before as the one who is called."""
    before, here, behind = offers[place - 1], offers[place], offers[(place + 1) % len(offers)]
    token = bytes.fromhex(streams.token)
    called: list[socket.socket] = []
    answering = threading.Thread(target=lambda: called.extend(meeting.accepted(_MEET_SECONDS) if meeting else ()))
    answering.start()
    calling = connected(token, behind.addresses, behind.port) if behind.port else []
    answering.join()
    flows: list[_Flow] = []

    def stream(links: list[socket.socket], other: _Offer, *, calls: bool) -> None:
        # Once the other side has closed it, a stream has no peer any more.
        ends = (links[0].getsockname()[0], links[0].getpeername()[0])
        rate = both_ways(links, streams.seconds, sends_first=calls)
        over = " and ".join(end.removeprefix("::ffff:") for end in ends)
        flows.append(_Flow(sender=other.host, receiver=here.host, bytes_per_second=rate, over=over))

    with closing(calling, called):
        both = [
            threading.Thread(target=stream, args=(links, other), kwargs={"calls": calls})
            for links, other, calls in ((calling, behind, True), (called, before, False))
            if links
        ]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
    return flows


def _network_of(offer: _Offer, flows: list[_Flow]) -> HostNetwork:
    """Return the most that a host was seen to send, and to receive."""
    sends = [flow.bytes_per_second for flow in flows if flow.sender == offer.host and flow.bytes_per_second]
    receives = [flow.bytes_per_second for flow in flows if flow.receiver == offer.host and flow.bytes_per_second]
    over = next((flow.over for flow in flows if flow.receiver == offer.host), "")
    unseen = "" if sends and receives else offer.why_not or "no stream from or to another host came to be"
    return HostNetwork(
        basis="streams",
        sends_bytes_per_second=max(sends, default=None),
        receives_bytes_per_second=max(receives, default=None),
        over=over,
        why_not=unseen,
    )
