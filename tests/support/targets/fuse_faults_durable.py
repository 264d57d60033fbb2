"""Faults that only a power cut brings to light."""

from __future__ import annotations

from tests.support.targets.fuse_faults import Fault


class LostFsync(
    Fault,
    name="fsync of files is lost",
    fails="DURABLE.power-cut",
    says={"DURABLE.power-cut": "acknowledged bytes lost in a power cut"},
    # What is never made durable keeps its space.
    may="FULL.mid-save COMMIT-FULL.each-phase",
):
    """fsync of a file says that it is done and does nothing: a power cut takes the bytes."""

    def fsync(self, proceed, call, handle):
        self.hit()


class LostFsyncOfDirectories(
    Fault,
    name="fsync of directories is lost",
    fails="DURABLE.power-cut",
    says={"DURABLE.power-cut": "acknowledged name lost in a power cut"},
    may="FULL.mid-save COMMIT-FULL.each-phase",
):
    """fsync makes no name durable, neither that of a directory nor that of a file: a power cut takes them all."""

    def fsyncdir(self, proceed, call, handle):
        self.hit()

    def fsync(self, proceed, call, handle):
        self.fs.sync_bytes(call, handle)
        self.hit()


class PowerStays(
    Fault,
    name="power cut does not cut",
    fails="DURABLE.power-cut",
    says={"DURABLE.power-cut": "the power cut did not cut"},
):
    """The command that is to cut the power says that it did, and nothing is lost."""

    keeps_the_power = True
