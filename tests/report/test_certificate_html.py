"""The certificate as HTML contains all facts of the report, escapes texts, loads nothing external, and is small."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pytest_ckpt import __version__
from pytest_ckpt.report.html import render, write_certificate
from pytest_ckpt.support import units
from tests.support import synthetic_requests
from tests.support.report_pages import HOSTILE, document, hostile
from tests.support.synthetic_run import Document, report, steady

FULL_SIZE = "llama3-8b,llama3-70b,llama3-405b,llama3-1t"
GRADES = ("certified", "not certified", "incomplete", "rehearsal")


class Page(HTMLParser):
    """Collect tags, attributes, ids, links and visible text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        # These elements only prevent line breaks, so they do not separate words.
        self.feed(re.sub(r'<span class="nowrap">(.*?)</span>', r"\1", page))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in {"meta", "br", "link", "img"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def values(self, name: str) -> list[str]:
        return [value or "" for key, value in self.attributes if key == name]


@pytest.mark.parametrize("grade", GRADES)
def test_the_front_page_shows_grade_cluster_and_target(grade: str) -> None:
    made = document(grade)
    text = Page(render(made)).text
    front = text[: text.index("Limits and their origin")]
    for phrase in (grade.capitalize(), "16,000 accelerators", "/mnt/made-up", "6 May 2031",
                   f"pytest-ckpt {__version__}", made["run"]["id"], *made["grade_reasons"][:8]):  # fmt: skip
        assert phrase in front
    assert ("REHEARSAL – not a certificate" in text) == (grade == "rehearsal")


@pytest.mark.parametrize("grade", GRADES)
def test_every_fact_appears(grade: str) -> None:
    made = document(grade)
    text = Page(render(made)).text
    phrase = [entry["text"] for entry in made["catalogue"]]
    phrase += [entry["id"] for entry in made["catalogue"]]
    phrase += made["cluster"]["reasons"].values()
    phrase += made["disclosures"]
    phrase += [units.format_seconds(made["cluster"][f"{kind}_limit_seconds"]) for kind in ("save", "load")]
    for row in made["checkpoints"]:
        phrase += [row["subject"], row["published"], f"{row['full_bytes']:,}"]
        phrase += [row["not_run"]] if row["not_run"] else []
    phrase += [verdict["because"] for verdict in made["requirements"]]
    phrase += [
        f"{row[name]:,}" for row in made["sufficient_up_to_accelerators"] for name in ("save", "load") if row[name]
    ]
    phrase += ["Young", "Daly", made["environment"]["target"]["options"], "6.8.0", "EPYC", "2.13.0"]
    phrase += made["run"]["command"]
    phrase += made["stages"]
    missing = [sentence for sentence in phrase if " ".join(sentence.split()) not in text]
    assert not missing


def test_every_operation_is_drawn_once_and_listed() -> None:
    made = report(models="llama3-8b", ranks=8)
    page = render(made)
    for operation in made["measurements"][0]["operations"]:
        kind, index = operation["kind"], operation["index"]
        phrase = (
            f"{kind} {index}: {units.format_seconds(operation['seconds'])}, slowest rank {operation['slowest_rank']}"
        )
        assert page.count(f"<title>{phrase}</title>") == 1
    assert page.count('role="img"') == len(re.findall(r"<svg [^>]*aria-labelledby", page)) > 5


def test_labels_of_pictures_and_links_lead_somewhere() -> None:
    page = Page(render(document("certified")))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {i for names in page.values("aria-labelledby") for i in names.split()} <= set(ids)
    assert {link.removeprefix("#") for link in page.values("href")} <= set(ids)


@pytest.mark.parametrize(
    "make",
    [partial(document, "nothing ran"), partial(document, "contract only"), partial(report, fails_after=0),
     partial(document, "rehearsal"), partial(report, fails_after=13)],
    ids=["nothing ran", "contract only", "ended before the first save", "rehearsal", "ended between loads"],
)  # fmt: skip
def test_little_is_rendered_honestly(make: Callable[[], Document]) -> None:
    page = Page(render(make()))
    assert not page.open
    # A sentence may begin with "None of the data …" or "None may fail".
    assert not re.search(r"\bNone\b(?! of| may)|\bnan\b|Undefined", page.text)


def test_a_failure_is_reported_with_rank_host_operation_file_and_errno() -> None:
    text = Page(render(report(fails_after=3))).text
    for phrase in (
        "No space left on device",
        "node001",
        "save 4",
        "zero_pp_rank_3_mp_rank_00_model_states.pt",
        "ENOSPC",
    ):
        assert phrase in text


def test_not_run_has_its_reason() -> None:
    text = Page(render(document("incomplete"))).text
    assert "not run: llama3-70b in full has 64 ranks and 8 were requested" in text


def test_the_page_lists_what_could_not_be_measured() -> None:
    made = document("contract only")
    text = Page(render(made)).text
    assert "could not be measured" in text
    assert "Basis: rank 0 only" in text


@pytest.mark.parametrize(("share", "phrase"), [(0.004, "this axis ends at"), (0.6, ""), (1.4, "over the limit")])
def test_the_axis_follows_the_data(share: float, phrase: str) -> None:
    page = render(report(steady(share, share), models="llama3-8b", ranks=8))
    assert phrase in page
    assert ("this axis ends at" in page) == (share < 0.2)


def test_waived_and_faulty_measurements_are_shown() -> None:
    made = report(models="llama3-8b", ranks=8)
    made["requirements"][0] |= {"outcome": "waived", "because": "waived until 2031-09-01: firmware is on its way"}
    made["measurements"][0]["integrity"] |= {
        "fault_count": 3,
        "faults": [{"kind": "torn", "rank": 2, "host": "client01", "checkpoint": 4, "file": "x_optim_states.pt",
                    "tensor": "fp32_flat", "offset": 4096, "bytes": 512, "detail": "old bytes from 512 on"}],
    }  # fmt: skip
    text = Page(render(made)).text
    for phrase in ("waived until 2031-09-01", "torn", "x_optim_states.pt", "offset 4,096", "faults 3"):
        assert phrase in text


def test_hostile_strings_stay_text() -> None:
    made = hostile(HOSTILE)
    made["stages"]["<b>" + HOSTILE] = 100_000.0
    made["measurements"][0]["operations"][0]["phases"]["<i>" + HOSTILE] = 1.0
    rename = {"llama3-70b-full/stream": 'evil"><script>x</script>'}
    for rows in ("checkpoints", "measurements", "requirements", "sufficient_up_to_accelerators", "training"):
        for row in made[rows]:
            row["subject"] = rename.get(row["subject"], row["subject"])
    raw = render(made)
    page, plain = Page(raw), Page(render(hostile("")))
    assert set(page.tags) == set(plain.tags)
    assert {name for name, _ in page.attributes} == {name for name, _ in plain.attributes}
    assert raw.count("</style>") == 1
    assert "{{ 7*7 }}" in raw
    assert "\u202e" not in raw
    assert "\u0007" not in raw
    assert "日本" in raw
    assert "evil" in page.text


def test_paths_that_are_no_text_can_be_written(tmp_path: Path) -> None:
    made = report(text="\udcff")
    write_certificate(made, tmp_path / "certificate ü.html")
    assert "\N{REPLACEMENT CHARACTER}" in (tmp_path / "certificate ü.html").read_text(encoding="utf-8")
    assert [p.name for p in tmp_path.iterdir()] == ["certificate ü.html"]


@pytest.mark.parametrize("grade", GRADES)
def test_nothing_is_fetched_and_nothing_runs(grade: str) -> None:
    raw = render(document(grade))
    assert not re.search(r"https?:|<script|\bsrc=|url\(|@import|<link|<iframe|\bon\w+=", raw)
    assert "default-src 'none'" in raw


def test_rendering_changes_nothing_and_repeats() -> None:
    made = report(fails_after=3)
    before = copy.deepcopy(made)
    assert render(made) == render(made)
    assert made == before


def test_a_thousand_ranks_stay_small() -> None:
    made = report(models=FULL_SIZE, ranks=1_024)
    raw = render(made)
    assert len(raw.encode()) < 3_000_000
    assert "1,024 processes on node001, node002, node003, node004, … node128 (128)" in Page(raw).text


def test_many_operations_list_the_slowest() -> None:
    made = report(models="llama3-8b", ranks=8, options={"ckpt_operations": "500"})
    raw = render(made)
    assert "The slowest operations only" in raw
    slowest = max(made["measurements"][0]["operations"], key=lambda o: o["seconds"])
    assert f"{slowest['kind']} {slowest['index']}: " in raw
    assert len(raw.encode()) < 3_000_000


def test_waits_of_hosts_outside_the_timed_part_are_reported() -> None:
    made = document("certified")
    assert "Waited for other hosts" not in Page(render(made)).text
    late = {
        "host": "n2",
        "awaited": "directory",
        "times": 3,
        "waited_seconds": 1.5,
        "longest_seconds": 0.75,
        "unseen": 1,
    }
    made["measurements"][0]["host_waits"] = {"looks": 40, "late": []}
    words = "hosts looked 40 times for entries that another host had just created, and saw them immediately"
    assert words in Page(render(made)).text
    made["measurements"][0]["host_waits"]["late"] = [late]
    text = Page(render(made)).text
    waited = "n2 waited 3 times for the directory of a save: 1.5 s in all, 750 ms the longest"
    assert f"{waited}, 1 time without finding it." in text


def test_requests_to_an_object_store_are_listed_by_endpoint_and_kind() -> None:
    made = report(models="llama3-8b", ranks=8)
    assert "Requests to the object store" not in Page(render(made)).text
    made["measurements"][0]["requests"] = synthetic_requests.requests(again=2)
    text = " ".join(Page(render(made)).text.split())
    for endpoint in (synthetic_requests.ONE, synthetic_requests.OTHER):
        for kind in ("begin upload", "put part", "end upload"):
            assert f"{endpoint}: {kind}" in text
    assert "84 ms" in text
    # Requests that got no answer have no times.
    assert f"{synthetic_requests.OTHER}: put 5 4 4 1 s – – –" in text


def test_the_slowest_of_many_endpoints_are_listed_and_all_are_counted() -> None:
    made = report(models="llama3-8b", ranks=8)
    rows = [synthetic_requests.row(f"https://gw{number}.example", "get", 10, number / 1000) for number in range(1, 100)]
    made["measurements"][0]["requests"] = [*rows, synthetic_requests.row("https://silent.example", "get", 10, None)]
    text = " ".join(Page(render(made)).text.split())
    assert "Listed are 60 of 100 kinds at an endpoint" in text
    assert "https://silent.example: get" in text
    assert [n for n in range(1, 100) if f"https://gw{n}.example: get" in text] == list(range(41, 100))


def test_the_throughput_of_each_host_is_shown_next_to_the_rate_of_its_network() -> None:
    made = document("1,024 ranks")
    assert "Throughput of each host" not in Page(render(made)).text
    rates = {"sends_bytes_per_second": 25e9, "receives_bytes_per_second": 24e9}
    for host in made["environment"]["hosts"]:
        host["network"] = {"basis": "streams", **rates, "over": "10.0.0.1", "unavailable_reason": ""}
    text = Page(render(made)).text
    assert "the rate of TCP streams between the hosts, all concurrently, before the run" in text
    # Of 128 hosts, the page lists those that saved the least, with their ranks, and counts the others.
    assert "and 112 hosts that saved more in a second" in text
    rows = re.findall(r"node(\d+) (\d+) to (\d+) ([\d.]+) GB/s 25 GB/s", text)
    of_one = rows[:16]
    assert [(int(first), int(last)) for _, first, last, _ in of_one] == [
        (8 * int(host) - 8, 8 * int(host) - 1) for host, *_ in of_one
    ]
    assert [float(rate) for *_, rate in of_one] == sorted(float(rate) for *_, rate in of_one)
