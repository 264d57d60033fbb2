"""Another client of the same storage: a process on another host, or a process on this host.

A process on this host uses the same mount or a second mount of the storage.
"""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from pytest_ckpt.conformance.actions import READY, decoded, encoded
from pytest_ckpt.conformance.context import NotRun
from pytest_ckpt.support import waits
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.wire.listener import ENDED, Connection, Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# The agent imports modules from the current directory only if its check does.
SAFE_PATH = ("-P",) if sys.flags.safe_path else ()
AGENT = (sys.executable, *SAFE_PATH, "-m", "pytest_ckpt.conformance.agent")
_STARTS_IN_SECONDS = 60.0
_ENDS_IN_SECONDS = 5.0
_TICK_SECONDS = 0.25


class Client:
    """A second client: sends one request at a time to an agent, and returns the answer.

    ``command`` starts the agent, on this host or through ``mpiexec`` or ``srun`` on another host. The command must
    forward its environment variables, which contain the address for the agent's connection. ``ports`` is the range of
    ports for this address. The first request starts the agent. The agent ends when the connection or this process ends.

    ``patience`` is the timeout of a request in seconds. ``report_call`` is called before each request, so that a
    blocked request can be reported. ``name`` is used in failure texts.
    """

    def __init__(
        self,
        command: Sequence[str] = AGENT,
        *,
        name: str = "the second client",
        patience: float = 60.0,
        report_call: Callable[[str, str], None] | None = None,
        ports: tuple[int, int] | None = None,
    ) -> None:
        self.name = name
        self.patience = patience
        self._command = tuple(command)
        self._report_call = report_call
        self._ports = ports
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: Listener | None = None
        self._agent: Connection | None = None
        self._is_gone = False
        self._requests = 0
        self._request = ("", "")
        self._answer: dict[str, Any] | None = None

    def request(self, action: str, path: str, *, patience: float | None = None, **details: Any) -> Any:
        """Have the agent perform an action and return its answer.

        ``action`` is a function of ``actions``, or ``module:function`` of the checks. Raises OSError with the agent's
        errno if a call failed, TimeoutError if the agent does not answer in time, and NotRun if the agent has ended.
        """
        self.start(action, path, **details)
        return self.finish(patience=patience)

    def start(self, action: str, path: str, **details: Any) -> None:
        """Have the agent begin an action, and return immediately. ``finish`` or ``stop`` returns the answer."""
        if self._report_call:
            self._report_call(f"{self.name}: {action}", path)
        self._request = (action, path)
        self._started()
        self._requests += 1
        self._answer = None
        self._send({"id": self._requests, "action": action, "path": path, "details": details})

    def answered(self) -> bool:
        """Return whether the agent has answered the current action."""
        return self._answered_within(0.0)

    def finish(self, *, patience: float | None = None) -> Any:
        """Wait until the current action has ended, and return its answer. Raises the same errors as ``request``."""
        seconds = self.patience if patience is None else patience
        if not self._answered_within(seconds):
            action, path = self._request
            raise TimeoutError(
                errno.ETIMEDOUT, f"{self.name} has not ended '{action}' within {seconds:g} s; the call may hang", path
            )
        assert self._answer is not None
        answer = self._answer
        if "errno" in answer:
            raise OSError(answer["errno"], answer["strerror"], answer["path"])
        if "traceback" in answer:
            raise RuntimeError(f"{self.name} failed in {self._request[0]}:\n{answer['traceback']}")
        return answer["result"]

    def stop(self, *, patience: float | None = None) -> Any:
        """Stop the loop of the current action, wait until the action has ended, and return its answer."""
        self._send({"action": "stop"})
        return self.finish(patience=patience)

    def read(self, path: str) -> bytes:
        """Have the agent open a file, read it to its end and close it. Return its bytes."""
        return decoded(self.request("read", path))

    def write(self, path: str, data: bytes, **details: Any) -> None:
        """Have the agent open a file, write ``data`` and close it. ``details`` are arguments of `actions.write`."""
        self.request("write", path, data=encoded(data), **details)

    def sees(self, path: str, *, seconds: float = 10.0) -> bool:
        """Return whether the agent sees the name ``path`` within ``seconds``."""
        answer = self.request("wait_until", path, query="exists", wanted=True, seconds=seconds, patience=seconds + 60)
        return bool(answer["agreed"])

    def close(self) -> None:
        """End the agent: close the connection, and kill the agent's process if it does not end."""
        process, self._process = self._process, None
        if process is None:
            return
        assert self._listener
        assert process.stdout
        # A launcher may have to end more than the agent, so it is given time.
        self._listener.close()
        try:
            process.wait(_ENDS_IN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            try:
                process.wait(_ENDS_IN_SECONDS)
            except subprocess.TimeoutExpired:
                # During a call into the storage the agent ignores signals; it ends when the call returns.
                process.returncode = -9
        process.stdout.close()

    def _started(self) -> None:
        """Start the agent if necessary, and wait until it has connected. Raises NotRun if it does not connect."""
        if self._process is None:
            try:
                self._listener = Listener(only_this_host=self._command[0] == sys.executable, ports=self._ports)
            except UsageError as error:
                raise NotRun(f"{self.name} cannot call back: {error}") from None
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    # Unbuffered, because select does not see the content of a buffer.
                    stdout=subprocess.PIPE,
                    bufsize=0,
                    env=os.environ | self._listener.environment,
                )
            except OSError as error:
                self._listener.close()
                raise NotRun(f"{self.name} cannot be started: {' '.join(self._command)}: {error.strerror}") from None
        if not self._within(_STARTS_IN_SECONDS, lambda: self._agent is not None):
            raise NotRun(
                f"{self.name} was started and has not called back within {_STARTS_IN_SECONDS:g} s: "
                f"{' '.join(self._command)}"
            )

    def _send(self, message: dict[str, Any]) -> None:
        assert self._agent
        self._agent.send(message)
        # Read until no output is left: the agent may block on writing before the next read.
        self._within(float("inf"), lambda: self._agent is not None and not self._agent.has_unsent)

    def _answered_within(self, seconds: float) -> bool:
        self._started()
        return self._within(seconds, lambda: self._answer is not None)

    def _within(self, seconds: float, is_so: Callable[[], bool]) -> bool:
        """Process messages until ``is_so`` returns true. Return whether ``is_so`` returned true within ``seconds``.

        Raises NotRun if the agent ends.
        """
        assert self._process
        assert self._listener
        until = time.monotonic() + seconds
        while not is_so():
            if self._is_gone:
                raise self._ended(self._process)
            waited_for: list[Any] = [self._listener, self._process.stdout]
            left = until - time.monotonic()
            ready, _, _ = select.select(waited_for, [], [], max(0.0, min(left, _TICK_SECONDS)))
            if not ready and left <= 0:
                return False
            waits.print_if_due()
            self._receive(ready)
        return True

    def _receive(self, ready: list[Any]) -> None:
        """Process the messages of the agent, and record the end of its connection or of its output.

        ``ready`` lists the files with input. Lines on the agent's output are ignored.
        """
        assert self._process
        assert self._process.stdout
        assert self._listener
        for caller, message in self._listener.take_messages():
            if message is ENDED:
                self._is_gone = self._is_gone or caller is self._agent
            elif message == READY:
                self._agent = caller
            elif message["id"] == self._requests:
                # A late answer has another number and is ignored.
                self._answer = message
        if self._process.stdout in ready and not os.read(self._process.stdout.fileno(), 1 << 16):
            self._is_gone = True

    def _ended(self, process: subprocess.Popen[bytes]) -> NotRun:
        try:
            how = f"exit code {process.wait(_ENDS_IN_SECONDS)}"
        except subprocess.TimeoutExpired:
            how = "its connection is closed"
        action, path = self._request
        return NotRun(f"{self.name} has ended ({how}) in {action} of {path}: {' '.join(self._command)}")
