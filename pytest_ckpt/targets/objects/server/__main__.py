"""``python -m pytest_ckpt.targets.objects.server``: serve on a free port of the loopback interface, and print its URL.

The server ends with the process that started it, and then deletes its data. It does not authenticate.
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
