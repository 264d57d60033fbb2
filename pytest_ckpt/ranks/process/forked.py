"""A process that a rank forks in order to kill it.

The process has no MPI, and reports its progress by single letters. Some engines save collectively, so the forked
processes of all ranks form a separate group. The ranks relay the messages of this group. In each collective call, every
forked process passes a value to its rank. When all ranks have received the values, the ranks exchange them, and each
rank sends all values to its process. A process that waits for a killed process is killed too.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_ckpt.support.die_with_parent import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.targets.protocol import Buffer


class ForkedProcess:
    """A forked child process that runs ``work(send, receive, group)``.

    ``send(letter)`` sends a letter to the parent. ``receive()`` waits for a letter from the parent and returns it.
    ``group`` is the group of the children of all ``ranks``. The child is killed if its parent ends. When ``work``
    returns or raises an error, the child ends.
    """

    def __init__(self, ranks: Group, work: Callable[[Callable[[str], None], Callable[[], str], Group], None]) -> None:
        self._received, self._has_ended = "", False
        self._messages: list[Any] = []
        self._connection, of_child = multiprocessing.Pipe()
        self._from_child, to_parent = os.pipe()
        from_parent, self._to_child = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            code = 1
            try:
                die_with_parent()
                os.close(self._from_child)
                os.close(self._to_child)
                self._connection.close()
                group = ForkedGroup(ranks, of_child)
                work(lambda letter: _write(to_parent, letter), lambda: os.read(from_parent, 1).decode(), group)
                code = 0
            except BaseException as error:
                with contextlib.suppress(OSError):
                    _write(to_parent, f"!{type(error).__name__}: {error}\n")
            finally:
                os._exit(code)
        os.close(to_parent)
        os.close(from_parent)
        of_child.close()
        os.set_blocking(self._from_child, False)

    def poll(self) -> str:
        """Receive letters from the child, without waiting. Return all letters that the child has sent so far."""
        with contextlib.suppress(BlockingIOError):
            self._received += os.read(self._from_child, 1 << 12).decode(errors="replace")
        return self.sent

    @property
    def sent(self) -> str:
        """All letters that were received from the child so far, without its error message."""
        return self._received.partition("!")[0]

    @property
    def error(self) -> str:
        """The child's error message; empty if there is none."""
        return self._received.partition("!")[2].strip()

    def send(self, letter: str) -> None:
        """Send a letter to the child."""
        with contextlib.suppress(BrokenPipeError):
            _write(self._to_child, letter)

    def is_waiting(self) -> bool:
        """Return whether the child waits in a collective call of its group. Return False if the child has ended."""
        if not self._messages and not self._has_ended and self._connection.poll():
            try:
                self._messages.append(self._connection.recv())
            except (EOFError, OSError):
                self._has_ended = True
        return bool(self._messages)

    def next_value(self) -> Any:
        """Return the value that the waiting child passes in its collective call. Call this once per collective call."""
        return self._messages.pop()

    def answer(self, found: list[Any]) -> None:
        """Send the values of all children, ``found``, to the child. The child's collective call then returns."""
        with contextlib.suppress(OSError):
            self._connection.send(found)

    def kill(self) -> None:
        """Kill the child, receive its last letters, and close its pipes."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self.poll()
        os.close(self._from_child)
        os.close(self._to_child)
        self._connection.close()


def _write(descriptor: int, text: str) -> None:
    os.write(descriptor, text.encode())


def complete_collective(group: Group, child: ForkedProcess) -> None:
    """Complete a collective call of the children if the children of all ranks wait in it.

    All ranks call this together. Each child receives the values of all children. ``child`` is this rank's child.
    """
    if not group.any_of(not child.is_waiting()):
        child.answer(group.share(group.gather(child.next_value())))


class ForkedGroup:
    """The group of the forked processes, one per rank. Only one thread of a process may call the methods."""

    def __init__(self, ranks: Group, connection: Connection) -> None:
        self._connection = connection
        self.rank, self.size, self.host = ranks.rank, ranks.size, ranks.host
        self.leads_host, self.spans_hosts = ranks.leads_host, ranks.spans_hosts
        self.ranks_of_host = ranks.ranks_of_host

    def duplicate(self, activity: Activity) -> ForkedGroup:
        """Return this group itself, because a forked process does no concurrent work during a save."""
        del activity
        return self

    def wait(self) -> None:
        """Wait until all processes have called this."""
        self._all(None)

    def start_together(self) -> None:
        """Wait until all processes have called this."""
        self.wait()

    def gather(self, value: Any) -> list[Any]:
        """Return every process's value on rank 0, in rank order, and an empty list elsewhere."""
        values = self._all(value)
        return values if self.rank == 0 else []

    def share(self, value: Any) -> Any:
        """Return rank 0's value on every process."""
        return self._all(value if self.rank == 0 else None)[0]

    def exchange(self, outgoing: Sequence[tuple[int, Buffer]], incoming: Sequence[tuple[int, Buffer]]) -> None:
        """Send each outgoing buffer to a process, and fill each incoming buffer with data that a process has sent.

        ``outgoing`` contains (rank of receiver, buffer), ``incoming`` contains (rank of sender, buffer). Messages
        between two processes are received in the order of sending.
        """
        messages = self._all([(rank, bytes(data)) for rank, data in outgoing])
        sent = [[data for to, data in of_rank if to == self.rank] for of_rank in messages]
        for rank, data in incoming:
            memoryview(data).cast("B")[:] = sent[rank].pop(0)

    def host_sum(self, value: int) -> int:
        """Return the sum of ``value`` over the processes of this host."""
        return sum(other for host, other in self._all((self.host, value)) if host == self.host)

    def largest(self, value: int) -> int:
        """Return the largest value of all processes."""
        return int(max(self._all(value)))

    def from_host_leader(self, value: Any) -> Any:
        """Return the value of the host leader's process, on every process of its host."""
        values = self._all((self.host, self.leads_host, value))
        return next(other for host, leads, other in values if leads and host == self.host)

    def any_of(self, value: bool) -> bool:
        """Return whether the value is true on any process."""
        return any(self._all(value))

    def leave(self) -> NoReturn:
        """End this process after all processes have called this."""
        self.wait()
        os._exit(0)

    def abort(self) -> None:
        """End this process immediately. The rank of this process notices the end."""
        os._exit(1)

    def _all(self, value: Any) -> list[Any]:
        self._connection.send(value)
        values: list[Any] = self._connection.recv()
        return values
