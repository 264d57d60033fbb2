"""The storage that the hosts of the lab share: MooseFS, or the tests' FUSE file system, which may cache and fail."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.file_systems.of_servers import moosefs_server
from tests.support.file_systems.serving import ADDRESS, made
from tests.support.targets import object_faults_data  # noqa: F401 - its faults are in the table, too
from tests.support.targets.misbehaving import misbehaving
from tests.support.targets.object_faults import faulty_store


@dataclasses.dataclass(frozen=True, kw_only=True)
class Storage:
    """Shared storage: MooseFS with the mount options ``mounted``, or with ``is_fuse`` the tests' FUSE file system.

    On the FUSE file system, the first host is one client, and all other hosts are the second. Clients cache names and
    attributes for ``cache_seconds``. With ``keep_cache`` they keep pages when a file is opened again, so that the
    kernel can count them. ``faults`` maps the names of enabled faults to their parameters.
    """

    is_fuse: bool = False
    mounted: str = ""
    cache_seconds: float = 0.0
    keep_cache: bool = False
    faults: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    # Additional object stores that are on no host, each with that fault; an empty name means no fault.
    stores: tuple[str, ...] = ()


MOOSEFS = Storage()
HONEST_FUSE = Storage(is_fuse=True)


def client_of_fuse(home: Path, number: int) -> Path:
    """Return the mount point of a host's client of the FUSE file system."""
    return home / "fuse" / ("mount" if number == 1 else "second")


@contextlib.contextmanager
def served(storage: Storage, home: Path) -> Iterator[dict[str, str]]:
    """Serve the storage during the block; yield the endpoints of its object stores, by the name of their fault."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_mountable(storage, home))
        yield {fault: stack.enter_context(faulty_store(fault, ADDRESS)) for fault in storage.stores}


@contextlib.contextmanager
def _mountable(storage: Storage, home: Path) -> Iterator[None]:
    if not storage.is_fuse:
        with moosefs_server(made(home / "server")):
            yield
        return
    caches = {"cache_seconds": storage.cache_seconds, "keep_cache": storage.keep_cache}
    with misbehaving(made(home / "fuse"), second=True, **caches) as target:
        for name, parameters in storage.faults.items():
            target.fault(name, **parameters)
        yield
