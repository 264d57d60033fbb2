"""Runs the server: ``python -m pytest_ckpt.targets.objects.server``.

The server listens on a free port of the loopback interface, and prints its URL. It accepts requests without
authentication. When the server ends, its data are deleted. A run starts the server so that it ends with the run
(`embedded.Embedded`).
"""

from __future__ import annotations

import json

from pytest_ckpt.targets.objects.server.bucket_store import BucketStore
from pytest_ckpt.targets.objects.server.http import serve


def main() -> None:
    """Serve until this process is ended."""
    server = serve(BucketStore())
    print(json.dumps({"url": f"http://127.0.0.1:{server.server_address[1]}"}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
