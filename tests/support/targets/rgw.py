"""Two gateways of Ceph's object gateway (RGW) in one cluster. Tests can kill and restart a gateway.

The client receives both endpoints (``--ckpt-endpoint``), so no load balancer is needed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.ceph_cluster import Cluster, cluster
from tests.support.file_systems.mounting import create_directory, daemon, missing, run, wait_for
from tests.support.targets.object_server import BUCKET
from tests.support.targets.other_servers import ThirdPartyServer, free_port, is_ready

PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "radosgw", "radosgw-admin")
USER = "ckpt"
_KEY, _SECRET = "CKPTACCESSKEY0001", "ckptSecretKeyThatMustNotLeak/0001"
_ADDRESS, _STORE_BYTES = "127.0.0.1", 8 << 30
# The space of deleted objects is freed by garbage collection, by default after two hours.
_SETTINGS = f"""osd_objectstore = memstore
memstore_device_bytes = {_STORE_BYTES}
osd_pool_default_pg_num = 8
osd_pool_default_pgp_num = 8
mon_max_pg_per_osd = 1000
rgw_gc_obj_min_wait = 1
rgw_gc_processor_period = 1
rgw_gc_processor_max_time = 1
rgw_enable_usage_log = false
rgw_bucket_quota_ttl = 0
rgw_user_quota_bucket_sync_interval = 1
"""


@dataclass(kw_only=True)
class Gateway:
    """One gateway: its name and its port."""

    name: str
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{_ADDRESS}:{self.port}"

    def answers(self) -> bool:
        """Whether the gateway answers requests. An HTTP error is also an answer."""
        try:
            urllib.request.urlopen(self.endpoint, timeout=10).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True


@dataclass(frozen=True, kw_only=True)
class Gateways:
    """Two gateways of a cluster, with a user and a bucket. ``server`` describes the first gateway."""

    server: ThirdPartyServer
    both: tuple[Gateway, Gateway]
    ceph: Cluster
    _running: dict[str, contextlib.ExitStack] = field(default_factory=dict)

    @property
    def endpoints(self) -> str:
        """The value for ``--ckpt-endpoint``: both URLs."""
        return ",".join(gateway.endpoint for gateway in self.both)

    @property
    def environment(self) -> dict[str, str]:
        """The credentials of the user, as environment variables."""
        return dict(self.server.environment)

    def versions(self, bucket: str, status: str) -> None:
        """Enable or suspend the versioning of a bucket; ``status`` is ``Enabled`` or ``Suspended``."""
        self.boto3(self.both[0]).put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})

    def empty(self) -> None:
        """Remove every object and unfinished upload."""
        with self.server.bucket() as bucket:
            for key, upload in bucket.uploads(""):
                bucket.abort_upload(key, upload)
            for key in bucket.keys(""):
                bucket.delete(key)

    def boto3(self, gateway: Gateway) -> Any:
        """Return a boto3 client without added checksums and without retries."""
        import boto3  # noqa: PLC0415 - it takes a second, and every worker imports this module
        from botocore.config import Config  # noqa: PLC0415

        return boto3.client(
            "s3",
            endpoint_url=gateway.endpoint,
            aws_access_key_id=_KEY,
            aws_secret_access_key=_SECRET,
            region_name="us-east-1",
            config=Config(
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                retries={"total_max_attempts": 1},
            ),
        )

    def start(self, gateway: Gateway) -> None:
        """Start a gateway, and wait until it answers."""
        served = f"--rgw-frontends=beast endpoint={_ADDRESS}:{gateway.port}"
        words = ("radosgw", "-f", "-n", f"client.rgw.{gateway.name}", "-c", self.ceph.config, served)
        running = self._running[gateway.name] = contextlib.ExitStack()
        log = self.ceph.home / f"rgw-{gateway.name}.log"
        gateway.process = running.enter_context(daemon(log, *words, ready=lambda: True))
        wait_for(gateway.answers, f"gateway {gateway.name} answers", gateway.process, log)

    def runs(self, gateway: Gateway) -> bool:
        """Whether a gateway has been started and not killed."""
        return gateway.name in self._running

    def kill(self, gateway: Gateway) -> None:
        """Kill a gateway with SIGKILL, as in a power loss of its host."""
        self._running.pop(gateway.name).close()

    @contextlib.contextmanager
    def frozen(self, gateway: Gateway) -> Iterator[None]:
        """Stop a gateway with SIGSTOP during the block. The block may also kill the gateway."""
        assert gateway.process
        os.kill(gateway.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(gateway.process.pid, signal.SIGCONT)

    def end(self) -> None:
        """End all gateways."""
        for running in self._running.values():
            running.close()

    def admin(self, *words: str) -> Any:
        """Run ``radosgw-admin``; return its answer."""
        answer = run("radosgw-admin", "-c", self.ceph.config, *words)
        return json.loads(answer) if answer.startswith(("{", "[")) else answer


@contextlib.contextmanager
def gateways() -> Iterator[Gateways]:
    """Start a cluster in memory with two gateways and an empty bucket."""
    if lacking := missing(PROGRAMS):
        pytest.skip(f"not installed: {', '.join(lacking)}")
    names = ("a", "b")
    keys = {f"client.rgw.{name}": ("mon", "mgr", "osd") for name in names}
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        with cluster(
            home, create_directory(home / "store"), address=_ADDRESS, port=free_port(), keys=keys, settings=_SETTINGS
        ) as ceph:
            first, second = (Gateway(name=name, port=free_port()) for name in names)
            server = ThirdPartyServer(
                endpoint=first.endpoint, environment={"AWS_ACCESS_KEY_ID": _KEY, "AWS_SECRET_ACCESS_KEY": _SECRET}
            )
            found = Gateways(server=server, both=(first, second), ceph=ceph)
            try:
                for gateway in found.both:
                    found.start(gateway)
                keys_of_user = (f"--access-key={_KEY}", f"--secret-key={_SECRET}")
                found.admin("user", "create", f"--uid={USER}", f"--display-name={USER}", *keys_of_user)
                is_ready(server)
                yield found
            finally:
                found.end()


@contextlib.contextmanager
def rgw() -> Iterator[ThirdPartyServer]:
    """Start two gateways of a cluster; yield the first one as a server."""
    with gateways() as found:
        yield found.server


@contextlib.contextmanager
def quota(found: Gateways, size: int) -> Iterator[None]:
    """Set a quota of ``size`` bytes on the bucket during the block."""
    scope = ("--quota-scope=bucket", f"--uid={USER}", f"--bucket={BUCKET}")
    found.admin("quota", "set", *scope, f"--max-size={size}")
    found.admin("quota", "enable", *scope)
    try:
        yield
    finally:
        found.admin("quota", "disable", *scope)
