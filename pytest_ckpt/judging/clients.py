"""Demands of gate tables on clients, such as ``client.nconnect >= 8``: every host must verifiably meet them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_ckpt.support.units import counted

Clients = Mapping[str, Mapping[str, str]]
"""The facts of each host that ran ranks, by its name."""

PREFIX = "client."
GATES_DEMAND = "The gates demand "
"""How each sentence on a demand that is not met begins."""
# Longer ones first: ">=" begins with ">".
_OPERATORS = (">=", "<=", "==", "!=", ">", "<")
_BEFORE_A_SUFFIX = "-+_~"
_EXAMPLE = '"client.nconnect >= 8"'
# Facts that differ between clients by their nature.
_OWN = frozenset(("addr", "clientaddr", "mountaddr", "localaddr", "port", "mountport", "fd", "user_id", "group_id"))
_MAXIMUM_SHOWN = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """One demand: the name of a fact, the comparison, and the required value."""

    text: str
    name: str
    operator: str
    value: str

    def holds(self, fact: str) -> bool | None:
        """Whether a fact meets the demand; None if the demand is a number and the fact is not."""
        here, there = _numbers(fact), _numbers(self.value)
        if self.operator in ("==", "!="):
            same = here == there if here and there else fact == self.value
            return same == (self.operator == "==")
        # Releases continue after their numbers: 6.8.0-40-generic, 2.15.3_ddn12.
        here = here or _numbers(_release(fact))
        if here is None or there is None:
            return None
        return {">=": here >= there, "<=": here <= there, ">": here > there, "<": here < there}[self.operator]


def read_demand(text: Any) -> Demand:
    """Return the demand of a text. Raises ValueError with the reason if it is invalid."""
    if not isinstance(text, str) or not text.startswith(PREFIX):
        raise ValueError(f"{text!r:.80} is no demand of clients, such as {_EXAMPLE}")
    operator = next((operator for operator in _OPERATORS if operator in text), "")
    name, _, value = text.removeprefix(PREFIX).partition(operator) if operator else ("", "", "")
    name, value = name.strip(), value.strip()
    if not name or not value or any(sign in name + value for sign in "<>=!"):
        raise ValueError(f"{text!r:.80} has no name, sign and value, such as {_EXAMPLE}")
    if operator not in ("==", "!=") and _numbers(value) is None:
        raise ValueError(f"{text!r:.80} compares with {value!r:.40}, which is no number")
    return Demand(text=text, name=name, operator=operator, value=value)


def unmet_demands(demands: Sequence[str], clients: Clients) -> list[str]:
    """Return a sentence for each demand that some host does not meet, or of which a host's fact is missing."""
    found = []
    for text in demands:
        demand = read_demand(text)
        fields: dict[str, list[str]] = {}
        for host, facts in clients.items():
            fact = facts.get(demand.name)
            if fact is None:
                fields.setdefault("is not known", []).append(host)
            elif (holds := demand.holds(fact)) is None:
                fields.setdefault(f"is {fact:.60}, no number,", []).append(host)
            elif not holds:
                fields.setdefault(f"is {fact:.60}", []).append(host)
        if not clients:
            fields["is not known of any client"] = []
        if fields:
            shown = "; ".join(f"it {what}{_on(hosts)}" for what, hosts in fields.items())
            found.append(f"{GATES_DEMAND}{text}, and {shown}.")
    return found


def differences(clients: Clients) -> list[str]:
    """Return a sentence for each fact in which hosts differ; a missing fact is a difference, too."""
    found = []
    for name in dict.fromkeys(name for facts in clients.values() for name in facts):
        if name in _OWN:
            continue
        values: dict[str, list[str]] = {}
        for host, facts in clients.items():
            values.setdefault(facts.get(name, "not known"), []).append(host)
        if len(values) > 1:
            found.append(f"clients differ in {name}: " + "; ".join(f"{v:.60}{_on(h)}" for v, h in values.items()))
    return found


def clients_of(environment: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the facts of each host of a report's environment; unknown facts are missing."""
    found = {}
    for host in environment.get("hosts") or ():
        facts = dict(host.get("client") or {})
        for name in ("kernel", "cpu"):
            if host.get(name):
                facts[name] = str(host[name]).removeprefix("Linux ")
        if host.get("cores"):
            facts["cores"] = str(host["cores"])
        if host.get("memory_bytes"):
            facts["memory_gib"] = f"{host['memory_bytes'] / 2**30:.1f}"
        found[str(host["host"])] = facts
    return found


def named_hosts(hosts: Sequence[str]) -> str:
    """Return the names of some hosts, and of how many more there are."""
    more = f" and {counted(len(hosts) - _MAXIMUM_SHOWN, 'more host')}" if len(hosts) > _MAXIMUM_SHOWN else ""
    return f"{', '.join(hosts[:_MAXIMUM_SHOWN])}{more}"


def _on(hosts: Sequence[str]) -> str:
    return f" on {named_hosts(hosts)}" if hosts else ""


def _release(text: str) -> str:
    for sign in _BEFORE_A_SUFFIX:
        text = text.partition(sign)[0]
    return text


def _numbers(text: str) -> tuple[int, ...] | None:
    """Return the numbers of ``8``, ``4.1`` or ``6.8.0``, to be compared one by one; None if there are no numbers."""
    parts = text.split(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in parts):
        return None
    found = [int(part) for part in parts]
    while len(found) > 1 and not found[-1]:
        found.pop()
    return tuple(found)
