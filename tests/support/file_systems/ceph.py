"""CephFS on loopback: a monitor, a manager, a metadata server, a storage daemon (OSD), and two clients.

The clients are ceph-fuse processes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.ceph_cluster import cluster
from tests.support.file_systems.local import of_kernel
from tests.support.file_systems.mounting import ADDRESS, Mounted, client, create_directory, wait_for

_MONITOR_PORT = 6789
_STORE_BYTES = 6 << 30
_GROUPS = "8"
# A change of a name that the other client uses waits for the journal, which is flushed at this interval (default: 5 s).
_TICK_SECONDS = 0.2
_SETTINGS = f"bluestore_block_size = {_STORE_BYTES}\nmds_tick_interval = {_TICK_SECONDS}\n"


@contextlib.contextmanager
def cephfs(home: Path) -> Iterator[Mounted]:
    """Start a Ceph cluster that stores its data on ext4, and mount its file system on two clients."""
    keys = {"mds.a": ("mon", "mgr", "osd", "mds")}
    with (
        of_kernel("ext4")(create_directory(home / "below")) as below,
        cluster(
            home,
            create_directory(below.first / "store"),
            address=ADDRESS,
            port=_MONITOR_PORT,
            keys=keys,
            settings=_SETTINGS,
        ) as ceph,
    ):
        for pool in ("names", "data"):
            ceph.ceph("osd", "pool", "create", pool, _GROUPS)
        ceph.ceph("fs", "new", "ckpt", "names", "data")
        ceph.start("ceph-mds", "a")
        wait_for(lambda: "up:active" in ceph.ceph("mds", "stat"), "the metadata server is active", None,
              home / "ceph-mds.log")  # fmt: skip
        for name in ("first", "second"):
            words = ("ceph-fuse", "-f", "-c", ceph.config, "--id", "admin", "--client_mountpoint=/")
            ceph.daemons.enter_context(client(home / name, *words, home / name))
        yield Mounted(first=home / "first", second=home / "second", kill_server=ceph.store.kill)
