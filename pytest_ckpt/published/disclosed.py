"""What a result folder discloses beside its times: where it was run from, with what, and who says so. Pure.

mlpstorage writes it into its metadata; rules of a submission ask for it, and no time is judged by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EXPORT = "pytest_ckpt_export"
"""The table of the metadata that says that a folder is an export of a run of ours."""

_MAXIMUM_NAMES = 1_000
_MAXIMUM_SLOTS, _MAXIMUM_DIGITS = 16_384, 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Disclosed:
    """What mlpstorage's metadata and the summary say of an invocation; None or empty where they do not.

    ``changed_parameters`` are the names of what was overridden, None where nothing says whether anything was.
    ``slots`` are the processes of each host. ``started`` is when the command was called, ``ended`` when its summary
    was written; both without a zone. ``exported_by`` is our version, for an export of a run of ours.
    """

    has_metadata: bool = False
    accelerator: str = ""
    result_folder: str = ""
    changed_parameters: tuple[str, ...] | None = None
    slots: tuple[int, ...] = ()
    started: str = ""
    ended: str = ""
    exported_by: str = ""


def disclosed_of(metadata: Mapping[str, Any], summary: Mapping[str, Any]) -> Disclosed:
    """Return what the metadata and the summary of one invocation disclose; both may be empty."""
    args = metadata.get("args")
    fields = {**(args if isinstance(args, dict) else {}), **metadata}
    changed = metadata.get("override_parameters")
    export = metadata.get(EXPORT)
    return Disclosed(
        has_metadata=bool(metadata),
        accelerator=_text(fields.get("accelerator")) or _text(fields.get("accelerator_type")),
        result_folder=_text(fields.get("result_dir")) or _text(fields.get("results_dir")),
        changed_parameters=tuple(map(str, list(changed)[:_MAXIMUM_NAMES])) if isinstance(changed, dict) else None,
        slots=_slots(fields.get("hosts")),
        started=_text(metadata.get("invocation_start_time")),
        ended=_text(summary.get("end")) or _text(summary.get("end_time")),
        exported_by=f"pytest-ckpt {_text(export.get('version'))}".strip() if isinstance(export, dict) else "",
    )


def _slots(hosts: Any) -> tuple[int, ...]:
    """Return the processes of each host from ``name:slots``; empty unless every host says so."""
    words = [_text(host) for host in hosts] if isinstance(hosts, list) else []
    counts = [word.rpartition(":")[2] for word in words[:_MAXIMUM_SLOTS]]
    if not words or not all(":" in word for word in words) or not all(_is_count(c) for c in counts):
        return ()
    return tuple(map(int, counts))


def _is_count(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= _MAXIMUM_DIGITS


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
