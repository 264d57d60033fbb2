"""What must be so before a run may break its storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.support.errors import UsageError

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings


def check_failover(settings: Settings) -> None:
    """Refuse to break what nothing mends, and commands that no requirement of the run would use."""
    given = {"--ckpt-break": settings.break_command, "--ckpt-mend": settings.mend_command}
    if not any(given.values()):
        return
    for option, command in given.items():
        if not command:
            other = next(o for o in given if o != option)
            raise UsageError(
                f"{other} is given and {option} is not: what is broken must be mended, whatever happens.",
                f"Give both, or neither. A command that has nothing to do is {option}=true.",
            )
    said = {o.option: o.source for o in settings.origins}
    # A plugin offers its commands to every run; who names the option wants them used.
    if "failover" not in settings.suites and not said["--ckpt-break"].startswith("hook of "):
        raise UsageError(
            "--ckpt-break belongs to the suite failover, which is not chosen or switched off by the gates.",
            f"Leave it out, or choose it: --ckpt-suite={','.join((*settings.suites, 'failover'))}.",
        )
