"""Cost of the client of object stores: ``python benchmarks/objects.py --rounds 5``.

Each client sends an object of 128 MiB from memory, and reads it into memory, with 4 parts of 8 MiB at a time. The
clients are:

- ours
- ours with content: generates content before a part is sent and compares it after a part is received, as the engine
  ``stream`` does
- obstore and boto3, if installed

All clients use one server on loopback, one after another. The server stores nothing and always returns the same part.
Our client and boto3 compute checksums, as they do by default. The output consists of the medians, the ratios between
clients in the same round, and the memory that each client adds to its process.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.parse
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue

SIZE, PART, DEPTH = 128 << 20, 8 << 20, 4
KEYS = {"AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": "benchmark", "AWS_REGION": "us-east-1"}
Act = Callable[[], None]


def sent_part() -> bytearray:
    """Return the part that the server sends for every read: content as the engine stream saves it."""
    import numpy as np  # noqa: PLC0415

    from pytest_ckpt.ranks.content import Content, TensorKey  # noqa: PLC0415

    part = bytearray(PART)
    Content(1).fill(np.frombuffer(part, dtype=np.uint8), TensorKey(checkpoint=1, rank=0, tensor=0))
    return part


class Nothing(BaseHTTPRequestHandler):
    """A server that stores nothing. It discards every body, and answers every read with the same bytes."""

    protocol_version = "HTTP/1.1"
    part = memoryview(bytearray(PART))

    def log_message(self, *_words: object) -> None:
        pass

    def take(self) -> None:
        left, piece = int(self.headers.get("Content-Length") or 0), memoryview(bytearray(1 << 20))
        while left and (got := self.rfile.readinto(piece[: min(left, len(piece))])):
            left -= got

    def say(self, data: bytes = b"", status: int = 200, length: int | None = None, **headers: str) -> None:
        self.send_response_only(status)
        fields = {"ETag": '"e"', "Last-Modified": "Mon, 23 Nov 2026 05:00:00 GMT", **headers}
        for name, value in {**fields, "Content-Length": str(len(data) if length is None else length)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_PUT(self) -> None:
        self.take()
        self.say()

    def do_POST(self) -> None:
        self.take()
        begins = "uploads" in urllib.parse.urlsplit(self.path).query
        top, inside = ("Initiate", "<UploadId>u</UploadId>") if begins else ("Complete", '<ETag>"e-1"</ETag>')
        text = f"<{top}MultipartUploadResult><Bucket>test</Bucket><Key>k</Key>{inside}</{top}MultipartUploadResult>"
        self.say(text.encode(), **{"Content-Type": "application/xml"})

    def do_HEAD(self) -> None:
        self.say(length=SIZE)

    def do_GET(self) -> None:
        found = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or f"bytes=0-{SIZE - 1}")
        first, last = (int(number) for number in found.groups())
        self.say(status=206, length=last - first + 1, **{"Content-Range": f"bytes {first}-{last}/{SIZE}"})
        left = last - first + 1
        while left:
            step = min(left, PART)
            self.connection.sendall(self.part[:step])
            left -= step


def ours(url: str, data: memoryview, slots: SimpleQueue[memoryview], *, content: bool = False) -> tuple[Act, Act]:
    # Each process imports only its client, because the memory of the imports is part of the measured values.
    import numpy as np  # noqa: PLC0415

    from pytest_ckpt.facts.targets import Access  # noqa: PLC0415
    from pytest_ckpt.ranks.content import Content, TensorKey  # noqa: PLC0415
    from pytest_ckpt.targets.objects.client import Bucket  # noqa: PLC0415
    from pytest_ckpt.targets.objects.keys import read_prefix  # noqa: PLC0415

    bucket = Bucket(read_prefix("test"), Access(endpoints=(url,), part_bytes=PART))
    # One for each part in flight, as in a rank, because each compares in separate memory.
    makers: SimpleQueue[Content] = SimpleQueue()
    for number in range(DEPTH):
        makers.put(Content(1))
        place = TensorKey(checkpoint=1, rank=0, tensor=number)
        if content:
            with_maker(makers, lambda maker, place=place: maker.differing_pages(np.zeros(PART, dtype=np.uint8), place))

    def up() -> None:
        upload = bucket.begin_upload("k")

        def send(number: int) -> tuple[int, str, int]:
            part = data[number * PART : (number + 1) * PART]
            if content:
                place = TensorKey(checkpoint=1, rank=0, tensor=number)
                with_maker(makers, lambda maker: maker.fill(np.frombuffer(part, dtype=np.uint8), place))
            return (number + 1, *bucket.put_part("k", upload, number + 1, part))

        bucket.end_upload("k", upload, at_once(send))
        bucket.head("k")

    def get(number: int) -> None:
        slot = slots.get()
        bucket.read_into("k", number * PART, slot, lambda _count: None)
        if content:
            place = TensorKey(checkpoint=1, rank=0, tensor=0)
            seen = np.frombuffer(slot, dtype=np.uint8)
            assert not with_maker(makers, lambda maker: maker.differing_pages(seen, place))
        slots.put(slot)

    return up, lambda: at_once(get) and None


def with_maker(makers: SimpleQueue, act: Callable) -> object:
    maker = makers.get()
    try:
        return act(maker)
    finally:
        makers.put(maker)


def with_content(url: str, data: memoryview, slots: SimpleQueue[memoryview]) -> tuple[Act, Act]:
    return ours(url, data, slots, content=True)


def obstore(url: str, data: memoryview, slots: SimpleQueue[memoryview]) -> tuple[Act, Act]:
    import obstore  # noqa: PLC0415
    from obstore.store import S3Store  # noqa: PLC0415

    store = S3Store("test", endpoint=url, client_options={"allow_http": True}, virtual_hosted_style_request=False)

    def up() -> None:
        obstore.put(store, "k", data, chunk_size=PART, max_concurrency=DEPTH, use_multipart=True)

    def get(number: int) -> None:
        slot = slots.get()
        slot[:] = memoryview(obstore.get_range(store, "k", start=number * PART, length=PART))
        slots.put(slot)

    return up, lambda: at_once(get) and None


def boto3(url: str, data: memoryview, slots: SimpleQueue[memoryview]) -> tuple[Act, Act]:
    import boto3  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    style = {"addressing_style": "path"}
    client = boto3.client("s3", endpoint_url=url, config=Config(s3=style, max_pool_connections=DEPTH))

    def up() -> None:
        upload = client.create_multipart_upload(Bucket="test", Key="k")["UploadId"]

        def send(number: int) -> dict[str, object]:
            # boto3 does not accept a memoryview.
            body = bytes(data[number * PART : (number + 1) * PART])
            answer = client.upload_part(Bucket="test", Key="k", UploadId=upload, PartNumber=number + 1, Body=body)
            return {"PartNumber": number + 1, "ETag": answer["ETag"]}

        parts = {"Parts": at_once(send)}
        client.complete_multipart_upload(Bucket="test", Key="k", UploadId=upload, MultipartUpload=parts)

    def get(number: int) -> None:
        slot = slots.get()
        wanted = f"bytes={number * PART}-{(number + 1) * PART - 1}"
        slot[:] = client.get_object(Bucket="test", Key="k", Range=wanted)["Body"].read()
        slots.put(slot)

    return up, lambda: at_once(get) and None


def at_once(act: Callable[[int], object]) -> list:
    with ThreadPoolExecutor(DEPTH) as threads:
        return list(threads.map(act, range(SIZE // PART)))


def peak_mib() -> float:
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def measure(who: str, url: str) -> None:
    """Measure the client ``who`` in this process, and print the values as JSON. ``url`` is the URL of the server."""
    os.environ.update(KEYS)
    data = memoryview(bytearray(SIZE))
    slots: SimpleQueue[memoryview] = SimpleQueue()
    for number in range(DEPTH):
        slots.put(memoryview(bytearray(PART)))
        data[number] = 1
    for place in range(0, SIZE, 4096):
        data[place] = 1
    before = peak_mib()
    up, down = CLIENTS[who](url, data, slots)
    found: dict[str, float] = {}
    for name, act in (("save", up), ("load", down)):
        cpu, began = time.process_time(), time.perf_counter()
        act()
        found[f"{name} MB/s"] = SIZE / 1e6 / (time.perf_counter() - began)
        found[f"{name} CPU s/GiB"] = (time.process_time() - cpu) * (1 << 30) / SIZE
    print(json.dumps(found | {"memory MiB": peak_mib() - before}))


OURS, WITH_CONTENT = "ours", "ours, content made and compared"
CLIENTS = {OURS: ours, WITH_CONTENT: with_content, "obstore": obstore, "boto3": boto3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure", nargs=2)
    parser.add_argument("--serve", action="store_true")
    asked = parser.parse_args()
    if asked.serve:
        Nothing.part = memoryview(sent_part())
        server = ThreadingHTTPServer(("127.0.0.1", 0), Nothing)
        print(server.server_address[1], flush=True)
        server.serve_forever()
    if asked.measure:
        measure(*asked.measure)
        return
    others = [name for name in CLIENTS if name not in {OURS, WITH_CONTENT} and importlib.util.find_spec(name)]
    there = [OURS, WITH_CONTENT, *others]
    server = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
    rows: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in there}
    try:
        for _ in range(asked.rounds):
            for name in there:
                command = [sys.executable, __file__, "--measure", name, url]
                output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                for figure, value in json.loads(output).items():
                    rows[name][figure].append(value)
    finally:
        server.kill()
        server.wait()
    figures = list(rows[OURS])
    print(f"| client | {' | '.join(figures)} |\n{'|---' * (len(figures) + 1)}|")
    for name, row in rows.items():
        print(f"| {name} | {' | '.join(f'{statistics.median(row[figure]):.3g}' for figure in figures)} |")
    print("\nours ÷ another, of the rounds of this run: median (lowest to highest)")
    for own in (OURS, WITH_CONTENT):
        for name in others:
            for figure in ("save MB/s", "load MB/s"):
                pairs = zip(rows[own][figure], rows[name][figure], strict=True)
                shares = sorted(mine / other for mine, other in pairs)
                print(f"{own} ÷ {name} {figure}: {statistics.median(shares):.2f} ({shares[0]:.2f} to {shares[-1]:.2f})")


if __name__ == "__main__":
    main()
