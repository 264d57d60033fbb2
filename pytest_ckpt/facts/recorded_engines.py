"""Engines as plans and reports keep them: enough to judge again where their packages are not. Pure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.engines import EngineSpec, MemoryRule
from pytest_ckpt.facts.file_rules import FileRule, JobPattern
from pytest_ckpt.facts.pattern import read_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping


def recorded_engine(plain: Mapping[str, Any]) -> EngineSpec:
    """Return an engine as a plan or report keeps it; it cannot be run.

    Raises KeyError, TypeError for another form, and ValueError for a pattern that is none or has another digest.
    """
    named = plain.get("files") or {}
    return EngineSpec(
        name=plain["name"],
        help="",
        make="",
        memory=MemoryRule(
            process_bytes=int(plain["process_bytes"]),
            state_share=float(plain["state_share"]),
            file_share=float(plain.get("file_share", 0.0)),
        ),
        commits=plain["commits"],
        is_collective=plain["is_collective"],
        stages=bool(plain.get("stages", False)),
        files=FileRule(
            of_rank=named.get("of_rank", ""),
            shared=tuple(named.get("shared", ())),
            passing=tuple(named.get("passing", ())),
            maximum_bytes=int(named.get("maximum_bytes", 0)),
            pattern=_kept_pattern(named["pattern"]) if "pattern" in named else None,
            writers=int(named.get("writers", 1)),
            consolidated=named.get("consolidated", ""),
            commit=named.get("commit", ""),
        ),
        owner=plain["owner"],
        replays="pattern" in named,
    )


def _kept_pattern(plain: Mapping[str, str]) -> JobPattern:
    kept = JobPattern(**plain)
    if hashlib.sha256(kept.text.encode()).hexdigest() != kept.sha256:
        raise ValueError(f"the pattern of {kept.file} does not have the digest that stands beside it")
    read_pattern(kept.text)
    return kept
