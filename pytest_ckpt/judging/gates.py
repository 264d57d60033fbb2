"""Gate tables: which requirements a certificate requires, and their limits. Pure.

A table is either built in or written by a user, for example a vendor. A user's table extends a built-in table. It may
require less than the built-in table, but every relaxation is reported.

The gate kind of a requirement is "required", "where given", "advisory", "advisory where given" or "off". A row sets the
gate kind of one requirement, one check, all requirements of a suite, or all checks with the same need. Therefore a new
requirement or check does not need its own row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, get_args

from pytest_ckpt.facts.bounds import Bounds
from pytest_ckpt.facts.gate_tables import GATE_TABLES
from pytest_ckpt.facts.proofs import COLD_BASES
from pytest_ckpt.judging.clients import read_demand
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.support.errors import nearest
from pytest_ckpt.support.user_files import parse_toml

GateKind = Literal["required", "where given", "advisory", "advisory where given", "off"]
"""How a gate table treats a requirement.

``where given``: required if the run has the needed inputs (a second client, a power cut), otherwise omitted.
"""

_OneKind = Annotated[str, Bounds(pattern=f"^({'|'.join(get_args(GateKind))})$")]

_STRENGTH: Mapping[str, int] = {kind: strength for strength, kind in enumerate(reversed(get_args(GateKind)))}
_KEYS = ("gate", "limit")


@dataclass(frozen=True, kw_only=True, slots=True)
class GateDefault:
    """The default gate kind and limit of a name that a table may use.

    If the name is a requirement, ``suite`` is its suite. If the name is a check, ``needs`` is the input that the check
    requires.
    """

    gate: str
    limit: float | None
    suite: str = ""
    needs: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gates:
    """The gate table of a run.

    - ``kinds``, ``limits``: {requirement id or ``id.subject``: gate kind or limit}. Other requirements keep the values
      of the catalogue.
    - ``certifies``: a certificate is possible. False if the table weakens a row that its base table requires.
    - ``lacks``: why a built-in table cannot certify, as the end of a sentence that begins with the table's name.
    - ``remedy``: what the user can do if a built-in table cannot certify.
    - ``relaxed``: a sentence for every row that is weaker than in the base table.
    - ``up_to``: the name of a model. A certificate must include the full checkpoint of this model, or a larger one.
      None if any model is permitted.
    - ``cold_bases``: the permitted proofs for COLD.
    - ``extends``: the built-in table that a user's table extends; empty for a built-in table.
    - ``clients``: demands on each host that runs ranks (`judging.clients`).
    - ``requires_system``: a run is refused if the vendor's description of the system lacks required facts.
    """

    name: str
    text: str
    certifies: bool = True
    lacks: str = ""
    remedy: str = ""
    up_to: str | None = None
    kinds: dict[str, _OneKind] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    relaxed: tuple[str, ...] = ()
    cold_bases: tuple[str, ...] = tuple(COLD_BASES)
    extends: str = ""
    clients: tuple[str, ...] = ()
    requires_system: bool = False

    @property
    def table(self) -> str:
        """The name of the built-in table: this table, or the table that this table extends."""
        return self.extends or self.name

    def kind(self, requirement: str, subject: str, default: str) -> str:
        """Return the gate kind of a requirement for a subject; ``default`` if the table does not set it."""
        return self.kinds.get(f"{requirement}.{subject}", self.kinds.get(requirement, default))

    def limit(self, requirement: str, subject: str, default: float | None) -> float | None:
        """Return the limit of a requirement for a subject; ``default`` if the table does not set it."""
        return self.limits.get(f"{requirement}.{subject}", self.limits.get(requirement, default))


_TOP_KEYS = (
    "name", "text", "extends", "certifies", "lacks", "remedy", "up_to", "cold_bases", "clients", "suites", "needs",
    "requirements", "requires_system",
)  # fmt: skip


def read_gates(
    text: str, defaults: Mapping[str, GateDefault], base: Callable[[str], Gates], *, ships: bool = False
) -> Gates:
    """Return the table that a TOML text describes. Raises ValueError with a sentence about the error.

    - ``defaults``: {name: values of the catalogue} for every known name (``ID`` and ``ID.subject``).
    - ``base``: a function that returns a built-in table by its name. It is called if the text extends a table.
    - ``ships``: the text is a built-in table. A built-in table need not extend another table. It may require less than
      its base table, because it is for another kind of storage.
    """
    table = parse_toml(text)
    _known(table, _TOP_KEYS, "key")
    kinds, limits = _rows(table.get("requirements", {}), defaults)
    suites = _spread_rows(
        table, "suites", {name: known.suite for name, known in defaults.items() if known.suite}, defaults
    )
    needs = _spread_rows(
        table, "needs", {name: known.needs for name, known in defaults.items() if known.needs}, defaults
    )
    kinds = suites | needs | kinds
    name = str(table.get("name", ""))
    if not name:
        raise ValueError("it has no name")
    words = str(table.get("text", ""))
    up_to = _model(table.get("up_to"))
    bases = _bases(table.get("cold_bases"))
    clients = _demands(table.get("clients", []))
    if not isinstance(requires_system := table.get("requires_system", False), bool):
        raise ValueError(f"requires_system is {requires_system!r}; expected true or false")
    extends = str(table.get("extends", ""))
    if not ships:
        if extends not in GATE_TABLES:
            raise ValueError(f'it must extend one of {", ".join(GATE_TABLES)}, such as extends = "posix-shared"')
        if shipped := next((word for word in GATE_TABLES if _begins_like(name, word)), None):
            raise ValueError(
                f"its name, {name}, begins with the name of a built-in table ({shipped}), and a reader would confuse "
                "them: choose a different name"
            )
    below = base(extends) if extends else Gates(name=name, text=words)
    found = replace(
        below,
        name=name,
        text=words,
        up_to=up_to,
        kinds=below.kinds | _spread(kinds, below.kinds),
        limits=below.limits | limits,
        cold_bases=bases or below.cold_bases,
        clients=tuple(dict.fromkeys((*below.clients, *clients))),
        requires_system=requires_system or below.requires_system,
    )
    if ships:
        return replace(
            found,
            certifies=bool(table.get("certifies", below.certifies)),
            lacks=str(table.get("lacks", below.lacks)),
            remedy=str(table.get("remedy", below.remedy)),
        )
    relaxations = (*_relaxations(kinds, limits, below, defaults), *_weaker(bases, below))
    return replace(
        found,
        certifies=below.certifies and not any(r.of_required for r in relaxations),
        relaxed=tuple(r.sentence for r in relaxations),
        extends=extends,
    )


def with_relaxations(gates: Gates, own: Gates, defaults: Mapping[str, GateDefault]) -> Gates:
    """Return ``gates`` after a comparison with ``own``, the built-in table for the target's kind.

    If ``gates`` weakens rows that ``own`` requires, the result cannot certify. The field ``relaxed`` of the result then
    names these rows.
    """
    if not gates.certifies or gates.table == own.name:
        return gates
    parents = {name.partition(".")[0] for name in defaults if "." in name}
    leaves = {name: known for name, known in defaults.items() if name not in parents}
    kinds = {name: gates.kind(*_split(name), known.gate) for name, known in leaves.items()}
    limits = {name: limit for name in leaves if (limit := gates.limit(*_split(name), None)) is not None}
    found = [
        *_relaxations(kinds, limits, own, leaves),
        *_weaker(gates.cold_bases, own),
    ]
    names = dict.fromkeys(r.sentence.partition(" ")[0] for r in found if r.of_required)
    if not names:
        return gates
    sentence = f"The table of this target is {own.name}, which requires more: {', '.join(names)}."
    return replace(gates, certifies=False, relaxed=(*gates.relaxed, sentence))


def _begins_like(name: str, shipped: str) -> bool:
    """Whether a reader would confuse ``name`` with ``shipped``, the name of a built-in table.

    This is the case if ``name`` equals ``shipped``, or begins with ``shipped`` and a separator.
    """
    given = name.strip().lower()
    return given.startswith(shipped) and not given[len(shipped) :][:1].isalnum()


def _rows(table: Any, defaults: Mapping[str, GateDefault]) -> tuple[dict[str, str], dict[str, float]]:
    if not isinstance(table, dict):
        raise ValueError("[requirements] is not a table")
    kinds: dict[str, str] = {}
    limits: dict[str, float] = {}
    for name, row in table.items():
        _known((name,), defaults, "requirement")
        if not isinstance(row, dict):
            raise ValueError(f'{name} needs a table such as {{ gate = "advisory" }}')
        _known(row, _KEYS, f"key of {name}")
        if "gate" in row:
            _known((row["gate"],), get_args(GateKind), f"gate of {name}")
            kinds[name] = row["gate"]
        if "limit" in row:
            limits[name] = _limit(name, row["limit"], defaults)
    return kinds, limits


def _spread_rows(
    table: Mapping[str, Any], part: str, members: Mapping[str, str], defaults: Mapping[str, GateDefault]
) -> dict[str, str]:
    """Return {requirement or check: gate kind}, derived from the rows of groups.

    ``part`` is the part of ``table`` with these rows: suites or needs. ``members`` is {requirement or check: its
    group}.
    """
    rows = table.get(part, {})
    if not isinstance(rows, dict):
        raise ValueError(f"[{part}] is not a table")
    kinds: dict[str, str] = {}
    for group, row in rows.items():
        _known((group,), dict.fromkeys(members.values()), f"name in [{part}]")
        if not isinstance(row, dict) or set(row) != {"gate"}:
            raise ValueError(f'{group} needs a table such as {{ gate = "advisory" }}')
        _known((row["gate"],), get_args(GateKind), f"gate of {group}")
        kinds |= {name: _spread_kind(row["gate"], defaults[name].gate) for name, of in members.items() if of == group}
    return kinds


def _spread_kind(kind: str, default: str) -> str:
    """Return the gate kind of a member of a group, from the group's ``kind`` and the member's ``default``.

    An advisory member of a group "where given" becomes "advisory where given".
    """
    return f"advisory {kind}" if (kind, default) == ("where given", "advisory") else kind


def _limit(name: str, value: Any, defaults: Mapping[str, GateDefault]) -> float:
    if defaults[name].limit is None:
        raise ValueError(f"{name} has no separate limit that a table could set")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"the limit of {name} is {value!r}; it must be a number above 0")
    return float(value)


def _spread(kinds: Mapping[str, str], below: Mapping[str, str]) -> dict[str, str]:
    """Return ``kinds``, extended by checks in ``below`` whose requirement has a row in ``kinds``.

    Such a check has the gate kind of its requirement. If ``kinds`` has a row for the check itself, this row applies.
    """
    whole = {f: kinds[f.partition(".")[0]] for f in below if f.partition(".")[0] in kinds and f not in kinds}
    return whole | dict(kinds)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Relaxation:
    """A row that is weaker than in the base table.

    ``of_required``: the base table requires the row for a certificate.
    """

    sentence: str
    of_required: bool


def _relaxations(
    kinds: Mapping[str, str],
    limits: Mapping[str, float],
    below: Gates,
    defaults: Mapping[str, GateDefault],
) -> Iterable[_Relaxation]:
    for name, kind in kinds.items():
        before = _strongest(name, below, defaults)
        if _STRENGTH[kind] < _STRENGTH[before]:
            yield _Relaxation(
                sentence=f"{name} is {kind} ({below.name}: {before}).",
                of_required=_STRENGTH[before] >= _STRENGTH["where given"],
            )
    for name, limit in limits.items():
        before_limit = below.limit(*_split(name), defaults[name].limit)
        if before_limit is not None and limit > before_limit:
            yield _Relaxation(
                sentence=f"The limit of {name} is {limit:g} ({below.name}: {before_limit:g}).",
                of_required=_STRENGTH[_strongest(name, below, defaults)] >= _STRENGTH["where given"],
            )


def _model(name: Any) -> str | None:
    if name is None:
        return None
    _known((name,), MODELS, "model of up_to")
    return str(name)


def _bases(names: Any) -> tuple[str, ...]:
    if names is None:
        return ()
    if not isinstance(names, list) or not names:
        raise ValueError(f"cold_bases is not a list of proofs, such as {list(COLD_BASES)[:3]}")
    _known(names, COLD_BASES, "proof of cold_bases")
    return tuple(names)


def _demands(texts: Any) -> tuple[str, ...]:
    if not isinstance(texts, list):
        raise ValueError('clients is not a list of demands, such as ["client.nconnect >= 8"]')
    return tuple(read_demand(text).text for text in texts)


def _weaker(bases: Sequence[str], below: Gates) -> Iterable[_Relaxation]:
    if more := [base for base in bases if base not in below.cold_bases]:
        sentence = f"COLD may rest on {', '.join(more)} ({below.name}: {', '.join(below.cold_bases)})."
        yield _Relaxation(sentence=sentence, of_required=True)


def _strongest(name: str, below: Gates, defaults: Mapping[str, GateDefault]) -> str:
    """Return the gate kind of a name in the base table ``below``.

    If the name is a requirement with checks, return the strictest gate kind of the requirement and its checks.
    """
    parts = [name] if "." in name else [n for n in defaults if n == name or n.startswith(name + ".")]
    return max((below.kind(*_split(n), defaults[n].gate) for n in parts), key=_STRENGTH.__getitem__)


def _split(name: str) -> tuple[str, str]:
    id_, _, subject = name.partition(".")
    return id_, subject


def _known(names: Iterable[str], known: Iterable[str], what: str) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            raise ValueError(f"'{name}' is not a known {what}{nearest(str(name), known)}")
