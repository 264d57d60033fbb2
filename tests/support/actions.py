"""Writes the file that the option --ckpt-actions names. The file contains commands that change the storage."""

from __future__ import annotations

import hashlib
import json
import os

from pytest_ckpt.facts.options import ACTIONS, OPTIONS
from tests.support import CHECKOUT


def actions(**commands: str) -> str:
    """Write a file of actions and return the option that names the file.

    Each keyword is the key of an option, such as ``fault_command``. Its value is the user's command.
    """
    rows = {option.key: option for option in OPTIONS if option.parent == ACTIONS}
    tables: dict[str, list[str]] = {}
    for key, command in commands.items():
        tables.setdefault(rows[key].owners[0], []).append(f"{rows[key].name} = {json.dumps(command)}")
    text = "".join(f"[{table}]\n" + "\n".join([*lines, ""]) for table, lines in tables.items())
    # The name is derived from the content, so processes that concurrently write the same file do not conflict. Hosts of
    # the lab have separate /tmp directories and share the checkout.
    file = CHECKOUT / ".pytest_cache" / "actions" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.toml"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(text)
        part.replace(file)
    return f"--ckpt-{ACTIONS}={file}"
