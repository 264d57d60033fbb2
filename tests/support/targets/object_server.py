"""S3 servers for tests: a healthy server, and a faulty proxy in front of a healthy server."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

from pytest_ckpt.facts.targets import Access
from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.embedded import serve
from pytest_ckpt.targets.objects.keys import MARKER, read_prefix
from pytest_ckpt.targets.objects.wire import OF_CONTROLLER

BUCKET = "test"
TARGET = f"s3://{BUCKET}/ckpt"
# Long values, which tests can search for in all output.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "PLANTEDACCESSKEY0001",
    "AWS_SECRET_ACCESS_KEY": "planted/secret/of/the/store",
    "AWS_SESSION_TOKEN": "planted/token/of/the/session",
}
ACCOUNT = "210987654321"
CONTROL = "/_control/"

Request = Literal[
    "put", "get", "head", "delete", "list", "begin", "part", "end", "abort", "uploads", "versioning", "other"
]
RequestFault = Literal[
    "deny", "wrong key", "no bucket", "slow down", "silent", "cut", "flip", "lose", "skew", "versions", "no checksum",
    "other checksum", "expired", "full", "clock", "html", "break",
]  # fmt: skip


REFUSALS: dict[str, tuple[int, str, str]] = {
    "no bucket": (404, "NoSuchBucket", "The specified bucket does not exist"),
    "slow down": (503, "SlowDown", "Please reduce your request rate."),
    "skew": (403, "RequestTimeTooSkewed", "The difference between the request time and the time is too large"),
    "wrong key": (403, "InvalidAccessKeyId", f"{CREDENTIALS['AWS_ACCESS_KEY_ID']} does not exist in our records"),
    "expired": (400, "ExpiredToken", f"{' '.join(CREDENTIALS.values())} has expired"),
    "full": (507, "InsufficientStorage", "The disk of this server is full"),
}


@contextlib.contextmanager
def object_server() -> Iterator[str]:
    """Start a healthy server with a bucket; yield its endpoint."""
    with serve(f"{BUCKET}/ckpt", Access()) as served:
        yield served.endpoints[0]


@contextlib.contextmanager
def moto_server() -> Iterator[str]:
    """Start moto, an S3 server of another project, with a bucket; yield its endpoint."""
    program = (
        "import signal; from moto.server import ThreadedMotoServer as S; s = S('127.0.0.1', 0, verbose=False);"
        "s.start(); print(s.get_host_and_port()[1], flush=True); signal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout
        endpoint = f"http://127.0.0.1:{int(process.stdout.readline())}"
        with contextlib.closing(bucket_of(endpoint)) as bucket:
            bucket.make()
        yield endpoint
    finally:
        process.kill()
        process.communicate()


def bucket_of(endpoint: str) -> Bucket:
    """Return a client for the bucket at an endpoint."""
    return Bucket(read_prefix(BUCKET), Access(endpoints=(endpoint,), embedded="a look"), OF_CONTROLLER)


def content_of(endpoint: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return all keys of the bucket at an endpoint, and (key, upload) of all unfinished uploads."""
    with contextlib.closing(bucket_of(endpoint)) as bucket:
        return bucket.keys(""), bucket.uploads("")


@dataclass(kw_only=True)
class Fault:
    """A fault of the proxy for one kind of request. It applies to requests whose key ends with ``key``.

    The first ``skip`` of these requests succeed. The next ``times`` requests have the fault.
    """

    request: Request
    way: RequestFault
    key: str = ""
    skip: int = 0
    times: int = 1 << 30


@dataclass(kw_only=True)
class Misbehaving:
    """A faulty proxy in front of a healthy server.

    ``seen`` counts the requests, and ``asked`` lists them in order. A fault can block requests until
    ``release_blocked`` is set.
    """

    endpoint: str
    behind: str
    faults: list[Fault] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    asked: list[tuple[str, str]] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    release_blocked: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    # The fault of every request from a fault command until the repair command.
    fault_when_broken: RequestFault = "cut"
    is_broken: bool = False
    # Whether clients have no other endpoint. Then a break returns only after it has affected a request, and it spares
    # commits. A commit takes effect before its answer is lost, so such a save would be both failed and committed.
    is_only_endpoint: bool = False
    has_hit: threading.Event = field(default_factory=threading.Event)

    def command(self, word: Literal["break", "repair"]) -> list[str]:
        """Return a command line that enables (``break``) or disables (``repair``) the fault."""
        call = f"import urllib.request; urllib.request.urlopen({self.endpoint + CONTROL + word!r}).read()"
        return [sys.executable, "-c", call]

    def obey(self, word: str) -> None:
        """Enable the fault (``break``) or disable it (``repair``).

        If the proxy is the only endpoint of the clients, ``break`` returns when the fault has affected a request.
        Otherwise the method returns immediately.
        """
        self.has_hit.clear()
        self.is_broken = word == "break"
        if self.is_broken and self.is_only_endpoint:
            self.has_hit.wait()

    def fault_of(self, request: Request, key: str) -> RequestFault | None:
        """Count a request, and return the fault of this request; None if it has no fault."""
        with self.lock:
            self.seen[request] += 1
            self.asked.append((request, key.rpartition("/")[2]))
            if self.is_broken:
                is_spared = self.is_only_endpoint and key.endswith(MARKER)
                return None if is_spared else self.fault_when_broken
            for fault in self.faults:
                if fault.request == request and key.endswith(fault.key) and fault.times:
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    self.is_broken = fault.way == "break"
                    return self.fault_when_broken if self.is_broken else fault.way
        return None


@contextlib.contextmanager
def misbehaving_server(*faults: Fault, certificate: Path | None = None) -> Iterator[Misbehaving]:
    """Start a proxy with these faults in front of a healthy server; yield the proxy.

    ``certificate`` is a PEM file with a certificate and its key. With a certificate, the proxy uses TLS.
    """
    with object_server() as behind:
        server = Misbehaving(endpoint="", behind=behind, faults=list(faults))
        listener = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"rules": server}))
        listener.daemon_threads = True
        server.endpoint = f"http://127.0.0.1:{listener.server_address[1]}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            listener.socket = context.wrap_socket(listener.socket, server_side=True)
            server.endpoint = f"https://localhost:{listener.server_address[1]}"
        thread = threading.Thread(target=listener.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.release_blocked.set()
            server.has_hit.set()
            listener.shutdown()
            listener.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Forwards requests to the healthy server, except requests with a fault."""

    protocol_version = "HTTP/1.1"
    rules: Misbehaving
    minutes_ahead = 0

    def log_message(self, *_words: Any) -> None:
        """Do not log."""

    def answer(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        if url.path.startswith(CONTROL):
            self.rules.obey(url.path.removeprefix(CONTROL))
            self.send_response_only(200)
            self.finish_with(b"", None)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        way = self.rules.fault_of(kind := _kind(self.command, url), urllib.parse.unquote(url.path))
        headers = dict(self.headers.items())
        if way == "silent":
            self.rules.arrived.set()
            self.rules.release_blocked.wait()
            self.close_connection = True
            return
        if way == "deny":
            user = f"User: arn:aws:iam::{ACCOUNT}:user/x is not authorized with {CREDENTIALS['AWS_ACCESS_KEY_ID']}"
            self.refuse(403, "AccessDenied", user)
            return
        if way in REFUSALS:
            self.refuse(*REFUSALS[way])
            return
        if way == "html":
            self.send_response_only(200)
            self.finish_with(b"<html><body>It works!<br></body></html>", None)
            return
        self.minutes_ahead = 20 if way == "clock" else 0
        if way == "no checksum":
            headers = {name: value for name, value in headers.items() if "checksum" not in name}
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(self.rules.behind).netloc)
        headers.pop("Expect", None)
        connection.request(self.command, self.path, body, headers)
        reply = connection.getresponse()
        data = reply.read()
        if way == "flip" and data:
            place = len(data) // 2
            data = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
            if kind == "get":
                self.rules.has_hit.set()
        if way == "versions":
            data = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
        if way == "lose":
            # The object is acknowledged and then removed.
            connection.request("DELETE", url.path, b"", {"Authorization": headers["Authorization"]})
            connection.getresponse().read()
        connection.close()
        if way == "cut":
            self.rules.has_hit.set()
            self.close_connection = True
            return
        self.send_response_only(reply.status, reply.reason)
        for name, value in reply.getheaders():
            if way == "no checksum" and "x-amz-checksum" in name:
                continue
            if way == "other checksum" and name == "x-amz-checksum-crc32":
                self.send_header(name, "AAAAAA==")
            elif name.lower() not in {"content-length", "connection", "transfer-encoding", "date"}:
                self.send_header(name, value)
        self.finish_with(data, reply.getheader("Content-Length") if self.command == "HEAD" else None)

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer with an error in S3's XML format."""
        data = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.finish_with(b"" if self.command == "HEAD" else data, None)

    def finish_with(self, data: bytes, length: str | None) -> None:
        self.send_header("Date", formatdate(time.time() + 60 * self.minutes_ahead, usegmt=True))
        self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815


def _kind(method: str, url: urllib.parse.SplitResult) -> Request:
    query = urllib.parse.parse_qs(url.query, keep_blank_values=True)
    if method == "PUT":
        return "part" if "partNumber" in query else "put"
    if method == "POST":
        return "begin" if "uploads" in query else "end" if "uploadId" in query else "other"
    if method == "DELETE":
        return "abort" if "uploadId" in query else "delete"
    if method == "HEAD":
        return "head"
    for word, kind in (("list-type", "list"), ("uploads", "uploads"), ("versioning", "versioning")):
        if word in query:
            return kind  # type: ignore[return-value]
    return "get"
