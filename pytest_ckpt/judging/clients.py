"""Demands of gate tables on clients (``client.nconnect >= 8``), and evidence on a client's fsync and clock. Pure.

A client is a host that runs ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.proofs import unsafe_options
from pytest_ckpt.support.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.facts.proofs import ClientProofs, ClockSpan, FsyncEffect, Interposed, RankSpan


Clients = Mapping[str, Mapping[str, str]]
"""The facts of each host that ran ranks, by host name."""

PREFIX = "client."
GATES_DEMAND = "The gate table demands "
"""The first words of every sentence about an unmet demand on clients."""
# Longer operators come first, because ">=" begins with ">".
_OPERATORS = (">=", "<=", "==", "!=", ">", "<")
_BEFORE_A_SUFFIX = "-+_~"
_EXAMPLE = '"client.nconnect >= 8"'
# Facts that differ between any two clients.
_OWN = frozenset(("addr", "clientaddr", "mountaddr", "localaddr", "port", "mountport", "fd", "user_id", "group_id"))
_MAXIMUM_SHOWN = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """One demand on a client: the name of a fact, the comparison, and the required value."""

    text: str
    name: str
    operator: str
    value: str

    def is_met_by(self, fact: str) -> bool | None:
        """Whether a fact meets the demand. None if the comparison requires a number and the fact is not a number."""
        here, there = _numbers(fact), _numbers(self.value)
        if self.operator in ("==", "!="):
            same = here == there if here and there else fact == self.value
            return same == (self.operator == "==")
        # Text may follow the numbers of a release: 6.8.0-40-generic, 2.15.3_ddn12.
        here = here or _numbers(_release(fact))
        if here is None or there is None:
            return None
        return {">=": here >= there, "<=": here <= there, ">": here > there, "<": here < there}[self.operator]


def read_demand(text: Any) -> Demand:
    """Return the demand that a text describes. Raises ValueError with the reason if the text is invalid."""
    if not isinstance(text, str) or not text.startswith(PREFIX):
        raise ValueError(f"{text!r:.80} is not a demand of clients, such as {_EXAMPLE}")
    operator = next((operator for operator in _OPERATORS if operator in text), "")
    name, _, value = text.removeprefix(PREFIX).partition(operator) if operator else ("", "", "")
    name, value = name.strip(), value.strip()
    if not name or not value or any(sign in name + value for sign in "<>=!"):
        raise ValueError(f"{text!r:.80} has no name, sign and value, such as {_EXAMPLE}")
    if operator not in ("==", "!=") and _numbers(value) is None:
        raise ValueError(f"{text!r:.80} compares with {value!r:.40}, which is not a number")
    return Demand(text=text, name=name, operator=operator, value=value)


def unmet_demands(demands: Sequence[str], clients: Clients) -> list[str]:
    """Return a sentence for each demand that a host does not meet, or whose fact is missing for a host."""
    sentences = []
    for text in demands:
        demand = read_demand(text)
        fields: dict[str, list[str]] = {}
        for host, facts in clients.items():
            fact = facts.get(demand.name)
            if fact is None:
                fields.setdefault("is not known", []).append(host)
            elif (is_met_by := demand.is_met_by(fact)) is None:
                fields.setdefault(f"is {fact:.60}, no number,", []).append(host)
            elif not is_met_by:
                fields.setdefault(f"is {fact:.60}", []).append(host)
        if not clients:
            fields["is not known of any client"] = []
        if fields:
            shown = "; ".join(f"it {what}{_on(hosts)}" for what, hosts in fields.items())
            sentences.append(f"{GATES_DEMAND}{text}, and {shown}.")
    return sentences


def differences(clients: Clients) -> list[str]:
    """Return a phrase for each fact that differs between clients. A missing fact counts as a difference."""
    sentences = []
    for name in dict.fromkeys(name for facts in clients.values() for name in facts):
        if name in _OWN:
            continue
        values: dict[str, list[str]] = {}
        for host, facts in clients.items():
            values.setdefault(facts.get(name, "not known"), []).append(host)
        if len(values) > 1:
            sentences.append(f"clients differ in {name}: " + "; ".join(f"{v:.60}{_on(h)}" for v, h in values.items()))
    return sentences


def clients_of(environment: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return {host: facts} from a report's environment. Unknown facts are left out."""
    facts_of_hosts = {}
    for host in environment.get("hosts") or ():
        facts = dict(host.get("client") or {})
        for name in ("kernel", "cpu"):
            if host.get(name):
                facts[name] = str(host[name]).removeprefix("Linux ")
        if host.get("cores"):
            facts["cores"] = str(host["cores"])
        if host.get("memory_bytes"):
            facts["memory_gib"] = f"{host['memory_bytes'] / 2**30:.1f}"
        facts_of_hosts[str(host["host"])] = facts
    return facts_of_hosts


def named_hosts(hosts: Sequence[str]) -> str:
    """Return a phrase with the names of the first hosts, and the number of the other hosts."""
    more = f" and {counted(len(hosts) - _MAXIMUM_SHOWN, 'more host')}" if len(hosts) > _MAXIMUM_SHOWN else ""
    return f"{', '.join(hosts[:_MAXIMUM_SHOWN])}{more}"


def _on(hosts: Sequence[str]) -> str:
    return f" on {named_hosts(hosts)}" if hosts else ""


def _release(text: str) -> str:
    for sign in _BEFORE_A_SUFFIX:
        text = text.partition(sign)[0]
    return text


def _numbers(text: str) -> tuple[int, ...] | None:
    """Return the numbers in a text such as ``8``, ``4.1`` or ``6.8.0``, for comparison; None for any other text."""
    parts = text.split(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in parts):
        return None
    numbers = [int(part) for part in parts]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


_FSYNCS = frozenset({"fsync", "fdatasync", "sync_file_range", "syncfs", "sync", "os.fsync", "os.fdatasync"})
_MAXIMUM_CALLS_SHOWN = 4
_MAXIMUM_HOSTS_SHOWN = 4


def replaced_fsync(proofs: ClientProofs) -> str:
    """Return a sentence if a library other than the C library answers fsync on a host, else an empty text."""
    found = next((i for i in proofs.interposed if _FSYNCS.intersection(i.calls)), None)
    return f"On {found.host}, {found.by} answers {_calls(found)} in place of the C library." if found else ""


def missing_effect(proofs: ClientProofs) -> FsyncEffect | None:
    """Return the counts of an fsync that returned before the kernel had written back all pages.

    If there is no such fsync, return None.
    """
    return next((effect for effect in proofs.fsyncs if effect.is_missing), None)


def describe_missing(effect: FsyncEffect) -> str:
    """Return a phrase on the pages that fsync did not write back."""
    return (
        f"fsync returned on {effect.host} (rank {effect.rank}), and {format_bytes(effect.left_bytes)} of "
        f"{format_bytes(effect.dirty_bytes)} were still not written back (counted by {_counter(effect)})"
    )


def unsafe_effect(proofs: ClientProofs) -> str:
    """Return a sentence if fsync does not wait for the storage because of a mount option, else an empty text."""
    unsafe = next((effect for effect in proofs.fsyncs if effect.unsafe_option), None)
    return _unsafe_sentence(unsafe.unsafe_option, [unsafe.host]) if unsafe else ""


def describe_effect(proofs: ClientProofs) -> str:
    """Return a sentence on the effect of fsync, by the kernel's counts; empty if no test file was fsynced."""
    if not proofs.fsyncs:
        return ""
    if missing := missing_effect(proofs):
        return f"{describe_missing(missing)}."
    unseen = [effect for effect in proofs.fsyncs if effect.unobservable]
    if unseen:
        return f"The effect of fsync was not observable: {unseen[0].unobservable}."
    return (
        f"The kernel counted no byte that was left to write back after fsync ({_counter(proofs.fsyncs[0])}, "
        f"{counted(len({e.host for e in proofs.fsyncs}), 'host')}, before and after the saves)."
    )


def has_proven_fsync(measurements: Iterable[Measurement]) -> bool:
    """Whether the kernel of every host showed the effect of fsync, before and after the saves of every measurement."""
    proofs = [m.client_proofs for m in measurements]
    return bool(proofs) and all(p and p.fsyncs and all(e.is_seen for e in p.fsyncs) for p in proofs)


def client_reasons(measurements: Sequence[Measurement]) -> list[str]:
    """Return the reasons why results from these clients cannot be certified, one sentence each."""
    proofs = [m.client_proofs for m in measurements if m.client_proofs]
    found = [_interposed_sentence(i) for p in proofs for i in p.interposed]
    found += [_clock_sentence(span) for p in proofs for span in p.clocks if span.is_wrong][:1]
    found += [
        _span_sentence(span, p.controller_seconds)
        for p in proofs
        for span in p.spans
        if span.is_unlike(p.controller_seconds)
    ][:1]
    found += [
        f"The proof of fsync failed: {describe_missing(effect)}."
        for p in proofs
        if (effect := missing_effect(p)) is not None
    ][:1]
    return list(dict.fromkeys(found))


def unsafe_mounts(clients: Clients) -> list[str]:
    """Return a sentence for each mount option of the target with which fsync does not wait for the storage."""
    found: dict[str, list[str]] = {}
    for host, facts in clients.items():
        for option in unsafe_options(facts):
            found.setdefault(option, []).append(host)
    return [_unsafe_sentence(option, hosts) for option, hosts in found.items()]


def disclosures(measurements: Iterable[Measurement]) -> list[str]:
    """Return a phrase for each piece of code that may act in a rank's process before the rank's program starts."""
    return list(dict.fromkeys(p for m in measurements if m.client_proofs for p in m.client_proofs.disclosed))


def _interposed_sentence(found: Interposed) -> str:
    return (
        f"On {found.host}, {found.by} answers {_calls(found)} in place of the C library: "
        "the recorded times and results are not proven."
    )


def _clock_sentence(span: ClockSpan) -> str:
    sentence = (
        f"The clock of rank {span.rank} on {span.host} cannot be believed: {format_seconds(span.clock_seconds)} in "
        f"{span.of} were {format_seconds(span.uptime_seconds)} by the kernel's uptime."
    )
    if not span.fits_sleep:
        return sentence
    return (
        f"{sentence} A possible cause is that the host slept: CLOCK_BOOTTIME ran "
        f"{format_seconds(span.asleep_seconds)} ahead of CLOCK_MONOTONIC."
    )


def _unsafe_sentence(option: str, hosts: Sequence[str]) -> str:
    shown = ", ".join(hosts[:_MAXIMUM_HOSTS_SHOWN])
    return f"The target is mounted with '{option}' on {shown}: fsync does not wait for the storage."


def _span_sentence(span: RankSpan, controller_seconds: float) -> str:
    return (
        f"The clocks of rank {span.rank} on {span.host} and of the controller differ: the measurement took "
        f"{format_seconds(span.seconds)} by the one and {format_seconds(controller_seconds)} by the other. Either a "
        "clock is wrong, or the controller's process was stopped during this time."
    )


def _calls(found: Interposed) -> str:
    shown = ", ".join(found.calls[:_MAXIMUM_CALLS_SHOWN])
    more = len(found.calls) - _MAXIMUM_CALLS_SHOWN
    return f"{shown} and {counted(more, 'other call')}" if more > 0 else shown


def _counter(effect: FsyncEffect) -> str:
    return effect.counter if effect.counter == "cachestat" else "the counters of the device"
