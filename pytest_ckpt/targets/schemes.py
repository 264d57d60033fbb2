"""Selects the target for a value of --ckpt-target: a path, or ``scheme://`` and a location."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import re
from collections.abc import Mapping
from typing import Any

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.targets import TARGETS, Access, Leftover, TargetFacts, TargetSpec
from pytest_ckpt.support.errors import UsageError, nearest
from pytest_ckpt.support.references import load
from pytest_ckpt.support.user_files import user_path
from pytest_ckpt.targets.protocol import Target
from pytest_ckpt.targets.timed_calls import call_in_time

GROUP = "pytest_ckpt.targets"
"""The group of entry points by which installed packages add kinds of targets (TargetSpec)."""

NO_ACCESS = Access()
"""The `Access` of a target that has a path, or whose libraries find endpoint and credentials by themselves."""


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


def known_targets(rows: Mapping[str, TargetSpec] | None = None) -> dict[str, TargetSpec]:
    """Return {scheme: type of target}: built-in types, types from installed packages, and ``rows``.

    ``rows`` are types that plugins add. UsageError is raised for an invalid type, or if two types have the same scheme.
    """
    known = dict(TARGETS)
    for point in importlib.metadata.entry_points(group=GROUP):
        who = f"{point.dist.name} {point.dist.version}" if point.dist else point.name
        try:
            row_of_package = point.load()
        except Exception as error:
            raise UsageError(
                f"The target '{point.name}' of {who} cannot be loaded: {type(error).__name__}: {error}.",
                "Fix or uninstall the package.",
            ) from error
        add_target(known, row_of_package, who)
    for scheme, row in (rows or {}).items():
        if scheme in known and known[scheme] != row:
            raise _scheme_conflict(scheme, known[scheme], row.plugin)
        known[scheme] = row
    return known


def add_target(known: dict[str, TargetSpec], found: object, plugin: str) -> None:
    """Add a plugin's type of target to ``known``. Raises UsageError for an invalid type, or if its scheme is in use."""
    if not isinstance(found, TargetSpec) or not _SCHEME.fullmatch(f"{found.scheme}://"):
        raise UsageError(
            f"{plugin} brings {found!r:.80} as a target.", "Return a TargetSpec with a scheme, such as scheme='array'."
        )
    scheme = found.scheme.lower()
    if scheme in known:
        raise _scheme_conflict(scheme, known[scheme], plugin)
    known[scheme] = dataclasses.replace(found, scheme=scheme, plugin=plugin)


def spec_of(text: str, known: Mapping[str, TargetSpec]) -> TargetSpec:
    """Return the type of target for a value of --ckpt-target. Raises UsageError for an unknown scheme."""
    scheme, _ = split(text)
    if scheme not in known:
        schemes = [f"{name}://" for name in known if name]
        others = f", or {' or '.join(schemes)} with the rest of its address" if schemes else ""
        raise UsageError(
            f"--ckpt-target {text}: no target is known by '{scheme}://'{nearest(scheme, list(filter(None, known)))}.",
            f"Expected {TARGETS[''].help} (--ckpt-target=/mnt/array){others}; others are brought by plugins.",
        )
    return known[scheme]


def create_target(spec: TargetSpec, text: str, access: Access = NO_ACCESS) -> Target:
    """Return the target of type ``spec`` for a value of --ckpt-target. Raises UsageError for an invalid location."""
    make, (_, location) = load(spec.make), split(text)
    target: Target = make(location, access) if spec.is_remote else make(location)
    return target


def check_in_time(spec: TargetSpec, text: str, seconds: float, access: Access = NO_ACCESS) -> TargetFacts:
    """Return the facts of a target, collected in another process. Raises NoAnswerError or RefusedError."""
    return from_plain(TargetFacts, _in_time("check", spec, text, seconds, access))


def leftovers_in_time(spec: TargetSpec, text: str, seconds: float, access: Access = NO_ACCESS) -> list[Leftover]:
    """Return the files and directories of earlier runs on a target, collected in another process.

    Raises NoAnswerError or RefusedError.
    """
    return [from_plain(Leftover, one) for one in _in_time("leftovers", spec, text, seconds, access)]


def _in_time(what: str, spec: TargetSpec, text: str, seconds: float, access: Access) -> Any:
    if not split(text)[0]:
        # The other process has another working directory.
        text = str(user_path(text, "--ckpt-target"))
    request = {"what": what, "spec": to_plain(spec), "text": text, "access": to_plain(access)}
    return call_in_time("pytest_ckpt.targets.schemes:perform_request", request, seconds, imports=(spec.make,))


def perform_request(request: Mapping[str, Any]) -> Any:
    """Perform a request of `check_in_time` or `leftovers_in_time`, in the child process that they start."""
    spec, access = from_plain(TargetSpec, request["spec"]), from_plain(Access, request["access"])
    target = create_target(spec, request["text"], access)
    if request["what"] == "leftovers":
        return [to_plain(one) for one in target.leftovers()]
    return to_plain(dataclasses.replace(target.check(), plugin=spec.plugin))


def split(text: str) -> tuple[str, str]:
    """Return (scheme, location) of a value of --ckpt-target. The scheme of a path is empty."""
    match = _SCHEME.fullmatch(text)
    return (match[1].lower(), match[2]) if match else ("", text)


def _scheme_conflict(scheme: str, row: TargetSpec, plugin: str) -> UsageError:
    owner = row.plugin or "pytest-ckpt"
    return UsageError(
        f"{plugin} provides a target with the scheme {scheme}://, which belongs to {owner}.",
        "Run without one of them, or give the target another scheme.",
    )
