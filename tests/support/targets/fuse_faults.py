"""The base class of faults, the table of all faults, and the file system that applies the enabled faults.

A fault is a class, and its docstring is the description of the fault. The class attributes are parameters with their
defaults. The class has one method for each operation that the fault affects, with the name of the operation. The
arguments of such a method are a function that continues the operation, the call, and the arguments of the operation.
The keywords of the class are ``name`` and the columns of its row in the fault matrix (see `matrix.row`).
"""

from __future__ import annotations

import fnmatch
import functools
import inspect
import os
import stat
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

from tests.support.targets.fuse_nodes import Handle, Node
from tests.support.targets.fuse_passthrough import Passthrough
from tests.support.targets.fuse_protocol import Session

FAULTS: dict[str, type[Fault]] = {}

Proceed = Callable[..., Any]
_END_SECONDS = 5.0
FIRST, SECOND = 0, 1
OPERATIONS = frozenset(
    name for name, member in vars(Passthrough).items() if inspect.isfunction(member) and not name.startswith("_")
)


def is_file(parent: Node, name: bytes) -> bool:
    """Return whether a name in the directory ``parent`` refers to a regular file."""
    assert parent.fd is not None
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=parent.fd, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def paths_of(fs: Passthrough, arguments: tuple[Any, ...]) -> list[str]:
    """Return all paths in the arguments of an operation, relative to the root."""
    found = []
    for one, following in zip(arguments, (*arguments[1:], None), strict=True):
        node = one.node if isinstance(one, Handle) else one
        if isinstance(node, Node):
            found.append(fs.nodes.path_of(node, following if isinstance(following, bytes) else None))
    return found


class Fault:
    """Base class of faults. A fault affects only paths that match ``path``.

    If ``client`` is not None, the fault affects only this client (0 or 1).
    """

    name: ClassVar[str]
    sentence: ClassVar[str]
    operations: ClassVar[tuple[str, ...]]
    row: ClassVar[dict[str, Any]]

    # Whether a requested power cut has no effect.
    ignores_power_cut: ClassVar[bool] = False

    path = "*"
    client: int | None = None
    # The time for which `remember` stores a value.
    seconds: float

    def __init_subclass__(cls, *, name: str = "", **row: Any) -> None:
        if not name:
            return
        cls.name, cls.row, cls.sentence = name, row, " ".join((cls.__doc__ or "").split())
        cls.operations = tuple(sorted(one for one in OPERATIONS if hasattr(cls, one)))
        if name in FAULTS or not cls.sentence or not (cls.operations or cls.ignores_power_cut):
            raise TypeError(f"the fault {name!r} is there twice, says nothing or does nothing")
        FAULTS[name] = cls

    def __init__(self, fs: Passthrough, sessions: list[Session], parameters: dict[str, Any]) -> None:
        self.fs, self.sessions, self.parameters = fs, sessions, parameters
        self.hits = 0
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.remembered: dict[Any, tuple[float, Any]] = {}
        for key, value in parameters.items():
            if key.startswith("_") or callable(getattr(type(self), key, len)):
                raise ValueError(f"the fault {self.name!r} has no parameter {key!r}")
            setattr(self, key, value)
        self.begin()

    def begin(self) -> None:
        """Initialize the fault; called when it is enabled."""

    def release(self) -> None:
        """Let the calls that this fault blocks continue."""

    def drop_caches(self) -> None:
        """Drop the simulated caches of this fault; called when a client drops its caches."""

    def hit(self) -> None:
        """Count one effect of the fault."""
        with self.lock:
            self.hits += 1

    def remember(self, key: Any, value: Any = True) -> None:
        """Store a value for `recall`. The value expires after ``seconds``, a parameter of the fault."""
        self.remembered[key] = (time.monotonic() + self.seconds, value)

    def recall(self, key: Any) -> Any:
        """Return the value that `remember` stored for the key; None if the value is missing or expired."""
        end, value = self.remembered.get(key, (0.0, None))
        return value if time.monotonic() < end else None

    def pause(self, seconds: float) -> None:
        """Wait for this number of seconds, or until the fault is disabled."""
        self.over.wait(seconds)

    def concerns(self, call: Any, arguments: tuple[Any, ...]) -> bool:
        """Whether the fault affects the client and a path of this call."""
        if self.client is not None and call.client != self.client:
            return False
        return self.path == "*" or any(fnmatch.fnmatch(path, self.path) for path in self.paths(arguments))

    def paths(self, arguments: tuple[Any, ...]) -> list[str]:
        """Return all paths in the arguments of an operation, relative to the root."""
        return paths_of(self.fs, arguments)


class Faulty:
    """The healthy file system, with enabled faults that can intercept each operation."""

    def __init__(self, fs: Passthrough) -> None:
        self.fs = fs
        self.active: list[Fault] = []
        self.hits: dict[str, int] = {}  # of disabled faults
        # The requested operations in each top-level directory; None before recording is requested.
        self.operations: dict[str, set[str]] | None = None
        self._at: dict[str, list[Fault]] = {}
        self._quiet = threading.Condition()
        self._under_way = 0

    def switch_on(self, name: str, parameters: dict[str, Any], sessions: list[Session]) -> None:
        self.hits.pop(name, None)
        self._set([*self.active, FAULTS[name](self.fs, sessions, parameters)])

    def switch_off(self) -> None:
        active = self.active
        self._set([])
        for fault in active:
            fault.over.set()
            fault.release()
        with self._quiet:
            # Running operations end here. Only one that waits for a lock of another process may take longer.
            self._quiet.wait_for(lambda: not self._under_way, _END_SECONDS)
        for fault in active:
            self.hits[fault.name] = self.hits.get(fault.name, 0) + fault.hits

    def _set(self, active: list[Fault]) -> None:
        self.active = active
        self._at = {name: found for name in OPERATIONS if (found := [one for one in active if name in one.operations])}

    def run(self, operation: str, call: Any, *arguments: Any, **named: Any) -> Any:
        """Perform an operation through all enabled faults that affect it."""
        proceed: Proceed = getattr(self.fs, operation)
        if self.operations is not None:
            for path in paths_of(self.fs, arguments):
                self.operations.setdefault(path.partition("/")[0], set()).add(operation)
        if not (faults := self._at.get(operation)):
            return proceed(call, *arguments, **named)
        for fault in faults:
            if fault.concerns(call, arguments):
                proceed = functools.partial(getattr(fault, operation), proceed)
        with self._quiet:
            self._under_way += 1
        try:
            return proceed(call, *arguments, **named)
        finally:
            with self._quiet:
                self._under_way -= 1
                self._quiet.notify_all()
