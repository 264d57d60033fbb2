"""The names of the checks that need a small volume, and code that simulates a faulty job.

The faulty job writes a checkpoint under its final name, so the name exists before the checkpoint is complete.
"""

from __future__ import annotations

SMALL = ["ERRORS.full", "FULL.mid-save", "COMMIT-FULL.each-phase"]
SAVED_UNDER_THE_FINAL_NAME = """
from pytest_ckpt.targets.posix.commit import CommitByRename
CommitByRename.draft_of = lambda self, final: final
"""
