"""Streams that measure a network: either all streams connect or none.

Callers of other runs are refused, and every wait has a time limit.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.wire import streams
from pytest_ckpt.wire.streams import STREAMS, StreamListener, closing, connected, send_and_receive

TOKEN, OTHER = b"t" * 32, b"o" * 32
HERE = ("127.0.0.1",)
SECONDS = 1.0


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each handshake a minute: a busy machine can pause a process for seconds."""
    monkeypatch.setattr(streams, "_PROOF_SECONDS", 60.0)
    monkeypatch.setattr(streams, "_CONNECT_SECONDS", 60.0)


@contextlib.contextmanager
def meeting(ports: tuple[int, int] | None = None) -> Iterator[StreamListener]:
    made = StreamListener(TOKEN, ports)
    try:
        yield made
    finally:
        made.close()


def met(
    place: StreamListener, token: bytes = TOKEN, seconds: float = 60.0
) -> tuple[list[socket.socket], list[socket.socket]]:
    """Connect streams to a listener; return (streams of the caller, streams of the listener)."""
    called: list[socket.socket] = []
    answering = threading.Thread(target=lambda: called.extend(place.accepted(seconds)))
    answering.start()
    calling = connected(token, HERE, place.port)
    answering.join()
    return calling, called


def test_both_sides_learn_what_they_received_in_both_directions() -> None:
    with meeting() as place:
        calling, called = met(place)
    assert (len(calling), len(called)) == (STREAMS, STREAMS)
    rates: dict[str, float | None] = {}
    with closing(calling, called):
        there = threading.Thread(
            target=lambda: rates.update(called=send_and_receive(called, SECONDS, sends_first=False))
        )
        there.start()
        rates["calling"] = send_and_receive(calling, SECONDS, sends_first=True)
        there.join()
    assert all(rate and rate > 0 for rate in rates.values()), rates
    assert set(rates) == {"calling", "called"}


def test_a_caller_without_the_secret_gets_no_stream_and_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_PROOF_SECONDS", 0.1)
    with meeting() as place:
        silent = socket.create_connection((*HERE, place.port))
        assert met(place, OTHER, seconds=0.5) == ([], [])
        monkeypatch.setattr(streams, "_PROOF_SECONDS", 60.0)
        with closing([silent]):
            calling, called = met(place)
    with closing(calling, called):
        assert (len(calling), len(called)) == (STREAMS, STREAMS)


def test_a_host_that_swallows_or_refuses_what_is_sent_there_costs_seconds_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "_CONNECT_SECONDS", 0.3)
    with socket.create_server((*HERE, 0)) as never_answers:
        assert connected(TOKEN, HERE, never_answers.getsockname()[1]) == []
    assert connected(TOKEN, HERE, 1) == []
    with meeting() as place:
        assert place.accepted(0.1) == []


def test_a_stream_that_breaks_is_no_rate() -> None:
    with meeting() as place:
        calling, called = met(place)
    with closing(called):
        for link in calling:
            link.close()
        assert send_and_receive(called, SECONDS, sends_first=False) is None


def test_only_the_ports_that_may_be_used_are_listened_at() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"--ckpt-ports {port}-{port}"):
            StreamListener(TOKEN, (port, port))
    with meeting((port, port)) as place:
        assert place.port == port
