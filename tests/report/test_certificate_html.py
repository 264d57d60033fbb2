"""The certificate says everything, escapes everything, fetches nothing, and stays small."""

from __future__ import annotations

import copy
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pytest_ckpt.report.html import render, write_certificate
from pytest_ckpt.support import units
from tests.support import made_requests, made_up

GRADES = ("certified", "not certified", "incomplete", "rehearsal")


class Page(HTMLParser):
    """Collects tags, attributes, ids, links and visible text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(page)

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
def test_it_says_the_grade_for_which_cluster_of_which_target(grade: str) -> None:
    document = made_up.document(grade)
    text = Page(render(document)).text
    front = text[: text.index("Limits and where they come from")]
    for phrase in (grade.capitalize(), "16,000 accelerators", "/mnt/array one/ü", "6 May 2031", "pytest-ckpt 0.2.0",
                 document["run"]["id"], *document["grade_reasons"][:8]):  # fmt: skip
        assert phrase in front
    assert ("REHEARSAL – not a certificate" in text) == (grade == "rehearsal")


@pytest.mark.parametrize("grade", GRADES)
def test_every_fact_appears(grade: str) -> None:
    document = made_up.document(grade)
    text = Page(render(document)).text
    phrase = [entry["text"] for entry in document["catalogue"]]
    phrase += [entry["id"] for entry in document["catalogue"]]
    phrase += document["cluster"]["reasons"].values()
    phrase += document["disclosures"]
    phrase += [units.format_seconds(document["cluster"][f"{kind}_limit_seconds"]) for kind in ("save", "load")]
    for row in document["checkpoints"]:
        phrase += [row["subject"], row["published"], f"{row['full_bytes']:,}"]
        phrase += [row["not_run"]] if row["not_run"] else []
    phrase += [verdict["because"] for verdict in document["requirements"]]
    phrase += [
        f"{row[name]:,}" for row in document["sufficient_up_to_accelerators"] for name in ("save", "load") if row[name]
    ]
    phrase += ["Young", "Daly", "nconnect=16", "6.8.0-45-generic", "EPYC 9554", "2.13.0", "--cluster=16000"]
    phrase += document["stages"]
    missing = [sentence for sentence in phrase if " ".join(sentence.split()) not in text]
    assert not missing


def test_every_operation_is_drawn_once_and_listed() -> None:
    document = made_up.document("certified", subjects=("llama3-8b-full",))
    page = render(document)
    for operation in document["measurements"][0]["operations"]:
        kind, index = operation["kind"], operation["index"]
        phrase = (
            f"{kind} {index}: {units.format_seconds(operation['seconds'])}, slowest rank {operation['slowest_rank']}"
        )
        assert page.count(f"<title>{phrase}</title>") == 1
    assert page.count('role="img"') == len(re.findall(r"<svg [^>]*aria-labelledby", page)) > 5


def test_labels_of_pictures_and_links_lead_somewhere() -> None:
    page = Page(render(made_up.document("certified")))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {i for names in page.values("aria-labelledby") for i in names.split()} <= set(ids)
    assert {link.removeprefix("#") for link in page.values("href")} <= set(ids)


@pytest.mark.parametrize(
    "document",
    [made_up.empty(), made_up.bare(), made_up.document("not certified", fail_after=0), made_up.document("rehearsal"),
     made_up.document("not certified", fail_after=13)],
    ids=["nothing ran", "contract only", "ended before the first save", "rehearsal", "ended between loads"],
)  # fmt: skip
def test_little_is_rendered_honestly(document: made_up.Document) -> None:
    page = Page(render(document))
    assert not page.open
    assert not re.search(r"\bNone\b|\bnan\b|Undefined", page.text)


def test_a_failure_is_told_with_rank_host_operation_file_and_errno() -> None:
    text = Page(render(made_up.document("not certified", fail_after=3))).text
    for phrase in (
        "No space left on device",
        "client01",
        "save 4",
        "zero_pp_rank_3_mp_rank_00_model_states.pt",
        "ENOSPC",
    ):
        assert phrase in text


def test_not_run_has_its_reason() -> None:
    text = Page(render(made_up.document("incomplete"))).text
    assert "not run: llama3-1t in full has 1024 ranks and 8 were asked for" in text


def test_what_could_not_be_measured_is_said() -> None:
    document = made_up.bare()
    text = Page(render(document)).text
    assert "could not be measured" in text
    assert "Basis: rank 0 only" in text


@pytest.mark.parametrize(("share", "phrase"), [(0.004, "this axis ends at"), (0.6, ""), (1.4, "over the limit")])
def test_the_axis_follows_the_data(share: float, phrase: str) -> None:
    grade = "not certified" if share > 1 else "certified"
    page = render(made_up.document(grade, subjects=("llama3-8b-full",), share_of_limit=share))
    assert phrase in page
    assert ("this axis ends at" in page) == (share < 0.2)


def test_waived_and_faulty_measurements_are_shown() -> None:
    document = made_up.document("not certified", subjects=("llama3-8b-full",), share_of_limit=0.5)
    document["requirements"][0] |= {"outcome": "waived", "because": "waived until 2031-09-01: firmware is on its way"}
    document["measurements"][0]["integrity"] |= {
        "fault_count": 3,
        "faults": [{"kind": "torn", "rank": 2, "host": "client01", "checkpoint": 4, "file": "x_optim_states.pt",
                    "tensor": "fp32_flat", "offset": 4096, "bytes": 512, "detail": "old bytes from 512 on"}],
    }  # fmt: skip
    text = Page(render(document)).text
    for phrase in ("waived until 2031-09-01", "torn", "x_optim_states.pt", "offset 4,096", "faults 3"):
        assert phrase in text


def test_hostile_strings_stay_text() -> None:
    document = made_up.document("not certified", text=made_up.HOSTILE, fail_after=2, not_run=("llama3-1t-subset",))
    document["run"]["id"] = "x" + made_up.HOSTILE
    document["stages"]["<b>" + made_up.HOSTILE] = 100_000.0
    document["measurements"][1]["operations"][0]["phases"]["<i>" + made_up.HOSTILE] = 1.0
    rename = {"llama3-70b-subset": 'evil"><script>x</script>'}
    for rows in ("checkpoints", "measurements", "requirements", "sufficient_up_to_accelerators", "training"):
        for row in document[rows]:
            row["subject"] = rename.get(row["subject"], row["subject"])
    raw = render(document)
    page, plain = (
        Page(raw),
        Page(render(made_up.document("not certified", fail_after=2, not_run=("llama3-1t-subset",)))),
    )
    assert set(page.tags) == set(plain.tags)
    assert {name for name, _ in page.attributes} == {name for name, _ in plain.attributes}
    assert raw.count("</style>") == 1
    assert "{{ 7*7 }}" in raw
    assert "\u202e" not in raw
    assert "\u0007" not in raw
    assert "日本" in raw
    assert "evil" in page.text


def test_paths_that_are_no_text_can_be_written(tmp_path: Path) -> None:
    document = made_up.document("certified", text="\udcff")
    write_certificate(document, tmp_path / "certificate ü.html")
    assert "\N{REPLACEMENT CHARACTER}" in (tmp_path / "certificate ü.html").read_text(encoding="utf-8")
    assert [p.name for p in tmp_path.iterdir()] == ["certificate ü.html"]


@pytest.mark.parametrize("grade", GRADES)
def test_nothing_is_fetched_and_nothing_runs(grade: str) -> None:
    raw = render(made_up.document(grade))
    assert not re.search(r"https?:|<script|\bsrc=|url\(|@import|<link|<iframe|\bon\w+=", raw)
    assert "default-src 'none'" in raw


def test_rendering_changes_nothing_and_repeats() -> None:
    document = made_up.document("not certified", fail_after=3)
    before = copy.deepcopy(document)
    assert render(document) == render(document)
    assert document == before


def test_a_thousand_ranks_stay_small() -> None:
    document = made_up.document("certified", subjects=made_up.FULL_SIZE, ranks=1_024, accelerators=100_000)
    raw = render(document)
    assert len(raw.encode()) < 3_000_000
    assert "1,024 processes on client01, client02, client03, client04, … client128 (128)" in Page(raw).text


def test_many_operations_list_the_slowest() -> None:
    document = made_up.document("certified", subjects=("llama3-8b-full",), operations=500)
    raw = render(document)
    assert "The slowest operations only" in raw
    slowest = max(document["measurements"][0]["operations"], key=lambda o: o["seconds"])
    assert f"{slowest['kind']} {slowest['index']}: " in raw
    assert len(raw.encode()) < 3_000_000


def test_what_hosts_waited_for_outside_the_clocks_is_told() -> None:
    document = made_up.document("certified")
    assert "Waited for other hosts" not in Page(render(document)).text
    late = {
        "host": "n2",
        "awaited": "directory",
        "times": 3,
        "waited_seconds": 1.5,
        "longest_seconds": 0.75,
        "unseen": 1,
    }
    document["measurements"][0]["host_waits"] = {"looks": 40, "late": []}
    assert "hosts looked 40 times for what another one had just made, and saw it at once" in Page(render(document)).text
    document["measurements"][0]["host_waits"]["late"] = [late]
    text = Page(render(document)).text
    assert "n2 waited 3 times for the directory of a save: 1.5 s in all, 750 ms the longest, 1 time in vain." in text


def test_requests_to_an_object_store_are_listed_by_endpoint_and_kind() -> None:
    document = made_up.document("certified", subjects=("llama3-8b-full",))
    assert "Requests to the object store" not in Page(render(document)).text
    document["measurements"][0]["requests"] = made_requests.requests(again=2)
    text = " ".join(Page(render(document)).text.split())
    for endpoint in (made_requests.ONE, made_requests.OTHER):
        for kind in ("begin upload", "put part", "end upload"):
            assert f"{endpoint}: {kind}" in text
    assert "84 ms" in text
    # What was never answered has no time.
    assert f"{made_requests.OTHER}: put 5 4 4 1 s – – –" in text


def test_of_requests_to_many_endpoints_the_slowest_are_listed_and_all_are_counted() -> None:
    document = made_up.document("certified", subjects=("llama3-8b-full",))
    rows = [made_requests.row(f"https://gw{number}.example", "get", 10, number / 1000) for number in range(1, 100)]
    document["measurements"][0]["requests"] = [*rows, made_requests.row("https://silent.example", "get", 10, None)]
    text = " ".join(Page(render(document)).text.split())
    assert "Listed are 60 of 100 kinds at an endpoint" in text
    assert "https://silent.example: get" in text
    assert [n for n in range(1, 100) if f"https://gw{n}.example: get" in text] == list(range(41, 100))


def test_what_each_host_moved_is_told_beside_what_its_network_carries() -> None:
    document = made_up.document("certified", subjects=made_up.FULL_SIZE, ranks=1_024, accelerators=100_000)
    assert "What each host moved" not in Page(render(document)).text
    rates = {"sends_bytes_per_second": 25e9, "receives_bytes_per_second": 24e9}
    for host in document["environment"]["hosts"]:
        host["network"] = {"basis": "streams", **rates, "over": "10.0.0.1", "unavailable_reason": ""}
    text = Page(render(document)).text
    assert "that of TCP streams between the hosts, all at once, before the run" in text
    # Of 128 hosts those that saved the least, with the ranks that each had; the others are counted.
    assert "and 112 hosts that saved more in a second" in text
    rows = re.findall(r"client(\d+) (\d+) to (\d+) ([\d.]+) GB/s 25 GB/s", text)
    of_one = rows[:16]
    assert [(int(first), int(last)) for _, first, last, _ in of_one] == [
        (8 * int(host) - 8, 8 * int(host) - 1) for host, *_ in of_one
    ]
    assert [float(rate) for *_, rate in of_one] == sorted(float(rate) for *_, rate in of_one)
