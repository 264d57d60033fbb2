"""The storage that the simulated hosts share: MooseFS, or the tests' FUSE file system, which can have faults."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.file_systems.mounting import ADDRESS, create_directory
from tests.support.file_systems.servers import moosefs_server
from tests.support.targets import object_faults_data  # noqa: F401 - its faults are in the table, too
from tests.support.targets.misbehaving import misbehaving
from tests.support.targets.object_faults import faulty_store


@dataclasses.dataclass(frozen=True, kw_only=True)
class Storage:
    """Shared storage: the tests' FUSE file system if ``is_fuse`` is true, otherwise MooseFS.

    ``mounted`` contains mount options of MooseFS. ``stores`` contains the faults of additional object stores.

    The other fields apply to the FUSE file system. The first host is one client, and all other hosts are a second
    client. Clients cache names and attributes for ``cache_seconds``. If ``keep_cache`` is true, cached pages remain
    when a file is opened again. ``faults`` is {enabled fault: its parameters}.
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


def fuse_client(home: Path, number: int) -> Path:
    """Return the directory at which host ``number`` mounts the FUSE file system."""
    return home / "fuse" / ("mount" if number == 1 else "second")


@contextlib.contextmanager
def served(storage: Storage, home: Path) -> Iterator[dict[str, str]]:
    """Serve the storage until the block ends; yield {fault: endpoint of an object store with the fault}."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_mountable(storage, home))
        yield {fault: stack.enter_context(faulty_store(fault, ADDRESS)) for fault in storage.stores}


@contextlib.contextmanager
def _mountable(storage: Storage, home: Path) -> Iterator[None]:
    if not storage.is_fuse:
        with moosefs_server(create_directory(home / "server")):
            yield
        return
    caches = {"cache_seconds": storage.cache_seconds, "keep_cache": storage.keep_cache}
    with misbehaving(create_directory(home / "fuse"), second=True, **caches) as target:
        for name, parameters in storage.faults.items():
            target.fault(name, **parameters)
        yield
