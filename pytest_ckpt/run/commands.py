"""What must be so before a run may run commands that change its storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.support.errors import UsageError

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings


def check_commands(settings: Settings) -> None:
    """Refuse to change what nothing changes back, and commands that no requirement of the run would use."""
    _both(
        {"--ckpt-break": settings.break_command, "--ckpt-mend": settings.mend_command},
        "what is broken must be mended, whatever happens",
    )
    _both(
        {"--ckpt-snapshot": settings.snapshot_command, "--ckpt-remove-snapshot": settings.remove_snapshot_command},
        "a snapshot that was taken must be removed, whatever happens",
    )
    fields = {o.option: o.source for o in settings.origins}
    for option, command, suite in (
        ("--ckpt-break", settings.break_command, "failover"),
        ("--ckpt-during", settings.during_command, "maintenance"),
        ("--ckpt-snapshot", settings.snapshot_command, "maintenance"),
    ):
        # A plugin offers its commands to every run; who names the option wants them used.
        if command and suite not in settings.suites and not fields[option].startswith("hook of "):
            raise UsageError(
                f"{option} belongs to the suite {suite}, which is not chosen or switched off by the gates.",
                f"Leave it out, or choose it: --ckpt-suite={','.join((*settings.suites, suite))}.",
            )


def _both(given: dict[str, str | None], why: str) -> None:
    if len(missing := [option for option, command in given.items() if not command]) == 1:
        (other,) = (option for option in given if option not in missing)
        raise UsageError(
            f"{other} is given and {missing[0]} is not: {why}.",
            f"Give both, or neither. A command that has nothing to do is {missing[0]}=true.",
        )
