"""An S3 server on this host for a first run. The server is a separate process that ends with its parent."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from pytest_ckpt import __version__
from pytest_ckpt.facts.targets import Access
from pytest_ckpt.support.die_with_parent import tied_to_this_process
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.resources import PACKAGE_HOME
from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.keys import read_prefix
from pytest_ckpt.targets.objects.wire import OF_CONTROLLER

_SERVER = "pytest_ckpt.targets.objects.server"
_START_SECONDS = 60.0
_END_SECONDS = 10.0


@contextlib.contextmanager
def serve(location: str, access: Access) -> Iterator[Access]:
    """Run the embedded server with one bucket during a block; yield the network access to the server.

    ``location`` names the bucket. Raises UsageError if the server does not start.
    """
    place = read_prefix(location)
    server = Embedded(access)
    try:
        server.make_bucket(place.bucket)
        yield server.access
    finally:
        server.stop()


class Embedded:
    """The embedded server, which the constructor starts. ``access`` describes how clients reach the server."""

    def __init__(self, access: Access) -> None:
        with tempfile.TemporaryFile("w+") as log:
            self._process = subprocess.Popen(
                tied_to_this_process([sys.executable, "-m", _SERVER]),
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
                last = (log.read().strip().splitlines() or [f"it sent no output for {_START_SECONDS:g} s"])[-1]
                raise UsageError(
                    f"--ckpt-endpoint embedded: the server does not start: {last}.",
                    "Name the endpoint of a store.",
                )
        self.access = Access(
            endpoints=(json.loads(line)["url"],),
            part_bytes=access.part_bytes,
            borne_seconds=access.borne_seconds,
            embedded=f"pytest-ckpt {__version__}",
        )

    def make_bucket(self, bucket: str) -> None:
        """Create the bucket."""
        with contextlib.closing(Bucket(read_prefix(bucket), self.access, OF_CONTROLLER)) as made:
            made.make()

    def stop(self) -> None:
        """Stop the embedded server."""
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
