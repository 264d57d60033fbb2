"""A second client of the same storage: a process on another host, or on a second mount of this one."""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.not_run import NotRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

AGENT = (sys.executable, "-m", "pytest_ckpt.conformance.posix.agent")
_ENDS_IN_SECONDS = 5.0


class Client:
    """Sends one request at a time to an agent and returns its answer.

    ``command`` starts the agent, on this host or through ``mpiexec`` or ``ssh`` on another; it is started with the
    first request and ends when its standard input is closed, so also when this process ends in whatever way.
    ``patience`` is how many seconds a request may take. ``tell`` is given each request before it is sent, so that one
    that blocks is named; ``name`` is what failure texts call the client.
    """

    def __init__(
        self,
        command: Sequence[str] = AGENT,
        *,
        name: str = "the second client",
        patience: float = 60.0,
        tell: Callable[[str, str], None] | None = None,
    ) -> None:
        self.name = name
        self.patience = patience
        self._command = tuple(command)
        self._tell = tell
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._requests = 0
        self._asked = ("", "")
        self._answer: dict[str, Any] | None = None

    def ask(self, action: str, path: str, *, patience: float | None = None, **details: Any) -> Any:
        """Have the agent do something and return what it answers.

        ``action`` is a function of ``actions``, or ``module:function`` of ``checks``. Raises OSError with the agent's
        errno when a call failed there, TimeoutError when it does not answer in time, NotRun when the agent is gone.
        """
        self.start(action, path, **details)
        return self.finish(patience=patience)

    def start(self, action: str, path: str, **details: Any) -> None:
        """Have the agent begin something, and return at once; ``finish`` or ``stop`` returns what it answers."""
        process = self._started()
        if self._tell:
            self._tell(f"{self.name}: {action}", path)
        self._requests += 1
        self._asked, self._answer = (action, path), None
        self._send(process, {"id": self._requests, "action": action, "path": path, "details": details})

    def answered(self) -> bool:
        """Return whether the agent has answered what was begun."""
        return self._answered_within(0.0)

    def finish(self, *, patience: float | None = None) -> Any:
        """Wait until what was begun has ended, and return its answer."""
        seconds = self.patience if patience is None else patience
        if not self._answered_within(seconds):
            action, path = self._asked
            raise TimeoutError(
                errno.ETIMEDOUT, f"{self.name} has not ended '{action}' within {seconds:g} s; the call may hang", path
            )
        assert self._answer is not None
        answer = self._answer
        if "errno" in answer:
            raise OSError(answer["errno"], answer["strerror"], answer["path"])
        if "traceback" in answer:
            raise RuntimeError(f"{self.name} failed in {self._asked[0]}:\n{answer['traceback']}")
        return answer["result"]

    def stop(self, *, patience: float | None = None) -> Any:
        """Tell a loop that was begun to end, wait for that, and return its answer."""
        self._send(self._started(), {"action": "stop"})
        return self.finish(patience=patience)

    def read(self, path: str) -> bytes:
        """Open, read all and close a file on the other client."""
        return decoded(self.ask("read", path))

    def write(self, path: str, data: bytes, **details: Any) -> None:
        """Open, write and close a file on the other client; details as in ``actions.write``."""
        self.ask("write", path, data=encoded(data), **details)

    def sees(self, path: str, *, seconds: float = 10.0) -> bool:
        """Return whether the other client finds a name, waiting so long for it: what a check begins with."""
        answer = self.ask("wait_until", path, look="exists", wanted=True, seconds=seconds, patience=seconds + 60)
        return bool(answer["agreed"])

    def close(self) -> None:
        """End the agent: by closing its input, by force where it does not end then."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(NotRun):  # It may have ended already.
            self._send(process, {"action": "end"})
        process.stdin.close()
        try:
            process.wait(_ENDS_IN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            try:
                process.wait(_ENDS_IN_SECONDS)
            except subprocess.TimeoutExpired:
                # A call into the storage holds it beyond signals: it ends when that call does.
                process.returncode = -9
        process.stdout.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            try:
                # Unbuffered: an answer is waited for with select, which sees nothing of a buffer.
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
                )
            except OSError as error:
                raise NotRun(f"{self.name} cannot be started: {' '.join(self._command)}: {error.strerror}") from None
        return self._process

    def _send(self, process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
        assert process.stdin is not None
        line = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while line:
                line = line[os.write(process.stdin.fileno(), line) :]
        except BrokenPipeError:
            raise self._gone(process) from None

    def _answered_within(self, seconds: float) -> bool:
        process = self._started()
        assert process.stdout is not None
        until = time.monotonic() + seconds
        while self._answer is None:
            line, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                self._take(line)
                continue
            if not select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                return False
            more = os.read(process.stdout.fileno(), 1 << 20)
            if not more:
                raise self._gone(process)
            self._unread += more
        return True

    def _take(self, line: bytes) -> None:
        """Keep the answer of the last request; what a launcher prints, and an answer that came too late, is nothing."""
        try:
            answer = json.loads(line)
        except ValueError:
            return
        if isinstance(answer, dict) and answer.get("id") == self._requests:
            self._answer = answer

    def _gone(self, process: subprocess.Popen[bytes]) -> NotRun:
        try:
            how = f"exit code {process.wait(_ENDS_IN_SECONDS)}"
        except subprocess.TimeoutExpired:
            how = "its output is closed"
        action, path = self._asked
        return NotRun(f"{self.name} has ended ({how}) in {action} of {path}: {' '.join(self._command)}")


def encoded(data: bytes) -> str:
    """Return bytes as they go through the pipe."""
    return base64.b64encode(data).decode()


def decoded(text: str) -> bytes:
    """Return what ``encoded`` was given."""
    return base64.b64decode(text)
