"""A server of S3 on this host for a first run: moto, in a process of its own that ends with the one that began it.

``python -m pytest_ckpt.targets.objects.embedded`` serves on a free port of the loopback interface, which it prints.
What it holds is in its memory and in files without a name.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import logging
import select
import signal
import subprocess
import sys
import tempfile

from pytest_ckpt.facts.targets import Access
from pytest_ckpt.support.die_with_parent import tied_to_this_process
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.resources import PACKAGE_HOME
from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.keys import read_place
from pytest_ckpt.targets.objects.wire import OF_CONTROLLER

_START_SECONDS = 60.0
_END_SECONDS = 10.0


def serve(location: str, access: Access) -> Embedded:
    """Start a server and make the bucket of a location in it. Raises UsageError where that cannot be."""
    place = read_place(location)
    for package in ("moto", "flask"):
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"--ckpt-endpoint embedded needs the package {package}, which is not installed.",
                "Run: pip install 'pytest-ckpt[objects]'. Or name the endpoint of a store.",
            )
    server = Embedded(access)
    try:
        server.make_bucket(place.bucket)
    except BaseException:
        server.stop()
        raise
    return server


class Embedded:
    """The server, as whoever started it has it; ``access`` is how it is reached."""

    def __init__(self, access: Access) -> None:
        with tempfile.TemporaryFile("w+") as log:
            self._process = subprocess.Popen(
                tied_to_this_process([sys.executable, "-m", __name__]),
                cwd=PACKAGE_HOME,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
            assert self._process.stdout
            ready, _, _ = select.select([self._process.stdout], [], [], _START_SECONDS)
            line = self._process.stdout.readline() if ready else ""
            if not line:
                self.stop()
                log.seek(0)
                last = (log.read().strip().splitlines() or [f"it said nothing for {_START_SECONDS:g} s"])[-1]
                raise UsageError(
                    f"--ckpt-endpoint embedded: the server does not start: {last}.",
                    "Run: pip install --force-reinstall 'pytest-ckpt[objects]'. Or name the endpoint of a store.",
                )
        self.access = Access(
            endpoints=(json.loads(line)["url"],),
            part_bytes=access.part_bytes,
            embedded=f"moto {importlib.metadata.version('moto')}",
        )

    def make_bucket(self, bucket: str) -> None:
        """Make the bucket."""
        with contextlib.closing(Bucket(read_place(bucket), self.access, OF_CONTROLLER)) as made:
            made.make()

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()


def main() -> None:
    """Serve until somebody ends this process."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - only this process needs it

    # It tells of every request.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(json.dumps({"url": f"http://{host}:{port}"}), flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
