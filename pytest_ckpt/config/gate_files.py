"""Gate tables and waivers from TOML files: built-in tables, and files of the user."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pytest_ckpt.facts.gate_tables import GATE_TABLES
from pytest_ckpt.grading.catalogue import REQUIREMENTS, chosen_suites, known_names
from pytest_ckpt.judging.gates import Gates, read_gates, with_relaxations
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.waivers import Waiver, read_waivers
from pytest_ckpt.support import resources
from pytest_ckpt.support.errors import UsageError, nearest
from pytest_ckpt.support.user_files import read_user_text, user_path

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pytest_ckpt.facts.settings import Settings


# A table for object stores has no requirements on file systems, so on a file system a run could not fail them.
_OF_OBJECTS, _OF_ANY = ("object", "object-local"), "speed-only"
# A store on this host is judged, but it cannot be certified.
_NEAR = "object-local"


def settle(
    settings: Settings, gate_kind: str, catalogue: Mapping[str, Requirement] = REQUIREMENTS
) -> tuple[Settings, Gates]:
    """Return (the settings, the gate table that the settings select).

    ``gate_kind`` is the gate table that "auto" selects for the target.
    If the suites in the given settings are "auto", the returned settings contain the suites that the gate table
    requires.
    """
    gates = load_gates(settings.gate_table, gate_kind, catalogue)
    return dataclasses.replace(settings, suites=chosen_suites(settings, gates, catalogue)), gates


def load_waivers(path: str | None, known: Mapping[str, Collection[str]]) -> tuple[Waiver, ...]:
    """Return the waivers in the file ``path``; empty without a file. Raises UsageError for an invalid file.

    ``known`` maps each requirement of the run to its subjects. A waiver that names any other requirement or subject is
    invalid.
    """
    if path is None:
        return ()
    try:
        return read_waivers(read_user_text(user_path(path, "--ckpt-waivers")), known)
    except OSError as error:
        raise UsageError(f"--ckpt-waivers {path}: it cannot be read: {error.strerror}.", "Name a TOML file.") from None
    except ValueError as error:
        raise UsageError(
            f"--ckpt-waivers {path}: {error}.",
            "Expected tables [[waive]], each with requirement, subject, reason and expires (such as 2027-03-31).",
        ) from None


def built_in(name: str) -> Gates:
    """Return the built-in gate table with this name."""
    text = (resources.directory("templates") / "gates" / f"{name}.toml").read_text()
    return read_gates(text, known_names(), built_in, ships=True)


def load_gates(word: str, gate_kind: str, catalogue: Mapping[str, Requirement] = REQUIREMENTS) -> Gates:
    """Return the gate table that ``word``, the value of ``--ckpt-gate-table``, selects.

    The value is "auto" (the built-in table for ``gate_kind``), the name of a built-in table, or a file. A file may
    contain requirements of plugins that are in ``catalogue``. Raises UsageError for an unknown table, and for a table
    that does not apply to the target.
    """
    gates = _named_gates(word, gate_kind, catalogue)
    if gate_kind in _OF_OBJECTS and gates.table not in (*_OF_OBJECTS, _OF_ANY):
        raise UsageError(
            f"--ckpt-gate-table {word}: the table {gates.table} is for file systems, and the target is an "
            "object store.",
            f"Use {', '.join(_OF_OBJECTS)}, {_OF_ANY}, or your own table that extends one of them.",
        )
    if gate_kind and gate_kind not in _OF_OBJECTS and gates.table in _OF_OBJECTS:
        raise UsageError(
            f"--ckpt-gate-table {word}: the table {gates.table} is for object stores, and the target is a file system.",
            "Use auto, or your own table that extends one for file systems.",
        )
    if gate_kind == _NEAR and gates.table not in (_NEAR, _OF_ANY):
        raise UsageError(
            f"--ckpt-gate-table {word}: the table {gates.table} is for stores on other hosts, and the endpoint is on "
            "this one.",
            f"Name an endpoint on another host, or take {_NEAR}, {_OF_ANY}, or a table that extends one of them.",
        )
    if gate_kind not in GATE_TABLES:
        return gates
    # Some requirements are judged only if an option supplies a command. For these, "required" and "where given" are
    # equivalent.
    applicable = {name: known for name, known in known_names(catalogue).items() if not _needs_input(name, catalogue)}
    return with_relaxations(gates, built_in(gate_kind), applicable)


def _needs_input(name: str, catalogue: Mapping[str, Requirement]) -> bool:
    return name in catalogue and bool(catalogue[name].not_given)


def _named_gates(word: str, gate_kind: str, catalogue: Mapping[str, Requirement]) -> Gates:
    if word == "auto":
        return built_in(gate_kind)
    if word in GATE_TABLES:
        return built_in(word)
    path = user_path(word, "--ckpt-gate-table")
    if path.suffix != ".toml":
        raise UsageError(
            f"--ckpt-gate-table {word}: unknown table{nearest(word, GATE_TABLES)}.",
            f"Valid values: {', '.join(GATE_TABLES)}; your own table is a file that ends in .toml.",
        )
    try:
        return read_gates(read_user_text(path), known_names(catalogue), built_in)
    except OSError as error:
        raise UsageError(
            f"--ckpt-gate-table {word}: it cannot be read: {error.strerror}.", "Name a TOML file."
        ) from None
    except ValueError as error:
        raise UsageError(
            f"--ckpt-gate-table {word}: {error}.",
            'Expected name, text, extends = "posix-shared" (or another table), and below [requirements] lines such as '
            'STALE = { gate = "required", limit = 1.0 }.',
        ) from None
