"""CephFS: one monitor, manager, metadata server and object store on loopback, and two clients by ceph-fuse."""

from __future__ import annotations

import contextlib
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

from tests.support.file_systems.of_one_host import of_kernel
from tests.support.file_systems.serving import ADDRESS, Mounted, client, daemon, listening, made, run, until

_MONITOR_PORT = 6789
_STORE_BYTES = 6 << 30
_GROUPS = "8"
# A change of a name that the other client uses waits for the journal, which is flushed so often: 5 s by default.
_TICK_SECONDS = 0.2
# Whoever has a key may do everything: with no keys at all, a monitor turns away some of those that it knows.
_KEYS = {
    "mon.": ("mon",),
    "client.admin": ("mon", "mgr", "osd", "mds"),
    "mgr.a": ("mon", "mgr", "osd", "mds"),
    "osd.0": ("mon", "mgr", "osd"),
    "mds.a": ("mon", "mgr", "osd", "mds"),
}


@contextlib.contextmanager
def cephfs(home: Path) -> Iterator[Mounted]:
    """Start a cluster of one object store on ext4 and mount its file system twice."""
    with of_kernel("ext4")(made(home / "below")) as below, contextlib.ExitStack() as daemons:
        config = _configured(home, made(below.first / "store"))

        def start(program: str, name: str) -> subprocess.Popen[bytes]:
            words = (program, "-f", "-i", name, "-c", config)
            return daemons.enter_context(daemon(home / f"{program}.log", *words, ready=lambda: True))

        def ceph(*words: str) -> str:
            # The program is Debian's, and so is its Python, whatever environment the tests run in.
            return run("/usr/bin/python3", "/usr/bin/ceph", "-c", config, *words)

        run("ceph-mon", "--mkfs", "-i", "a", "-c", config, "--monmap", home / "monmap", "--keyring", home / "keyring")
        start("ceph-mon", "a")
        until(lambda: listening(_MONITOR_PORT), "the monitor listens", None, home / "ceph-mon.log")
        start("ceph-mgr", "a")
        ceph("osd", "new", _identity_of_store(config))
        run("ceph-osd", "-i", "0", "-c", config, "--mkfs")
        store = start("ceph-osd", "0")
        for pool in ("names", "data"):
            ceph("osd", "pool", "create", pool, _GROUPS)
        ceph("fs", "new", "ckpt", "names", "data")
        start("ceph-mds", "a")
        until(lambda: "up:active" in ceph("mds", "stat"), "the metadata server is active", None, home / "ceph-mds.log")
        for name in ("first", "second"):
            words = ("ceph-fuse", "-f", "-c", config, "--id", "admin", "--client_mountpoint=/")
            daemons.enter_context(client(home / name, *words, home / name))
        yield Mounted(first=home / "first", second=home / "second", kill_server=store.kill)


def _configured(home: Path, store: Path) -> Path:
    """Write the configuration of a cluster whose daemons keep to this directory, its keys and its map of monitors."""
    config, identity, state = home / "ceph.conf", str(uuid.uuid4()), made(home / "state")
    keyring = home / "keyring"
    config.write_text(
        f"[global]\nfsid = {identity}\nmon_initial_members = a\nmon_host = v1:{ADDRESS}:{_MONITOR_PORT}\n"
        f"public_addr = {ADDRESS}\nkeyring = {keyring}\nrun_dir = {state}\n"
        f"admin_socket = {state}/$cluster-$name.$pid.asok\nlog_file = {state}/$name.log\n"
        f"mon_data = {made(state / 'mon')}\nmgr_data = {made(state / 'mgr')}\nmds_data = {made(state / 'mds')}\n"
        f"osd_data = {store}\nosd_uuid = {uuid.uuid4()}\nosd_pool_default_size = 1\nosd_pool_default_min_size = 1\n"
        "osd_pool_default_pg_autoscale_mode = off\nosd_crush_chooseleaf_type = 0\nmon_allow_pool_size_one = true\n"
        f"bluestore_block_size = {_STORE_BYTES}\nmds_tick_interval = {_TICK_SECONDS}\nmgr_initial_modules =\n"
    )
    keyring.touch()
    for name, kinds in _KEYS.items():
        allowed = [word for kind in kinds for word in ("--cap", kind, "allow *")]
        run("ceph-authtool", keyring, "--gen-key", "-n", name, *allowed)
    words = ("--create", "--clobber", "--fsid", identity, "--addv", "a", f"[v1:{ADDRESS}:{_MONITOR_PORT}]")
    run("monmaptool", *words, home / "monmap")
    return config


def _identity_of_store(config: Path) -> str:
    return run("ceph-conf", "-c", config, "--lookup", "osd_uuid")
