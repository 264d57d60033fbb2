"""Writes certificate.html: one file for screen and paper, without scripts or external resources."""

from __future__ import annotations

import dataclasses
import functools
import re
import shlex
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.environment import HostNetwork
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.subject import OperationRef
from pytest_ckpt.facts.system import PICTURE, REPEATED, fact_text
from pytest_ckpt.facts.targets import StorageStack
from pytest_ckpt.grading.networks import HostRate, host_rates, networks_of
from pytest_ckpt.judging.reasons import reasons_for
from pytest_ckpt.report import certificate_charts, charts, front, view
from pytest_ckpt.report.published import group_messages, share
from pytest_ckpt.report.quantity import (
    NONE,
    margin_text,
    quantities,
    rate_format,
    seconds_format,
    three_digits,
    time_text,
)
from pytest_ckpt.report.svg import printable
from pytest_ckpt.report.view import judged_again_lines, start_lines
from pytest_ckpt.sizing.limits import LimitInput
from pytest_ckpt.support import resources, units
from pytest_ckpt.support.embedded_pictures import data_address

MAXIMUM_ROWS = 40
"""The maximum number of operations of a kind in a table. If there are more, the slowest are listed; report.json lists
all."""

MAXIMUM_HOSTS = 16
"""The maximum number of hosts in the table of moved bytes. If there are more, those with the lowest save rate are
listed."""

_MAXIMUM_REQUESTS = 60
_OPTION = re.compile("--[a-z][a-z-]*")

HOST_FACTS = ("cpu", "cores", "memory_bytes", "kernel", "os", "python", "client")


def group_hosts(hosts: Sequence[Mapping[str, Any]]) -> list[tuple[list[str], dict[str, Any]]]:
    """Return the hosts in groups with the same facts, each group as (names of hosts, facts)."""
    groups: dict[tuple[object, ...], tuple[list[str], dict[str, Any]]] = {}
    for host in hosts:
        facts = {name: host.get(name) for name in HOST_FACTS}
        key = tuple(tuple(value.items()) if isinstance(value, dict) else value for value in facts.values())
        names, _ = groups.setdefault(key, ([], facts))
        names.append(str(host["host"]))
    return list(groups.values())


def group_readings(readings: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], list[str]]]:
    """Return the results of the cache rule in groups. The results of a group differ only by host.

    Each group is (one of the results, names of hosts).
    """
    groups: dict[tuple[object, ...], tuple[Mapping[str, Any], list[str]]] = {}
    for reading in readings:
        facts = tuple(value for name, value in reading.items() if name != "host")
        groups.setdefault(facts, (reading, []))[1].append(str(reading["host"]))
    return list(groups.values())


def listed_requests(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of the requests table. If there are many rows, return those with the highest 99th percentiles.

    A row without a 99th percentile, because no request was answered, counts as the highest.
    """

    def weight(at: int) -> tuple[bool, float]:
        # A request without an answer counts as slower than all others.
        p99 = rows[at]["p99_seconds"]
        return p99 is None, p99 or 0.0

    return [rows[at] for at in sorted(sorted(range(len(rows)), key=weight, reverse=True)[:_MAXIMUM_REQUESTS])]


def rates_of_hosts(
    ran: Mapping[str, object], hosts: Sequence[Mapping[str, object]] | None
) -> list[tuple[str, str, HostRate, HostRate]]:
    """Return (host, ranks, save rate, load rate) of each host that has both rates.

    A rate is a `HostRate`, which also contains the rate of the host's network. If there are many hosts, they are sorted
    by save rate, the lowest first. If no network rate is known, return an empty list.
    """
    networks = networks_of(hosts or ())
    if not networks:
        return []
    measurement = from_plain(Measurement, ran)
    rates: dict[str, dict[str, HostRate]] = {}
    for rate in host_rates(measurement, networks):
        rates.setdefault(rate.host, {})[rate.kind] = rate
    rows = [
        (host, _in_ranges([r.rank for r in measurement.ranks if r.host == host]), of_kind["save"], of_kind["load"])
        for host, of_kind in rates.items()
        if len(of_kind) == 2
    ]
    return rows if len(rows) <= MAXIMUM_HOSTS else sorted(rows, key=lambda row: row[2].bytes_per_second)


def _in_ranges(ranks: Sequence[int]) -> str:
    """Return rank numbers as text. Consecutive numbers are written as a range."""
    ranges: list[list[int]] = []
    for rank in sorted(ranks):
        if ranges and rank == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], rank]
        else:
            ranges.append([rank])
    return ", ".join(" to ".join(map(str, of)) for of in ranges)


def table_rows(subject: view.Subject) -> list[dict[str, Any]]:
    """Return a row for each operation number. A row contains the save and the load with this number.

    If there are many operations, only the numbers of the slowest saves and of the slowest loads have rows.
    """
    chosen: set[int] = set()
    for kind in subject.kinds:
        slowest = sorted(kind.operations, key=lambda o: -o["seconds"])[:MAXIMUM_ROWS]
        chosen |= {o["index"] for o in (kind.operations if len(kind.operations) <= MAXIMUM_ROWS else slowest)}
    operation_of = {(o["kind"], o["index"]): o for kind in subject.kinds for o in kind.operations}
    return [
        {"index": n, "save": operation_of.get(("save", n)), "load": operation_of.get(("load", n))}
        for n in sorted(chosen)
    ]


def column_formats(subject: view.Subject) -> dict[str, dict[str, Callable[[float | None], str]]]:
    """Return {kind of operation: {name of column: formatter}}. The kinds are save and load.

    All values of a column have the same unit and number of decimals, so their decimal points are aligned.
    """
    return {
        kind.kind: {
            "seconds": seconds_format(kind.slowest_seconds),
            "rate": rate_format(kind.bytes / kind.fastest_seconds if kind.bytes and kind.fastest_seconds else None),
        }
        for kind in subject.kinds
    }


_LONGEST = 260

CLUSTER_QUANTITIES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("accelerators", "accelerators", lambda value: f"{value:,}"),
    ("failures_per_day", "failures a day", three_digits),
    ("mttf_seconds", "mean time between failures", units.format_seconds),
    ("checkpoints_per_failure", "checkpoints per failure", lambda value: f"{value:g}"),
    ("checkpoints_per_day", "checkpoints a day", three_digits),
    ("interval_seconds", "checkpoint interval", units.format_seconds),
    ("failures_per_day_in_slots", "failures a day, in slots", three_digits),
    ("save_budget", "save budget", units.format_percent),
    ("load_budget", "load budget", units.format_percent),
    ("save_limit_seconds", "save limit", units.format_seconds),
    ("load_limit_seconds", "load limit", units.format_seconds),
)

_INPUT_OF = {
    "accelerators": "--cluster",
    "failures_per_day": "--ckpt-failures",
    "checkpoints_per_failure": "--ckpt-checkpoints-per-failure",
    "save_budget": "--ckpt-save-budget",
    "load_budget": "--ckpt-load-budget",
}
"""The option that sets a quantity, or the single option that determines it."""


def write_certificate(document: dict[str, Any], path: Path) -> None:
    """Write the certificate of a report document to ``path``. The file appears only when it is complete."""
    _write_atomically(path, render(document))


def write_results_table(document: dict[str, Any], path: Path) -> None:
    """Write the table of a tree of published results to ``path``. The file appears only when it is complete."""
    _write_atomically(path, render_results_table(document))


def render_results_table(document: dict[str, Any]) -> str:
    """Return the table of a tree of published results as one HTML page."""
    template = _environment().get_template("results.html.j2")
    return template.render(document=document, messages=group_messages(document["messages"]))


def render(document: dict[str, Any]) -> str:
    """Return the certificate of a report document as one HTML page."""
    subjects = view.subjects(document)
    verdicts = document.get("requirements") or []
    cluster, sizes = document.get("cluster") or {}, document.get("sufficient_up_to_accelerators") or []
    template = _environment().get_template("certificate.html.j2")
    return template.render(
        document=document,
        subjects=subjects,
        counts=view.counts(verdicts),
        rehearsal=view.rehearsal_result(document),
        required=view.counts([v for v in verdicts if v["severity"] == "required"]),
        foot=Markup(_as_css_text(_foot(document))),
        limits=_limits(cluster),
        behaviour=view.behaviour(document),
        pictures=[certificate_charts.of_subject(position, subject) for position, subject in enumerate(subjects)],
        cluster_picture=certificate_charts.cluster(
            sizes, cluster.get("accelerators", 1), document.get("forecast") or []
        ),
        goodput=certificate_charts.goodput(document.get("training") or [], cluster.get("accelerators", 1)),
        storage=_storage(document),
        signature=_signature(document),
        conditions=_conditions(document),
        times=" ".join(filter(None, (view.closest_to_limits(subjects), *view.shares_shown(document)))),
        after_certificate=front.after_certificate(document, is_signed=_is_signed(document)),
        amount=view.amount(subjects),
        ceiling=_ceiling(document),
        methods=view.methods(document),
        reduced_scales=sorted({m.get("scale") or 1.0 for m in document.get("measurements") or []} - {1.0}),
        stages=certificate_charts.stages(document.get("stages") or {}),
        hosts=group_hosts((document.get("environment") or {}).get("hosts") or []),
        heat_levels=certificate_charts.heat_legend(),
        plugins=view.plugins_by_id(document),
        open_points=front.open_points(document),
        conclusions=view.how_sure(document),
        causes=front.causes(document),
        advisory_failures=front.advisory_failures(document),
        not_tested=[*view.unread_copies(document), *(document.get("not_tested") or [])],
        matrix=front.matrix(document),
        maximum_columns=front.MAXIMUM_COLUMNS,
        between=charts.BETWEEN,
        next_steps=view.next_steps(document),
        helps=front.helps(verdicts),
        help_of=lambda verdict: (h := front.heading_of(verdict)) and front.anchor_of(h),
        starts=start_lines(document),
        judged_again=judged_again_lines(document),
        judge_command=view.judge_command(document),
        group_verdicts=lambda some: view.group_verdicts(some, view.behaviour_ids(document)),
        topology=_topology(document),
        messages=group_messages((document.get("published") or {}).get("messages") or []),
    )


def _storage(document: Mapping[str, Any]) -> str:
    """Return a sentence on the storage below the target. If the report does not describe this storage, return ""."""
    stack = ((document.get("environment") or {}).get("target") or {}).get("stack")
    return from_plain(StorageStack, stack).sentence if stack else ""


def _signature(document: Mapping[str, Any]) -> str:
    """Return a phrase on the signature of the run's report. The signature itself is created after this page."""
    if document.get("judged_again"):
        return "this page is not signed; pytest-ckpt verify DIRECTORY shows who signed the run"
    if _is_signed(document):
        return "attestation.dsse.json, made with the key of whoever ran it: pytest-ckpt verify DIRECTORY --key PUBLIC"
    return "not signed: a report of the party that ran it"


def _conditions(document: view.Document) -> str:
    """Return the conditions under which the grade is valid, as one phrase.

    For a published result, return an empty text.
    """
    if document.get("published"):
        return ""
    system = document.get("system") or {}
    hosts = {host for m in document.get("measurements") or [] for host in m["hosts"]}
    phrases = (
        "" if _is_signed(document) else "not signed",
        "tester as declared" if (system.get("tester") or {}).get("role") else "tester not declared",
        "system as declared" if system.get("system") else "system not described",
        f"measured from {_counted(len(hosts), 'host')}" if hosts else "nothing measured",
        "" if _known_networks(document) or not hosts or _is_local(document) else "network rate of the clients unknown",
        "each load read one copy of the model" if view.unread_copies(document) else "",
    )
    return "; ".join(filter(None, phrases))


def _is_signed(document: view.Document) -> bool:
    """Return whether the run signs its report."""
    is_signed = any(s["option"] == "--ckpt-sign" and s["value"] for s in document.get("settings") or [])
    return is_signed and bool((document.get("run") or {}).get("directory")) and not document.get("judged_again")


def _ceiling(document: view.Document) -> str:
    """Return, as text, the rates that the clients cannot exceed: content rates, then network rates.

    The content rates are the rates at which the slowest host generates and compares content without storage. The
    network rates are the lowest rates of a host's network.
    """
    rates = [*_content_rates(document), *_network_rates(document)]
    return "; ".join(rates) or "unknown, so the client may have been the limit"


def _content_rates(document: view.Document) -> Iterator[str]:
    ceilings = [c for m in document.get("measurements") or [] for c in m.get("client_ceilings") or []]
    if ceilings:
        makes, compares = (min(c[f"{name}_bytes_per_second"] for c in ceilings) for name in ("makes", "compares"))
        yield (
            f"per host, without storage: saves {units.format_rate(makes)}, loads {units.format_rate(compares)} "
            "(slowest host)"
        )


def _known_networks(document: view.Document) -> list[HostNetwork]:
    """Return the networks of the hosts whose network rate was measured or stated."""
    networks = networks_of((document.get("environment") or {}).get("hosts") or []).values()
    return [n for n in networks if n.sends_bytes_per_second or n.receives_bytes_per_second]


def _network_rates(document: view.Document) -> Iterator[str]:
    networks = _known_networks(document)
    sends = [n.sends_bytes_per_second for n in networks if n.sends_bytes_per_second]
    receives = [n.receives_bytes_per_second for n in networks if n.receives_bytes_per_second]
    if networks:
        rates = [
            f"{verb} {units.format_rate(min(of))}" for verb, of in (("sends", sends), ("receives", receives)) if of
        ]
        basis = "as the user stated it" if any(n.basis == "stated" for n in networks) else "measured between hosts"
        yield f"network: slowest host {' and '.join(rates)}, {basis}"
    elif any(m.get("client_ceilings") for m in document.get("measurements") or []) and not _is_local(document):
        yield "network: its rate is unknown, so the network may have limited these times, and not the storage"


def _is_local(document: view.Document) -> bool:
    """Return whether the target is a file system of the host that used it, without a network between them."""
    return bool(((document.get("environment") or {}).get("target") or {}).get("is_local"))


def _topology(document: Mapping[str, Any]) -> str:
    """Return the picture of the system as a ``data:`` URL.

    If the report has no valid PNG or JPEG, return an empty text. The picture is checked here again, because the report
    may come from an untrusted source.
    """
    topology = ((document.get("system") or {}).get("topology") or {}).get(PICTURE)
    try:
        return data_address(str(topology)) if topology else ""
    except ValueError:
        return ""


def _foot(document: Mapping[str, Any]) -> str:
    """Return the footer of every printed page: grade, cluster size, and run id."""
    cluster, run = document.get("cluster") or {}, document["run"]
    size = _counted(cluster.get("accelerators", 0), "accelerator")
    return f"{document['grade'].capitalize()}, {size} · run {run['id'][:60]}"


def _as_css_text(text: str) -> str:
    """Return ``text`` with its special characters escaped, for use in a quoted CSS string within HTML."""
    return re.sub(r"[^A-Za-z0-9 ,._-]", lambda m: f"\\{ord(m[0]):x} ", printable(text))


@dataclass(frozen=True, kw_only=True, slots=True)
class PageSection:
    """A section of a simple page: text, pictures as safe SVG, and a table of texts."""

    heading: str
    text: str = ""
    pictures: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def write_page(path: Path, title: str, lead: Sequence[str], sections: Sequence[PageSection]) -> None:
    """Write a page of text, pictures and tables in the certificate's style.

    The file appears only when it is complete.
    """
    drawn = [dataclasses.replace(s, pictures=tuple(Markup(p) for p in s.pictures)) for s in sections]
    _write_atomically(path, _environment().get_template("page.html.j2").render(title=title, lead=lead, sections=drawn))


def _write_atomically(path: Path, text: str) -> None:
    made = path.parent / f"{path.name}.part"
    try:
        made.write_text(text, encoding="utf-8")
        made.replace(path)
    except OSError:
        made.unlink(missing_ok=True)
        raise


@functools.cache
def _environment() -> jinja2.Environment:
    # Once per process, because compiling the templates takes most of the time of a page.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.directory("templates")),
        autoescape=True,
        undefined=jinja2.ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters |= {
        "seconds": _or_dash(units.format_seconds),
        "size": _or_dash(units.format_bytes),
        "rate": _or_dash(units.format_rate),
        "percent": _or_dash(units.format_percent),
        "rough_percent": _or_dash(_rough_percent),
        "commas": _or_dash(lambda value: f"{value:,}"),
        "counted": _counted,
        "margin": _or_dash(margin_text),
        "overstated": _or_dash(share),
        "moment": _or_dash(time_text),
        "dash": _or_dash(str),
        "options_whole": _unbroken_options,
        "operation_name": lambda plain: str(from_plain(OperationRef, plain)) if plain else "",
        "in_short": view.names_in_short,
        "fact_text": fact_text,
        "shortened": _shortened,
        "command": shlex.join,
        "median": statistics.median,
        "phase_class": charts.phase_class,
        "reasons": reasons_for,
        "set_share": units.format_share,
        "paragraphs": lambda text: [" ".join(p.split()) for p in str(text).split("\n\n")],
    }
    environment.globals |= {
        "quantities": quantities,
        "system_columns": {table: [fact.name for fact in facts] for table, facts in REPEATED.items()},
        "table_rows": table_rows,
        "listed_requests": listed_requests,
        "column_formats": column_formats,
        "column_of_seconds": seconds_format,
        "group_readings": group_readings,
        "host_rates": rates_of_hosts,
        "MAXIMUM_HOSTS": MAXIMUM_HOSTS,
    }
    return environment


def _unbroken_options(sentence: str) -> Markup:
    """Return a sentence as HTML in which no line break divides an option's name."""
    return Markup(_OPTION.sub(r'<span class="nowrap">\g<0></span>', str(escape(printable(sentence)))))


def _finalize(value: Any) -> Any:
    """Return a value of a template. If the value is plain text, its control characters are replaced."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _shortened(text: str) -> str:
    """If a text is very long, return it without its middle. report.json contains the complete text."""
    left_out = len(text) - _LONGEST
    if left_out <= 0:
        return text
    return f"{text[: _LONGEST - 60]} … {left_out:,} more characters in report.json … {text[-60:]}"


def _rough_percent(share: float) -> str:
    return units.format_percent(share, digits=2) if share >= 0.01 else "under 1 %"


def _counted(value: Any, one: str, many: str = "") -> str:
    return units.counted(value, one, many) if isinstance(value, int) else f"{NONE} {many or one + 's'}"


def _or_dash(write: Callable[[Any], str]) -> Callable[[Any], str]:
    def written(value: Any) -> str:
        return NONE if value is None or isinstance(value, jinja2.Undefined) or value == "" else write(value)

    return written


def _limits(cluster: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return (name, value, source, origin) of each limit, and of each quantity from which limits are derived.

    The source explains the value. The origin states who set the value; it is empty for derived quantities. Inputs that
    are not quantities are the last rows.
    """
    reasons = dict(cluster.get("reasons") or {})
    inputs = {given.option: given for given in (from_plain(LimitInput, i) for i in cluster.get("inputs") or ())}
    rows = []
    for key, name, write in CLUSTER_QUANTITIES:
        if cluster.get(key) is not None:
            given = inputs.pop(_INPUT_OF.get(key, ""), None)
            rows.append((name, write(cluster[key]), reasons.pop(key, ""), given.mark if given else ""))
    rows += [(key.replace("_", " "), "", sentence, "") for key, sentence in reasons.items()]
    return rows + [(given.option, given.value, "", given.mark) for given in inputs.values()]
