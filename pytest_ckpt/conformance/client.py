"""A second client of the same storage: a process elsewhere, or on another mount here, that does what it is told."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class Client:
    """Sends one request at a time to an agent and returns its answer. ``command`` starts the agent."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", "pytest_ckpt.conformance.agent")) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, action: str, path: str, **details: Any) -> Any:
        """Have the agent do something and return what it answers. Raises OSError with its errno when a call failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"action": action, "path": path, **details}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise ConnectionError("the second client is gone")
        answer = json.loads(line)
        if "errno" in answer:
            raise OSError(answer["errno"], answer["strerror"], path)
        return answer["result"]

    def read(self, path: str) -> bytes:
        """Open, read all and close a file on the other client."""
        return base64.b64decode(self.ask("read", path))

    def close(self) -> None:
        """End the agent."""
        self._process.kill()
        self._process.wait()
