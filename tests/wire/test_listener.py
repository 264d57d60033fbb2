"""The connection from a process to its controller: a caller that does not authenticate is refused."""

from __future__ import annotations

import os
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.wire.addresses import from_text, own_addresses, to_text
from pytest_ckpt.wire.caller import Caller, NoConnection, call
from pytest_ckpt.wire.frames import CONTROLLER, GREETING, NONCE_BYTES, SECRET
from pytest_ckpt.wire.listener import ENDED, Connection, Listener
from tests.support.machine import eventually

MEBIBYTE = 1 << 20


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener(only_this_host=True) as opened:
        yield opened


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Listener], Caller]]:
    """Return a function that connects a caller to the listener and returns the caller.

    The function polls the listener until the caller is connected.
    """
    callers: list[Caller] = []

    def calling_listener(listener: Listener, **changed: str) -> Caller:
        for name, value in (listener.environment | changed).items():
            monkeypatch.setenv(name, value)
        found: list[Any] = []

        def try_it() -> None:
            try:
                found.append(call())
            except NoConnection as error:
                found.append(error)

        calling = threading.Thread(target=try_it)
        calling.start()
        while calling.is_alive():
            assert listener.take_messages() == []
            calling.join(0.001)
        if isinstance(found[0], NoConnection):
            raise found[0]
        callers.extend(found)
        return callers[-1]

    yield calling_listener
    for caller in callers:
        caller.close()


def taken_from(listener: Listener, count: int = 1) -> list[tuple[Connection, Any]]:
    found: list[tuple[Connection, Any]] = []
    while len(found) < count:
        select.select([listener], [], [])
        found += listener.take_messages()
    return found


def test_messages_of_both_sides_arrive_in_order_and_complete(listener: Listener, calls: Any) -> None:
    caller = calls(listener)
    words = ["hello", {"large": "y" * MEBIBYTE}, "end"]
    sending = threading.Thread(target=lambda: [caller.send(word) for word in words])
    sending.start()
    came = taken_from(listener, len(words))
    sending.join()
    assert [word for _, word in came] == words
    # More bytes than the network accepts at once, while no message arrives.
    rank = came[0][0]
    rank.send({"job": "x" * (8 * MEBIBYTE)})
    rank.send("and this")
    received: list[Any] = []
    receiving = threading.Thread(target=lambda: received.extend([caller.receive(), caller.receive()]))
    receiving.start()
    while receiving.is_alive():
        # The listener is used only when it is ready: a waiting process must not have to guess.
        if select.select([listener], [], [], 0.01)[0]:
            listener.take_messages()
    assert received == [{"job": "x" * (8 * MEBIBYTE)}, "and this"]
    assert not caller.has_more()
    caller.close()
    assert taken_from(listener) == [(rank, ENDED)]


def test_a_closed_connection_is_reported_to_the_caller(listener: Listener, calls: Any) -> None:
    caller = calls(listener)
    listener.close()
    with pytest.raises(EOFError):
        caller.receive()


def test_child_processes_do_not_inherit_the_secret(listener: Listener, calls: Any) -> None:
    calls(listener).close()
    assert not {CONTROLLER, SECRET} & set(os.environ)


def test_a_caller_with_another_secret_is_disconnected_and_reports_it(listener: Listener, calls: Any) -> None:
    with pytest.raises(NoConnection, match=r"127\.0\.0\.1 port \d+: another program answers|reset"):
        calls(listener, **{SECRET: bytes(32).hex()})
    assert listener.take_messages() == []


@pytest.mark.parametrize(
    "opening",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00" * 100,
        GREETING + bytes(NONCE_BYTES) + bytes(100),
        GREETING + bytes(NONCE_BYTES) + b"\xff\xff\xff\xff" + bytes(10_000),
        GREETING + bytes(NONCE_BYTES) + (40).to_bytes(4, "big") + bytes(40),
    ],
    ids=["another protocol", "zeros", "an impossible length", "a large message", "a message that is not sealed"],
)
def test_an_unauthenticated_caller_is_disconnected_and_delivers_no_data(
    listener: Listener, calls: Any, opening: bytes
) -> None:
    (address,) = from_text(listener.environment[CONTROLLER])
    caller = calls(listener)
    with socket.create_connection(address) as stranger:
        stranger.sendall(opening)
        answer = b""
        while piece := received(stranger, listener):
            answer += piece
    assert len(answer) <= len(GREETING) + NONCE_BYTES, "it learns of no message"
    caller.send("still here")
    assert [word for _, word in taken_from(listener)] == ["still here"]


def received(stranger: socket.socket, listener: Listener) -> bytes:
    while not select.select([stranger], [], [], 0.001)[0]:
        assert listener.take_messages() == []
    try:
        return stranger.recv(1 << 16)
    except ConnectionResetError:
        return b""


def test_a_program_that_pretends_to_be_the_controller_is_rejected(listener: Listener, calls: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as pretender:
        threading.Thread(target=answered, args=(pretender,), daemon=True).start()
        port = pretender.getsockname()[1]
        with pytest.raises(NoConnection, match="another program answers"):
            calls(listener, **{CONTROLLER: f"127.0.0.1:{port}"})
        # If the controller answers only at its second address, it is found there.
        caller = calls(listener, **{CONTROLLER: f"127.0.0.1:{port},{listener.environment[CONTROLLER]}"})
        caller.close()


def answered(pretender: socket.socket) -> None:
    while True:
        try:
            link, _ = pretender.accept()
            link.recv(1000)
            link.sendall(GREETING + bytes(NONCE_BYTES) + bytes(100))
            link.close()
        except OSError:
            return


def test_without_an_environment_the_error_names_the_variables_that_the_launcher_must_forward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(CONTROLLER, raising=False)
    with pytest.raises(NoConnection, match=r"PYTEST_CKPT_CONTROLLER is not in the environment: .*srun --export=ALL"):
        call()


def test_an_address_where_nobody_listens_is_named(listener: Listener, calls: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(NoConnection, match=rf"127\.0\.0\.1 port {port}: Connection refused\. Let the firewall"):
        calls(listener, **{CONTROLLER: f"127.0.0.1:{port}"})


def test_only_this_host_is_not_reached_from_the_network(listener: Listener) -> None:
    assert listener.environment[CONTROLLER].startswith("127.0.0.1:")
    port = from_text(listener.environment[CONTROLLER])[0][1]
    for address in own_addresses():
        with pytest.raises(OSError, match=r"refused|unreachable"):
            socket.create_connection((address, port), timeout=1)


def test_addresses_go_through_a_word_and_back() -> None:
    addresses = [("10.0.0.1", 4000), ("fd00::1", 4000)]
    assert to_text(addresses) == "10.0.0.1:4000,[fd00::1]:4000"
    assert from_text(to_text(addresses)) == addresses


def test_own_addresses_mean_this_host_elsewhere_too() -> None:
    found = own_addresses()
    assert not [address for address in found if address.startswith(("127.", "169.254.", "fe80", "::1"))]
    known = Path("/proc/net/fib_trie").read_text()
    assert all(address in known for address in found if ":" not in address)


def test_as_many_callers_as_are_awaited_may_be_there() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, before[1]))
    try:
        with Listener(only_this_host=True, callers=1000):
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 1000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_listener_takes_a_free_port_of_a_range_and_reports_a_full_range(
    calls: Callable[[Listener], Caller], free_ports: tuple[int, int]
) -> None:
    first, last = free_ports
    with Listener(ports=(first, last)) as one, Listener(ports=(first, last)) as two:
        at = [{port for _, port in from_text(of.environment[CONTROLLER])} for of in (one, two)]
        assert at == [{first}, {last}]
        assert calls(two)
        with pytest.raises(UsageError, match=f"--ckpt-ports {first}-{last}: no port of this range can be bound"):
            Listener(ports=(first, last))


@pytest.fixture
def free_ports() -> tuple[int, int]:
    """Return two consecutive free ports."""
    while True:
        with socket.create_server(("", 0)) as one:
            first: int = one.getsockname()[1]
        try:
            with socket.create_server(("", first)), socket.create_server(("", first + 1)):
                return first, first + 1
        except (OSError, OverflowError):
            continue


def test_the_caller_that_ended_first_is_known_even_if_polled_late(
    listener: Listener, calls: Callable[[Listener], Caller]
) -> None:
    """The listener knows which caller ended first, even if it polls only after both callers have ended.

    The order of polling does not show which caller ended first. A caller that sends data and ends last may be polled
    first, because its socket became ready when the data arrived.
    """
    first, second = calls(listener), calls(listener)
    second.send("unread")
    first.close()
    select.select([], [], [], 0.05)  # several ticks of the kernel's clock
    second.close()
    said: list[tuple[Connection, Any]] = []
    eventually(
        lambda: said.extend(listener.take_messages()) or [word for _, word in said].count(ENDED) == 2, "both have ended"
    )
    (late,) = (connection for connection, word in said if word == "unread")
    (early,) = {connection for connection, _ in said} - {late}
    assert early.ended < late.ended


def test_a_caller_whose_host_no_longer_acknowledges_data_counts_as_ended(
    listener: Listener, calls: Callable[[Listener], Caller]
) -> None:
    """A caller that does not acknowledge data counts as ended.

    If the host of a caller has died, the kernel reports ETIMEDOUT.
    """
    calls(listener).send("hello")
    ((rank, _),) = taken_from(listener)
    rank.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 100)
    rank.send("x" * (32 * MEBIBYTE))
    assert rank.has_unsent
    assert taken_from(listener) == [(rank, ENDED)]
    rank.send("nobody hears this")
    assert not rank.has_unsent


def test_silent_callers_are_disconnected_oldest_first(listener: Listener, calls: Callable[[Listener], Caller]) -> None:
    caller = calls(listener)
    strangers = [connected_to(listener) for _ in range(300)]
    # The first strangers are dropped before the last ones are answered.
    assert received(strangers[0], listener) == b""
    strangers[-1].sendall(GREETING + bytes(NONCE_BYTES))
    assert received(strangers[-1], listener).startswith(GREETING)
    open_still = sum(not select.select([stranger], [], [], 0)[0] for stranger in strangers[:-1])
    assert open_still < 150
    # Strangers do not displace an expected caller.
    caller.send("still here")
    assert [word for _, word in taken_from(listener)] == ["still here"]
    for stranger in strangers:
        stranger.close()


def connected_to(listener: Listener) -> socket.socket:
    (address,) = from_text(listener.environment[CONTROLLER])
    return socket.create_connection(address)


def test_an_unauthenticated_caller_is_disconnected_after_some_seconds(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_ckpt.wire.listener._UNAUTHENTICATED_SECONDS", 0.05)
    with connected_to(listener) as stranger:
        assert received(stranger, listener) == b""


@pytest.fixture
def nothing_more_may_be_opened(listener: Listener) -> Iterator[Callable[[], None]]:
    """Return a function that prevents this process from opening further files until the end of the test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def shut() -> None:
        with socket.socket() as lowest_free:
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free.fileno(), hard))

    yield shut
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_free_descriptors_the_oldest_unauthenticated_caller_is_disconnected(
    listener: Listener, nothing_more_may_be_opened: Callable[[], None]
) -> None:
    with connected_to(listener) as oldest, connected_to(listener) as younger:
        for _ in range(2):
            select.select([listener], [], [])
            listener.take_messages()
        with connected_to(listener) as next_one:
            next_one.sendall(GREETING + bytes(NONCE_BYTES))
            nothing_more_may_be_opened()
            assert received(next_one, listener).startswith(GREETING)
        assert received(oldest, listener) == b""
        assert not select.select([younger], [], [], 0)[0]


def test_a_listener_without_free_descriptors_waits_and_continues(
    listener: Listener,
    calls: Callable[[Listener], Caller],
    nothing_more_may_be_opened: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pytest_ckpt.wire.listener._FULL_SECONDS", 3600.0)
    caller = calls(listener)
    with connected_to(listener) as next_one:
        next_one.sendall(GREETING + bytes(NONCE_BYTES))
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        nothing_more_may_be_opened()
        select.select([listener], [], [])
        listener.take_messages()
        assert not select.select([listener], [], [], 0)[0], "who waits for it would spin"
        caller.send("still heard")
        assert [word for _, word in taken_from(listener)] == ["still heard"]
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        later = time.monotonic() + 3601
        monkeypatch.setattr("pytest_ckpt.wire.listener.time.monotonic", lambda: later)
        assert received(next_one, listener).startswith(GREETING)
