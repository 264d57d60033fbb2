"""Make one rank of a run misbehave. Python imports this module at the start of every process of the run.

The environment variable ``CKPT_SABOTAGE`` describes the sabotage as JSON. The sabotage affects the rank ``rank`` in
operations with a name that matches the regular expression ``where``. The field ``way`` is one of:

- ``hold``: the first write blocks until the test releases the rank
- ``eio``: fsync fails with EIO
- ``forget``: the fsync calls of engine stream are omitted
- ``slow``: a save or load takes one second longer
- ``pause``: the first operation starts only when the test releases the rank
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import re
import sys
import time
from pathlib import Path


def _block_rank(plan: dict[str, str]) -> None:
    held = Path(plan["held"])
    if held.exists():
        return
    made = held.with_suffix(".part")
    made.write_text(str(os.getpid()))
    made.replace(held)
    with open(plan["gate"], "rb") as gate:  # noqa: PTH123 - blocks until the other side opens it
        gate.read()


class _ForgottenError(Exception):
    """Raised by the replacement of os.fsync, to skip the call."""


class _Sink:
    """A file that is being saved. Depending on ``way``, its writes block, or its fsync fails or is omitted."""

    def __init__(self, sink, plan):
        self._sink, self._plan = sink, plan

    def __getattr__(self, name):
        return getattr(self._sink, name)

    def write(self, data):
        self._wait_if_blocked()
        return self._sink.write(data)

    def write_at(self, offset, data):
        self._wait_if_blocked()
        return self._sink.write_at(offset, data)

    def finish(self):
        with _fsync_of(self._plan["way"]), contextlib.suppress(_ForgottenError):
            return self._sink.finish()

    def _wait_if_blocked(self):
        if self._plan["way"] == "hold":
            _block_rank(self._plan)


@contextlib.contextmanager
def _fsync_of(way):
    """Replace os.fsync by a faulty function during the block, if ``way`` is ``eio`` or ``forget``.

    The replacement is valid for all threads of the rank, but only the thread of the block calls os.fsync.
    """
    fsync = os.fsync

    def failing(descriptor):
        fsync(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def forgotten(_descriptor):
        raise _ForgottenError

    os.fsync = {"eio": failing, "forget": forgotten}.get(way, fsync)
    try:
        yield
    finally:
        os.fsync = fsync


class _Draft:
    def __init__(self, draft, plan):
        self._draft, self._plan = draft, plan

    def __getattr__(self, name):
        return getattr(self._draft, name)

    def create(self, name, size):
        return _Sink(self._draft.create(name, size), self._plan)


class _Engine:
    def __init__(self, engine, activity, plan):
        self._engine, self._activity, self._plan = engine, activity, plan

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def save(self, draft, clock):
        if self._is_meant():
            self._linger()
            draft = _Draft(draft, self._plan)
        self._engine.save(draft, clock)

    def load(self, committed, step, clock):
        if self._is_meant():
            self._linger()
        return self._engine.load(committed, step, clock)

    def _is_meant(self):
        return re.search(self._plan["where"], str(self._activity.operation))

    def _linger(self):
        if self._plan["way"] == "slow":
            time.sleep(1.0)
        elif self._plan["way"] == "pause":
            _block_rank(self._plan)


def _patch_engine(plan: dict[str, str]) -> None:
    from pytest_ckpt.ranks.engines import factory  # noqa: PLC0415 - only in the rank that it is for

    find = factory.engine_maker

    @functools.cache
    def engine_maker(reference):
        make = find(reference)
        return lambda **how: _Engine(make(**how), how["activity"], plan)

    factory.engine_maker = engine_maker


if "pytest_ckpt.ranks" in sys.orig_argv and "CKPT_SABOTAGE" in os.environ:
    _plan = json.loads(os.environ["CKPT_SABOTAGE"])
    if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == str(_plan["rank"]):
        _patch_engine(_plan)
