"""What all launches of one run share: ranks that measure, and checks of the target's behaviour."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.support.redaction import Redactor

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.launching.launcher import Launcher
    from pytest_ckpt.launching.second_client import SecondClient
    from pytest_ckpt.sizing.plan import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnFolder:
    """A folder that the run made on the target. ``identity`` is its (device, inode); empty: it was never made."""

    path: Path
    identity: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchContext:
    """The run as its launches see it.

    ``folder`` keeps the evidence. ``target`` is the run's own folder on the target, ``small`` its folder on a volume
    that it may fill; None where there is none.
    """

    run_id: str
    seed: int
    settings: Settings
    plan: Plan
    folder: Path
    target: OwnFolder
    launcher: Launcher
    second_client: SecondClient | None = None
    small: OwnFolder | None = None

    @property
    def redactor(self) -> Redactor:
        """What hides the secrets of options and environment in everything that is written."""
        return Redactor.of(os.environ, (o.value for o in self.settings.origins))
