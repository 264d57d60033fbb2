"""HTTP requests to an object store, with persistent connections and retries.

Request bodies are sent from the caller's memory; answers are received into the caller's memory. Each thread has its own
connection. If the store reports a temporary error (such as 503), times out or drops the connection, the request is
retried after a random pause. The longest possible pause doubles with each attempt, up to 10 s. The class `Patience`
limits the retries. Every attempt is counted, and every answer is timed. All threads use one endpoint at a time. If this
endpoint does not answer or refuses connections, all threads switch to the next endpoint.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import http.client
import itertools
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pytest_ckpt.facts.requests import Tallies, Tally
from pytest_ckpt.facts.targets import Access
from pytest_ckpt.support import waits
from pytest_ckpt.targets.objects.authentication import Dialect, Endpoint, NoCredentialsError, encoded_query
from pytest_ckpt.targets.objects.errors import CutError, StoreError, is_cut, of_answer, of_connection, of_credentials

# Each send or receive of this many bytes counts as activity, which distinguishes a slow store from a silent one.
_PIECE_BYTES = 1 << 20
_MAXIMUM_ANSWER_BYTES = 16 << 20
_IDLE_SECONDS = 5.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 10.0
_NOTHING_AROUND = (b"", b"")
_BUSY_STATUSES = frozenset({429, 503})
# Errors that mean that an endpoint is unavailable; after a lost connection the client may reconnect.
_GONE = frozenset({errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH})


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """A client's timeouts for connections and answers, in seconds, and the number of attempts for a request.

    If ``bears`` is true, temporary errors (such as 503 or a broken connection) are retried for at least
    `Access.borne_seconds`. ``attempts`` is then the minimum number of attempts.
    """

    connect_seconds: float
    silent_seconds: float
    attempts: int
    bears: bool = False


OF_RANKS = Patience(connect_seconds=10, silent_seconds=50, attempts=5, bears=True)
"""All attempts at a silent endpoint together take about as long as a rank may make no progress, 300 s."""

OF_CONTROLLER = Patience(connect_seconds=5, silent_seconds=10, attempts=2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A store's answer to a request. The names of ``headers`` are in lower case.

    ``data`` is the body. If the body was read into the caller's memory, ``data`` is empty and ``read`` is the number of
    bytes.
    """

    headers: Mapping[str, str]
    data: bytes
    read: int = 0
    status: int = 200


class Wire:
    """Signed requests to one bucket, through one endpoint at a time; safe for several threads."""

    def __init__(self, dialect: Dialect, access: Access, patience: Patience) -> None:
        self._open: list[http.client.HTTPConnection] = []
        self._dialect, self._endpoints = dialect, dialect.endpoints
        self.region = dialect.region
        self._at = 0
        self._bundle, self._patience = access.ca_bundle, patience
        self._borne_seconds = access.borne_seconds if patience.bears else 0.0
        self._of_thread = threading.local()
        self._lock = threading.Lock()
        self._tallies: Tallies = {}

    @property
    def endpoint(self) -> str:
        """The URL to which requests are currently sent."""
        return self._endpoints[self._at].url

    def tallies(self) -> Tallies:
        """Return the counts of the requests so far, by endpoint and operation."""
        with self._lock:
            return copy.deepcopy(self._tallies)

    def request(
        self,
        action: str,
        method: str,
        place: str,
        *,
        key: str = "",
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        body: memoryview | bytes = b"",
        around: tuple[bytes, bytes] = _NOTHING_AROUND,
        into: memoryview | None = None,
        moved: Callable[[int], None] = lambda _count: None,
    ) -> Answer:
        """Send a request, retry it after temporary errors, and return the answer. Raises StoreError.

        If ``into`` is given, the body of the answer is read into this memory. The names ``action`` (the operation) and
        ``place`` appear in error messages. The two byte strings in ``around`` are sent before and after ``body``; the
        counts of transferred bytes exclude them. ``moved`` is called after each read into ``into``, with the number of
        bytes.
        """
        line = encoded_query(query)
        first_sent = time.monotonic()
        for attempt in itertools.count(1):
            at = self._at
            endpoint = self._endpoints[at]
            with self._lock:
                tally = self._tallies.setdefault((endpoint.url, action), Tally())
                tally.sent += 1
                tally.again += attempt > 1
            began = time.monotonic()
            try:
                sent = (method, key, line, headers or {}, body, around)
                answer = self._once(endpoint, action, *sent, into, moved, place)
            except StoreError as error:
                with self._lock:
                    if error.status:
                        tally.answered(time.monotonic() - began, 0)
                    tally.busy += error.status in _BUSY_STATUSES
                is_borne = began - first_sent < self._borne_seconds
                if not error.may_pass or (attempt >= self._patience.attempts and not is_borne):
                    raise
                if error.errno in _GONE or (error.errno == errno.ECONNRESET and attempt > 1):
                    self._leave(at)
            else:
                with self._lock:
                    tally.answered(time.monotonic() - began, len(body) + answer.read + len(answer.data))
                return answer
            longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0**attempt)
            pause = random.uniform(0, longest)
            with self._lock:
                tally.waited_seconds += pause
            waits.print_if_due()
            time.sleep(pause)
        raise AssertionError("there is always one more number")

    def _leave(self, at: int) -> None:
        """Switch to the endpoint after number ``at``, unless another thread has already switched."""
        with self._lock:
            if self._at == at:
                self._at = (at + 1) % len(self._endpoints)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open:
            connection.close()
        self._open, self._of_thread = [], threading.local()

    def __del__(self) -> None:
        """Close the connections that are still open when this object is garbage collected."""
        self.close()

    def _once(
        self,
        endpoint: Endpoint,
        action: str,
        method: str,
        key: str,
        query: str,
        headers: Mapping[str, str],
        body: memoryview | bytes,
        around: tuple[bytes, bytes],
        into: memoryview | None,
        moved: Callable[[int], None],
        place: str,
    ) -> Answer:
        path = self._dialect.path(endpoint.root, key)
        try:
            query, sent = self._dialect.signed(method, path, query, {**headers, "host": endpoint.netloc}, body)
        except NoCredentialsError as error:
            raise of_credentials(str(error), place) from None
        try:
            connection = self._connection(endpoint)
            response = self._send(connection, method, f"{path}?{query}" if query else path, sent, body, around)
            answered = {name.lower(): value for name, value in response.getheaders()}
            if into is not None and response.status in (200, 206):
                read, data = _read_into(response, into, moved), b""
            else:
                read, data = 0, response.read(_MAXIMUM_ANSWER_BYTES)
                if response.length and len(data) < _MAXIMUM_ANSWER_BYTES:
                    # A read with a maximum size does not show that the connection ended early.
                    raise CutError(len(data), len(data) + response.length, _first_offset(response))
            if not response.isclosed():
                # Unread data remain, which the next request would read.
                self._forget()
            # The idle time begins at the end of an answer; a long request is not idle.
            self._of_thread.used = time.monotonic()
        except (OSError, http.client.HTTPException) as error:
            self._forget()
            raise of_connection(error, action, place) from None
        # The completion of an upload may fail after the store has begun its answer.
        if response.status >= 300 or (method == "POST" and b"<Error>" in data[:1000]):
            # The error is not bound to a name, because with its traceback it would keep this frame and the callers'
            # buffers alive.
            raise of_answer(response.status, data, action, place, self._dialect.hidden())
        return Answer(headers=answered, data=data, read=read, status=response.status)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: memoryview | bytes,
        around: tuple[bytes, bytes],
    ) -> http.client.HTTPResponse:
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Accept-Encoding", "identity")
        for name, value in headers.items():
            connection.putheader(name, value)
        if body or method in ("PUT", "POST"):
            connection.putheader("Content-Length", str(len(around[0]) + len(body) + len(around[1])))
        connection.endheaders()
        # A store that refuses a request may answer and close before it has received the whole body.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for piece in (around[0], body, around[1]):
                for start in range(0, len(piece), _PIECE_BYTES):
                    connection.send(piece[start : start + _PIECE_BYTES])
        return connection.getresponse()

    def _connection(self, endpoint: Endpoint) -> http.client.HTTPConnection:
        now = time.monotonic()
        is_idle = now - getattr(self._of_thread, "used", now) > _IDLE_SECONDS
        if is_idle or getattr(self._of_thread, "endpoint", endpoint) is not endpoint:
            # The other side may have closed the connection in this time, which would only be noticed by a lost request.
            self._forget()
        self._of_thread.endpoint = endpoint
        connection: http.client.HTTPConnection | None = getattr(self._of_thread, "connection", None)
        if connection is None:
            if endpoint.is_tls:
                import ssl  # noqa: PLC0415 - it takes 5 MB of memory

                context = ssl.create_default_context(cafile=self._bundle or None)
                connection = http.client.HTTPSConnection(
                    endpoint.host, endpoint.port, timeout=self._patience.connect_seconds, context=context
                )
            else:
                connection = http.client.HTTPConnection(
                    endpoint.host, endpoint.port, timeout=self._patience.connect_seconds
                )
            self._of_thread.connection = connection
            with self._lock:
                self._open.append(connection)
        if connection.sock is None:
            connection.connect()
            if connection.sock is not None:
                connection.sock.settimeout(self._patience.silent_seconds)
        return connection

    def _forget(self) -> None:
        connection: http.client.HTTPConnection | None = getattr(self._of_thread, "connection", None)
        if connection is not None:
            connection.close()
            self._of_thread.connection = None
            with self._lock, contextlib.suppress(ValueError):
                self._open.remove(connection)


def _read_into(stated: http.client.HTTPResponse, view: memoryview, moved: Callable[[int], None]) -> int:
    """Read an answer's body into memory until the memory is full or the body ends; return the number of bytes.

    Raises CutError if the connection ends before the end of the body.
    """
    done, promised = 0, stated.length or 0
    try:
        while done < len(view) and (step := stated.readinto(view[done : done + _PIECE_BYTES])):
            done += step
            moved(step)
    except (OSError, http.client.HTTPException) as error:
        if not (promised and is_cut(error)):
            raise
        raise CutError(done, promised, _first_offset(stated)) from None
    if done < len(view) and stated.length:
        raise CutError(done, promised, _first_offset(stated))
    return done


def _first_offset(stated: http.client.HTTPResponse) -> int:
    """Return the object's offset at which an answer's body begins, from the header Content-Range.

    Without this header, the result is 0.
    """
    match = re.match(r"bytes (\d+)-", stated.getheader("content-range", ""))
    return int(match[1]) if match else 0
