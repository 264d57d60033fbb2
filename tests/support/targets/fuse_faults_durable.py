"""Faults that only a power cut reveals."""

from __future__ import annotations

from tests.support.targets.fuse_faults import Fault


class LostFsync(
    Fault,
    name="fsync of files is lost",
    fails="DURABLE.power-cut",
    expected_text="acknowledged bytes lost in a power cut",
    # Space of removed files is not freed before the removal is durable.
    may="FULL.mid-save COMMIT-FULL.each-phase",
):
    """fsync of a file reports success without an effect. A power cut loses the bytes."""

    def fsync(self, proceed, call, handle):
        self.hit()


class LostFsyncOfDirectories(
    Fault,
    name="fsync of directories is lost",
    fails="DURABLE.power-cut",
    expected_text="acknowledged name lost in a power cut",
    may="FULL.mid-save COMMIT-FULL.each-phase",
):
    """fsync does not make names of directories and files durable. A power cut loses the names."""

    def fsyncdir(self, proceed, call, handle):
        self.hit()

    def fsync(self, proceed, call, handle):
        self.fs.sync_bytes(call, handle)
        self.hit()


class PowerCutIgnored(
    Fault,
    name="power cut does not cut",
    # The check cannot detect this: after close, data of a network file system are present with or without a cut.
    reported={"DURABLE.power-cut": "declared by the operator"},
):
    """The power-cut command reports success but does not cut the power."""

    ignores_power_cut = True
