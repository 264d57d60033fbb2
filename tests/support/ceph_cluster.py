"""A Ceph cluster on one address of this host, from Debian's packages: a monitor, a manager and a storage daemon."""

from __future__ import annotations

import contextlib
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.file_systems.mounting import create_directory, daemon, listening, run, wait_for

# Every key permits everything. Keys are required, because a monitor without keys refuses some known clients.
_KEYS: Mapping[str, tuple[str, ...]] = {
    "mon.": ("mon",),
    "client.admin": ("mon", "mgr", "osd", "mds"),
    "mgr.a": ("mon", "mgr", "osd", "mds"),
    "osd.0": ("mon", "mgr", "osd"),
}


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A running cluster. The exit stack ``daemons`` ends its daemons. ``store`` is the storage daemon (OSD)."""

    home: Path
    config: Path
    daemons: contextlib.ExitStack
    store: subprocess.Popen[bytes]

    def start(self, program: str, name: str) -> subprocess.Popen[bytes]:
        return _started(self.daemons, self.home, self.config, program, name)

    def ceph(self, *words: str) -> str:
        return _ceph(self.config, *words)


@contextlib.contextmanager
def cluster(
    home: Path, store: Path, *, address: str, port: int, keys: Mapping[str, tuple[str, ...]], settings: str
) -> Iterator[Cluster]:
    """Start a cluster and yield it. When the block ends, the processes of the cluster are ended.

    The monitor listens at ``port``, and the storage daemon (OSD) keeps its data in ``store``. ``keys`` is {additional
    user: kinds of daemons that the user may access}. ``settings`` contains additional lines of the configuration.
    """
    config = _configured(home, store, address, port, {**_KEYS, **keys}, settings)
    with contextlib.ExitStack() as daemons:
        run("ceph-mon", "--mkfs", "-i", "a", "-c", config, "--monmap", home / "monmap", "--keyring", home / "keyring")
        _started(daemons, home, config, "ceph-mon", "a")
        wait_for(lambda: listening(port), "the monitor listens", None, home / "ceph-mon.log")
        _started(daemons, home, config, "ceph-mgr", "a")
        _ceph(config, "osd", "new", run("ceph-conf", "-c", config, "--lookup", "osd_uuid"))
        run("ceph-osd", "-i", "0", "-c", config, "--mkfs")
        process = _started(daemons, home, config, "ceph-osd", "0")
        yield Cluster(home=home, config=config, daemons=daemons, store=process)


def _started(
    daemons: contextlib.ExitStack, home: Path, config: Path, program: str, name: str
) -> subprocess.Popen[bytes]:
    words = (program, "-f", "-i", name, "-c", config)
    return daemons.enter_context(daemon(home / f"{program}.log", *words, ready=lambda: True))


def _ceph(config: Path, *words: str) -> str:
    # The program needs Debian's Python, not the Python of the tests' environment.
    return run("/usr/bin/python3", "/usr/bin/ceph", "-c", config, *words)


def _configured(
    home: Path, store: Path, address: str, port: int, keys: Mapping[str, tuple[str, ...]], settings: str
) -> Path:
    """Write the configuration, keys and monitor map of a cluster; return the configuration file.

    All paths in the configuration are below ``home`` or ``store``.
    """
    config, identity, state = home / "ceph.conf", str(uuid.uuid4()), create_directory(home / "state")
    keyring = home / "keyring"
    config.write_text(
        f"[global]\nfsid = {identity}\nmon_initial_members = a\nmon_host = v1:{address}:{port}\n"
        f"public_addr = {address}\nkeyring = {keyring}\nrun_dir = {state}\n"
        f"admin_socket = {state}/$cluster-$name.$pid.asok\nlog_file = {state}/$name.log\n"
        f"mon_data = {create_directory(state / 'mon')}\nmgr_data = {create_directory(state / 'mgr')}\n"
        f"mds_data = {create_directory(state / 'mds')}\n"
        f"osd_data = {store}\nosd_uuid = {uuid.uuid4()}\nosd_pool_default_size = 1\nosd_pool_default_min_size = 1\n"
        "osd_pool_default_pg_autoscale_mode = off\nosd_crush_chooseleaf_type = 0\nmon_allow_pool_size_one = true\n"
        f"mgr_initial_modules =\n{settings}"
    )
    keyring.touch()
    for name, kinds in keys.items():
        allowed = [word for kind in kinds for word in ("--cap", kind, "allow *")]
        run("ceph-authtool", keyring, "--gen-key", "-n", name, *allowed)
    words = ("--create", "--clobber", "--fsid", identity, "--addv", "a", f"[v1:{address}:{port}]")
    run("monmaptool", *words, home / "monmap")
    return config
