"""The connecting side: a rank, or a second client's process (agent), connects to the process that started it.

This module imports only the standard library.
"""

from __future__ import annotations

import os
import queue
import secrets
import select
import socket
import threading
from typing import TYPE_CHECKING, Any

from pytest_ckpt.wire.addresses import from_text
from pytest_ckpt.wire.frames import (
    CONTROLLER,
    GREETING,
    NONCE_BYTES,
    SECRET,
    ForgedMessage,
    FrameReader,
    Seal,
    exactly,
    framed,
    seals,
)

if TYPE_CHECKING:
    from pytest_ckpt.wire.addresses import Address

_CALL_SECONDS = 20.0
_TURN_SECONDS = 0.25
_READ_BYTES = 1 << 18
_PROBES = 6


class NoConnection(Exception):  # noqa: N818 - the name states what is missing
    """No process that knows the secret answers, so there is no connection. The message states reason and remedy."""


class Caller:
    """A connection, opened by `call`, to the process that started this process through a launcher."""

    def __init__(self, link: socket.socket, seal: Seal, unframed: FrameReader) -> None:
        self._link = link
        self._seal = seal
        self._unframed = unframed
        self._turn = threading.Lock()

    def send(self, message: Any) -> None:
        """Send a message. Safe for several threads. Raises OSError if the other side has ended."""
        with self._turn:
            self._link.sendall(framed(self._seal, message))

    def receive(self) -> Any:
        """Wait for the next message. Raises EOFError at the end of the connection."""
        while not self._unframed.is_complete():
            self._more()
        return self._unframed.message()

    def has_more(self) -> bool:
        """Return whether a message or other unread data has arrived, or the connection has ended."""
        return self._unframed.is_complete() or bool(select.select([self._link], [], [], 0)[0])

    def set_timeout(self, seconds: float) -> None:
        """Let the connection end if the other host does not acknowledge data or keep-alive probes for ``seconds``.

        Without this limit, a process that is disconnected from the network would wait for about 15 minutes.
        """
        each = max(1, int(seconds / _PROBES))
        options = {
            socket.TCP_USER_TIMEOUT: int(seconds * 1000),
            socket.TCP_KEEPIDLE: each,
            socket.TCP_KEEPINTVL: each,
            socket.TCP_KEEPCNT: _PROBES,
        }
        for option, value in options.items():
            self._link.setsockopt(socket.IPPROTO_TCP, option, value)
        self._link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _more(self) -> None:
        try:
            data = self._link.recv(_READ_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            raise EOFError("the connection to the controller has ended")
        self._unframed.add(data)


def call() -> Caller:
    """Connect to the addresses in the environment; return the first connection to a process that knows the secret.

    The variables with addresses and secret are removed from the environment, because child processes do not need the
    secret. Raises NoConnection.
    """
    text, secret = (os.environ.pop(name, "") for name in (CONTROLLER, SECRET))
    if not (text and secret):
        raise NoConnection(
            f"{CONTROLLER} is not in the environment: the launcher does not pass the environment on, or this process "
            "was started by hand. Make the launcher pass the environment on (srun --export=ALL, mpiexec -x)."
        )
    addresses = from_text(text)
    answers: queue.SimpleQueue[Caller | str] = queue.SimpleQueue()
    over = threading.Event()
    for turn, address in enumerate(addresses):
        # Concurrently, because an address of another network may silently drop packets.
        words = (address, bytes.fromhex(secret), turn * _TURN_SECONDS, answers, over)
        threading.Thread(target=_try, args=words, name=f"call {address[0]}", daemon=True).start()
    whys = []
    for _ in addresses:
        answer = answers.get()
        if isinstance(answer, Caller):
            over.set()
            return answer
        whys.append(answer)
    raise NoConnection(
        f"{socket.gethostname()} does not reach the host that started the run: {'; '.join(whys)}. Let the firewall "
        "between them pass TCP connections to that host; launchers need them, too."
    )


def _try(
    address: Address, secret: bytes, turn: float, answers: queue.SimpleQueue[Caller | str], over: threading.Event
) -> None:
    if over.wait(turn):
        return
    try:
        caller = _connected(address, secret)
    except (OSError, ForgedMessage, EOFError, ValueError) as error:
        why = (
            "timed out"
            if isinstance(error, TimeoutError)
            else getattr(error, "strerror", "") or "another program answers"
        )
        answers.put(f"{address[0]} port {address[1]}: {why}")
    else:
        answers.put(caller)


def _connected(address: Address, secret: bytes) -> Caller:
    link = socket.create_connection(address, timeout=_CALL_SECONDS)
    try:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ours = secrets.token_bytes(NONCE_BYTES)
        link.sendall(GREETING + ours)
        answer = exactly(link, len(GREETING) + NONCE_BYTES)
        if not answer.startswith(GREETING):
            raise ForgedMessage
        seal, to_caller = seals(secret, ours + answer[len(GREETING) :])
        caller = Caller(link, seal, FrameReader(to_caller))
        caller.send(None)
        if caller.receive() != "welcome":
            raise ForgedMessage
        link.settimeout(None)
    except BaseException:
        link.close()
        raise
    return caller
