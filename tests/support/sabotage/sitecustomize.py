"""Makes ranks misbehave. Python loads this by itself in every process of a run; it acts in one rank only.

The ways: ``hold`` stops in the write of a file until the gate is opened, ``eio`` makes fsync fail as storage does that
has lost a write, ``forget`` is an engine that does not call fsync, ``slow`` takes a second longer for a save or load
in whose name the pattern ``where`` is found, ``pause`` begins it when the gate is opened.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import re
import sys
import time
from pathlib import Path


def _hold(plan: dict[str, str]) -> None:
    held = Path(plan["held"])
    if held.exists():
        return
    made = held.with_suffix(".part")
    made.write_text(str(os.getpid()))
    made.replace(held)
    with open(plan["gate"], "rb") as gate:  # noqa: PTH123 - blocks until the other side opens it
        gate.read()


def _patch_engine(plan: dict[str, str]) -> None:
    from pytest_ckpt.ranks.engines import factory  # noqa: PLC0415 - only in the rank that it is for

    find = factory.engine_maker

    @functools.cache
    def engine_maker(reference):
        from pytest_ckpt.ranks.engines.torch import engine as of_torch  # noqa: PLC0415 - where ranks import it

        class Misbehaving(of_torch.TorchEngine):
            def _write(self, file, out):
                if plan["way"] == "hold" and plan["where"] in out.name.as_posix():
                    _hold(plan)
                super()._write(file, out)

            def load(self, committed, step, clock):
                self._linger()
                return super().load(committed, step, clock)

            def _linger(self):
                if not re.search(plan["where"], str(self._activity.operation)):
                    return
                if plan["way"] == "slow":
                    time.sleep(1.0)
                elif plan["way"] == "pause":
                    _hold(plan)

            def save(self, draft, clock):
                self._linger()
                if plan["way"] != "forget":
                    super().save(draft, clock)
                    return
                for file in self._files:
                    out = draft.create(file.name, None)
                    self._write(file, out)
                    out.abort()

        of_torch.TorchEngine = Misbehaving
        return find(reference)

    factory.engine_maker = engine_maker


def _patch_fsync(plan: dict[str, str]) -> None:
    fsync = os.fsync

    def failing(descriptor):
        fsync(descriptor)
        if plan["where"] + "/" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    os.fsync = failing


if "pytest_ckpt.ranks" in sys.orig_argv and "CKPT_SABOTAGE" in os.environ:
    _plan = json.loads(os.environ["CKPT_SABOTAGE"])
    if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == str(_plan["rank"]):
        if _plan["way"] == "eio":
            _patch_fsync(_plan)
        else:
            _patch_engine(_plan)
