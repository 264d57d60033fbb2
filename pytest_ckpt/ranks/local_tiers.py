"""The run's area in the local tier of each host: the controller made that of its host, ranks make the others."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, cast

from pytest_ckpt.support.references import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import Job
    from pytest_ckpt.targets.protocol_of_paths import TierStore


@contextlib.contextmanager
def tier_of_each_host(group: Group, job: Job) -> Iterator[None]:
    """Make the area on this host where it has none, by one of its ranks, and remove it at the end."""
    if not job.local or not group.spans_hosts:
        yield
        return
    tier = cast("TierStore", load(job.local.opener)(job.local))
    if group.leads_host:
        tier.settle()
    group.wait()
    yield
    group.wait()
    if group.leads_host:
        tier.leave({task.subject.slug for task in job.tasks})
