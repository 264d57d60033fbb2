"""Simulates other hosts: ranks run in process namespaces that the controller cannot see.

``PROGRAM`` is the launcher of a run. The launcher requests ranks from `Hosts`, which starts the ranks as children of
the test. If the launcher is killed, the ranks continue. A real host behaves like this if its daemon does not notice the
loss of the launcher.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

UNDER_A_NAME = """
names = nodes.split(",")
name = names[int(os.environ["OMPI_COMM_WORLD_RANK"]) * len(names) // int(processes)]
with tempfile.NamedTemporaryFile("w", delete=False) as boot:
    boot.write(f"boot of {name}")
words = f'hostname {name}; mount --bind {boot.name} /proc/sys/kernel/random/boot_id; rm {boot.name}; exec "$@"'
os.execvp("unshare", ["unshare", "--uts", "--mount", "sh", "-c", words, "sh", *command])
"""
"""Starts a rank, ``command``, under the name of a host of ``nodes`` with its own boot id: one machine simulates two
hosts."""

AS_HOST = f"""
import os, sys, tempfile

nodes, processes, *command = sys.argv[1:]
{UNDER_A_NAME}"""
PROGRAM = """
import json, os, socket, sys

if sys.argv[1] == "--version":
    print("hidden hosts 1")
    sys.exit()
there = socket.socket(socket.AF_UNIX)
there.connect("\\0" + {name!r})
asked = json.dumps({{"words": sys.argv[1:], "environment": dict(os.environ), "directory": os.getcwd()}}).encode()
socket.send_fds(there, [len(asked).to_bytes(4, "big")], [0, 1, 2])
there.sendall(asked)
sys.exit(int(there.makefile().readline() or 1))
"""
_LAUNCHER = """
import os, sys

if sys.argv[1] == "--version":
    print("hosts that are namespaces 1")
    sys.exit()
_, nodes, processes, *command = sys.argv[1:]
os.environ |= {{"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}}
mpiexec = os.path.join(os.path.dirname(sys.executable), "mpiexec")
local = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "self,sm"]
rank = [sys.executable, {as_host!r}, nodes, processes, *command]
os.execv(mpiexec, [mpiexec, "-n", processes, *local, *rank])
"""
HIDDEN = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""The words before the command of a controller."""


def namespace_launcher(home: Path) -> str:
    """Write a launcher to ``home`` that starts ranks on this host under several host names.

    Return the launcher's command line as a value of --ckpt-launcher.
    """
    program, as_host = home / "start.py", home / "as_host.py"
    as_host.write_text(AS_HOST)
    program.write_text(_LAUNCHER.format(as_host=str(as_host)))
    return f"{shlex.quote(sys.executable)} {program} start {{nodes}} {{processes}}"


class Hosts:
    """Starts the processes that launchers request.

    A host sweep is a process that ends the processes of a run on a host. If ``sweeps`` is false, requested host sweeps
    are not started.
    """

    def __init__(self) -> None:
        self.name = f"ckpt-hidden-{uuid.uuid4()}"
        self.sweeps = True
        self.asked: list[list[str]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind("\0" + self.name)
        self._socket.listen()
        self._started: list[subprocess.Popen[bytes]] = []
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def program(self) -> str:
        """The source text of the launcher."""
        return PROGRAM.format(name=self.name)

    def close(self) -> None:
        self._socket.close()
        for process in self._started:
            process.kill()
            process.wait()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._start, args=(self._socket.accept()[0],), daemon=True).start()

    def _start(self, client: socket.socket) -> None:
        length, (given, out, errors), _, _ = socket.recv_fds(client, 4, 3)
        text = client.makefile("rb").read(int.from_bytes(length, "big"))
        asked = json.loads(text)
        nodes, processes, *command = asked["words"]
        self.asked.append(command)
        if "host_sweep" in command[-1] and not self.sweeps:
            client.sendall(b"1\n")
            client.close()
            for descriptor in (given, out, errors):
                os.close(descriptor)
            return
        environment = asked["environment"] | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        mpiexec = Path(sys.executable).parent / "mpiexec"
        local = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "self,sm"]
        process = subprocess.Popen(
            [str(mpiexec), "-n", processes, *local, sys.executable, "-c", AS_HOST, nodes, processes, *command],
            stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=asked["directory"], env=environment,
            start_new_session=True,
        )  # fmt: skip
        self._started.append(process)
        os.close(given)
        pumps = [
            threading.Thread(target=_pump, args=(source, descriptor), daemon=True)
            for source, descriptor in ((process.stdout, out), (process.stderr, errors))
        ]
        for pump in pumps:
            pump.start()
        for pump in pumps:
            pump.join()
        with contextlib.suppress(OSError):
            client.sendall(f"{process.wait()}\n".encode())
        client.close()


def _pump(source, descriptor: int) -> None:  # type: ignore[no-untyped-def]
    """Copy the output of a process to a descriptor. If the descriptor has no reader, read and discard the output."""
    while data := os.read(source.fileno(), 1 << 16):
        with contextlib.suppress(OSError):
            os.write(descriptor, data)
    os.close(descriptor)


@contextlib.contextmanager
def hidden_hosts() -> Iterator[Hosts]:
    """Yield a running `Hosts` and close it when the block ends."""
    hosts = Hosts()
    try:
        yield hosts
    finally:
        hosts.close()
