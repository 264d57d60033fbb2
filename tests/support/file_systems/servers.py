"""File systems with a server on loopback: sshfs, MooseFS, GlusterFS and rclone.

rclone has one client, and the other file systems have two.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.file_systems.local import of_kernel
from tests.support.file_systems.mounting import (
    ADDRESS,
    Mounted,
    client,
    create_directory,
    daemon,
    glusterd_answers,
    listening,
    run,
    wait_for,
)

SFTP_SERVER = "/usr/lib/openssh/sftp-server"
_SFTP_PORT, _WEBDAV_PORT = 2022, 8080


def sshfs(options: str = "") -> Callable[[Path], contextlib.AbstractContextManager[Mounted]]:
    """Return a function that serves a directory with OpenSSH's sftp server and mounts it on two clients.

    The connections are plain TCP, so that this host does not need to encrypt and decrypt.
    """

    @contextlib.contextmanager
    def start(home: Path) -> Iterator[Mounted]:
        with (
            of_kernel("ext4")(create_directory(home / "below")) as below,
            _sftp_at(_SFTP_PORT) as end_server,
            contextlib.ExitStack() as clients,
        ):
            assert below.small
            for name, volume in (("first", below.first), ("second", below.first), ("small", below.small)):
                words = ("sshfs", "-f", "-o", ",".join((f"directport={_SFTP_PORT}", *filter(None, (options,)))))
                clients.enter_context(
                    client(home / name, *words, f"{ADDRESS}:{create_directory(volume / 'shown')}", home / name)
                )
            yield Mounted(first=home / "first", second=home / "second", small=home / "small", kill_server=end_server)

    return start


@contextlib.contextmanager
def _sftp_at(port: int) -> Iterator[Callable[[], None]]:
    """Start an sftp server for each connection to a port.

    Yield a function that kills all servers and stops listening.
    """
    servers: list[subprocess.Popen[bytes]] = []

    def serve() -> None:
        with contextlib.suppress(OSError):  # the normal end
            while True:
                link, _ = listener.accept()
                with link:
                    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    servers.append(subprocess.Popen([SFTP_SERVER], stdin=link, stdout=link))

    def end() -> None:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for server in servers:
            server.kill()
            server.wait()

    with socket.create_server((ADDRESS, port)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield end
        finally:
            end()


@contextlib.contextmanager
def moosefs(home: Path) -> Iterator[Mounted]:
    """Start a master and a chunk server of MooseFS, and mount their file system on two clients."""
    with moosefs_server(home), contextlib.ExitStack() as clients:
        for name in ("first", "second"):
            words = ("mfsmount", "-f", "-H", ADDRESS, "-o", "mfsproxy=127.0.0.1,mfsnice=0")
            clients.enter_context(client(home / name, *words, home / name))
        wait_for(
            lambda: os.statvfs(home / "first").f_bavail, "the chunk server has its space", None, home / "chunk.log"
        )
        yield Mounted(first=home / "first", second=home / "second", kill_server=lambda: _kill_all("mfschunkserver"))


@contextlib.contextmanager
def moosefs_server(home: Path) -> Iterator[None]:
    """Run a master and a chunk server of MooseFS until the block ends."""
    state, config = create_directory(home / "state"), create_directory(home / "config")
    with of_kernel("ext4")(create_directory(home / "below")) as below:
        yield from _moosefs(home, state, config, create_directory(below.first / "chunks"))


def _moosefs(home: Path, state: Path, config: Path, chunks: Path) -> Iterator[None]:
    common = f"WORKING_USER = root\nWORKING_GROUP = root\nDATA_PATH = {state}\n"
    (config / "exports.cfg").write_text("* / rw,alldirs,admin,maproot=0:0\n")
    (config / "hdd.cfg").write_text(f"{chunks}\n")
    (config / "topology.cfg").touch()
    (config / "master.cfg").write_text(
        f"{common}EXPORTS_FILENAME = {config / 'exports.cfg'}\nTOPOLOGY_FILENAME = {config / 'topology.cfg'}\n"
        f"MATOML_LISTEN_HOST = {ADDRESS}\nMATOCS_LISTEN_HOST = {ADDRESS}\nMATOCL_LISTEN_HOST = {ADDRESS}\n"
    )
    # Otherwise the chunk server keeps more space free than a small disk has.
    (config / "chunk.cfg").write_text(
        f"{common}HDD_CONF_FILENAME = {config / 'hdd.cfg'}\nMASTER_HOST = {ADDRESS}\nHDD_LEAVE_SPACE_DEFAULT = 64MiB\n"
        f"BIND_HOST = {ADDRESS}\nCSSERV_LISTEN_HOST = {ADDRESS}\n"
    )
    (state / "metadata.mfs").write_bytes(b"MFSM NEW")
    with (
        daemon(home / "master.log", "mfsmaster", "-f", "-c", config / "master.cfg", "start", ready=_listens(9421)),
        daemon(home / "chunk.log", "mfschunkserver", "-f", "-c", config / "chunk.cfg", "start", ready=_listens(9422)),
    ):
        yield


def glusterfs(
    volume: tuple[str, ...] = (), options: str = ""
) -> Callable[[Path], contextlib.AbstractContextManager[Mounted]]:
    """Return a function that starts a GlusterFS volume with one brick and mounts the volume on two clients.

    ``volume`` contains options of the volume as ``name value``. ``options`` are options of the clients.
    """

    @contextlib.contextmanager
    def start(home: Path) -> Iterator[Mounted]:
        # Its daemon uses fixed directories, which are private here.
        for place in ("/var/lib/glusterd", "/var/log", "/etc/glusterfs"):
            run("mount", "-t", "tmpfs", "gluster", create_directory(Path(place)))
        create_directory(Path("/var/log/glusterfs"))
        create_directory(Path("/run/gluster"))
        Path("/etc/glusterfs/glusterd.vol").write_text(
            "volume management\n type mgmt/glusterd\n option working-directory /var/lib/glusterd\n"
            " option transport-type socket\n option transport.socket.listen-port 24007\nend-volume\n"
        )
        with (
            of_kernel("ext4")(create_directory(home / "below")) as below,
            daemon(home / "glusterd.log", "glusterd", "-N", "--log-level=WARNING", ready=glusterd_answers),
            contextlib.ExitStack() as clients,
        ):
            brick = create_directory(below.first / "brick")
            run("gluster", "--mode=script", "volume", "create", "ckpt", f"{ADDRESS}:{brick}", "force")
            for option in volume:
                run("gluster", "--mode=script", "volume", "set", "ckpt", *option.split())
            run("gluster", "--mode=script", "volume", "start", "ckpt")
            wait_for(lambda: _pids("glusterfsd"), "the brick runs", None, home / "glusterd.log")
            for name in ("first", "second"):
                words = ["glusterfs", "-N", f"--volfile-server={ADDRESS}", "--volfile-id=/ckpt"]
                words += [f"--{option}" for option in options.split(",") if option]
                clients.enter_context(client(home / name, *words, home / name))
            try:
                yield Mounted(first=home / "first", second=home / "second", kill_server=lambda: _kill_all("glusterfsd"))
            finally:
                _kill_all("glusterfsd")

    return start


def rclone(cache: str) -> Callable[[Path], contextlib.AbstractContextManager[Mounted]]:
    """Return a function that serves a directory over WebDAV and mounts it with rclone.

    ``cache`` is the value of rclone's option --vfs-cache-mode.
    """

    @contextlib.contextmanager
    def start(home: Path) -> Iterator[Mounted]:
        with of_kernel("ext4")(create_directory(home / "below")) as below:
            server = (
                "rclone",
                "serve",
                "webdav",
                "--addr",
                f"{ADDRESS}:{_WEBDAV_PORT}",
                create_directory(below.first / "store"),
            )
            config = home / "rclone.conf"
            config.write_text(f"[store]\ntype = webdav\nurl = http://{ADDRESS}:{_WEBDAV_PORT}\nvendor = other\n")
            words = ("rclone", "--config", config, "--cache-dir", create_directory(home / "cache"), "mount", "store:")
            with (
                daemon(home / "webdav.log", *server, ready=lambda: listening(_WEBDAV_PORT)) as served,
                client(home / "first", *words, home / "first", f"--vfs-cache-mode={cache}", "--allow-other"),
            ):
                yield Mounted(first=home / "first", kill_server=lambda: served.send_signal(signal.SIGKILL))

    return start


def _listens(port: int) -> Callable[[], bool]:
    return lambda: listening(port)


def _pids(program: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "comm").read_text().strip() == program[:15]:
                found.append(int(entry.name))
    return found


def _kill_all(program: str) -> None:
    """Kill all processes of a program in the present process namespace. The lab has a separate process namespace."""
    for pid in _pids(program):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
