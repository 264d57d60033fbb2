"""The first page of a certificate: a remedy for each exception, the matrix of verdicts, and the table of contents."""

from __future__ import annotations

import re
import subprocess

import pytest

from pytest_ckpt.facts.verdict import REASONS
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.report import front, view
from pytest_ckpt.report.html import render
from pytest_ckpt.support.units import format_seconds
from tests.support import browser, report_pages, synthetic_run


def verdict(name, subject="a", outcome="met", severity="required", reason="", detail=""):
    return {
        "id": name, "subject": subject, "outcome": outcome, "severity": severity, "reason": reason, "detail": detail,
    }  # fmt: skip


def document(*verdicts):
    rows = [{"id": n, "suite": "conformance" if n == "COMMIT" else "performance",
             "next_step": REQUIREMENTS[n].next_step if n in REQUIREMENTS else ""}
            for n in dict.fromkeys(v["id"] for v in verdicts)]  # fmt: skip
    return {"requirements": list(verdicts), "catalogue": rows}


def test_every_requirement_of_ours_that_fails_leads_to_what_helps():
    assert set(REASONS) >= front.REASONS
    for name in REQUIREMENTS:
        failed = [verdict(name, outcome="failed", severity=severity) for severity in ("required", "advisory")]
        for one in failed:
            (part,) = front.helps([one])
            assert part.heading == front.heading_of(one)
            assert part.text.startswith("<p>")


def test_remedies_are_shown_for_failures_and_for_required_checks_without_proof():
    def shown(**of):
        return [part.heading for part in front.helps([verdict("SAVE", **of)])]

    assert shown(outcome="failed") == ["SAVE or LOAD: a limit was missed"]
    assert shown(outcome="failed", reason="hung") == ["A rank hung"]
    assert shown(outcome="not run", reason="not given") == ["Inputs of a check that were not given"]
    assert shown(outcome="not run", reason="not given", severity="advisory") == []
    assert shown(outcome="waived", reason="over limit") == ["Waived"]
    unproven = [verdict(name, outcome="not run", reason="unproven") for name in ("COLD", "DURABLE-CALLS")]
    assert [part.heading for part in front.helps(unproven)] == [
        "Uncached reads cannot be proven",
        "A client's fsync or clock cannot be believed",
    ]
    assert shown() == []


def test_each_failure_of_a_certificate_links_to_what_helps_with_it_and_stands_there_once():
    made = report_pages.document("not certified")
    page = render(made)
    rows = re.findall(r'<tr role="row" class="[^"]*was-failed.*?</tr>', page, re.DOTALL)
    failed = [v for v in made["requirements"] if v["outcome"] == "failed"]
    assert len(rows) == len(failed) > 2
    for row, of in zip(rows, failed, strict=True):
        anchor = front.anchor_of(front.heading_of(of))
        assert f'href="#{anchor}">What helps</a>' in row
        assert page.count(f'id="{anchor}"') == 1
    points = re.findall(r"<li>.*?</li>", page.partition('id="exceptions"')[2].partition("</ul>")[0], re.DOTALL)
    assert points
    assert all('">What helps</a>' in point for point in points)
    assert 'id="helps"' not in render(report_pages.document("certified"))


def test_a_table_on_the_first_page_shows_the_confidence_of_saves_and_loads():
    made = report_pages.document("certified")
    bound = {"trials": 10, "met": 9, "share": 0.606, "confidence": 0.95, "misses_allowed": 1}
    estimate = {"seconds": 40.0, "share": 0.99, "confidence": 0.95, "fit": 0.8765, "is_doubtful": True}
    like = made["requirements"][0] | {"limit": 27.8, "detail": ""}
    rows = [
        like | {"id": "SAVE", "bound": bound, "estimate": estimate},
        like | {"id": "LOAD", "bound": bound | {"met": 10, "misses_allowed": 0}, "estimate": None},
    ]
    others = [v for v in made["requirements"] if v["id"] not in ("SAVE", "LOAD")]
    part = render(made | {"requirements": rows + others}).partition('id="how-sure"')[2].partition("</table>")[0]
    save, load = (re.sub(r"<[^>]+>", " ", row) for row in part.partition("<tbody>")[2].split("</tr>")[:2])
    times = "9 of 10 1 may miss it at least 60.6 % over the limit 40.0 s estimate doubtful 0.876"
    assert " ".join(save.split()) == f"{like['subject']} save {times}"
    assert load.split() == ["load", *["10", "of", "10", "at", "least", "60.6", "%", "–", "–"]]
    assert "with 95 % confidence" in part
    assert "Estimate: 99 % take at most" in part
    assert 'id="how-sure"' not in render(made | {"requirements": others})


def test_the_first_page_shows_how_many_copies_a_restart_reads_and_that_a_load_reads_one():
    made = report_pages.document("certified")
    part = render(made).partition('id="not_tested"')[2].partition("</ul>")[0]
    copies = {subject.name: subject.checkpoint["demand"]["copies"] for subject in view.subjects(made)}
    assert max(copies.values()) > 1
    for subject in view.subjects(made):
        accelerators = f"{made['cluster']['accelerators']:,} accelerators"
        unread = f"{subject.name}: each load read one copy of the model. A restart of {accelerators}"
        assert (unread in part) == (copies[subject.name] > 1)
    alone = [c | {"demand": c["demand"] | {"copies": 1}} for c in made["checkpoints"]]
    assert "each load read one copy" not in render(made | {"checkpoints": alone})


def test_the_verdict_and_the_sentence_to_quote_list_their_conditions():
    made = report_pages.document("certified")
    page = render(made)
    conditions = (
        "not signed; tester not declared; system as declared; measured from 8 hosts; "
        "network rate of the clients unknown; each load read one copy of the model"
    )
    assert f'id="conditions">Conditions: {conditions}.' in page
    quoted = page.partition("<dt>To be quoted</dt>")[2].partition("</dd>")[0]
    assert conditions in quoted
    described = made["system"] | {"tester": {"role": "third party"}}
    signed = [s | {"value": "key.pem"} if s["option"] == "--ckpt-sign" else s for s in made["settings"]]
    run = made["run"] | {"directory": "run"}
    other = render(made | {"system": described, "settings": signed, "run": run}).partition('id="conditions"')[2]
    assert other.startswith(">Conditions: tester as declared; system as declared; measured")
    bare = render(made | {"system": None, "measurements": []}).partition('id="conditions"')[2].partition("</p>")[0]
    assert "system not described; nothing measured" in bare


def test_the_first_page_names_the_cause_of_each_required_verdict_that_is_not_met():
    of_reasons = {
        reason: front.causes(document(verdict("SAVE", outcome="failed", reason=reason))) for reason in REASONS
    }
    assert of_reasons.pop("met") == []
    assert all(len(found) == 1 for found in of_reasons.values()), "each reason is of one kind of cause"
    failed = verdict("SAVE", outcome="failed", reason="over limit")
    lost = verdict("COMMIT", "file", outcome="failed", reason="anomaly")
    weak = verdict("LOAD", outcome="not run", reason="client too slow")
    advisory = verdict("REPEAT", outcome="failed", severity="advisory", reason="over limit")
    found = front.causes(
        document(lost, weak, advisory, failed, verdict("SAVE", "b", outcome="failed", reason="over limit"))
    )
    assert [(cause.outcome, cause.ids) for cause in found] == [("failed", ("SAVE",)), ("failed", ("COMMIT",))]
    (slow_clients,) = front.causes(document(weak, advisory))
    assert slow_clients.text == "the clients or other work on the hosts, not the storage"
    assert front.causes(document(advisory, verdict("SAVE"))) == []
    assert "Causes: slower than the limit (SAVE)" in render(report_pages.document("not certified"))
    assert 'id="cause"' not in render(report_pages.document("certified"))


def test_a_late_time_of_clients_that_are_too_slow_is_marked_as_not_judged():
    made = report_pages.document("not certified")
    assert "not judged" not in render(made)
    for found in made["requirements"]:
        if found["id"] == "SAVE":
            found.update(outcome="not run", reason="client too slow")
    page = render(made).partition('class="glance"')[2].partition("</table>")[0]
    late = [row for row in page.split("</tr>") if 'class="of">save<' in row]
    assert late
    assert all("not judged: client too slow" in row and "bad-text" not in row for row in late)
    assert all('class="over"' not in row and row.endswith(">–</td>") for row in late)


def test_failures_come_first_with_their_steps_and_equal_steps_are_grouped():
    points = front.open_points(
        document(
            verdict("LOAD", outcome="not run", reason="no test"),
            verdict("COLD", outcome="not run", reason="no test"),
            verdict("SAVE", outcome="failed", reason="over limit"),
            verdict("SAVE", "b", outcome="failed", reason="over limit"),
            verdict("REPEAT", outcome="failed", severity="advisory"),
            verdict("STALE", outcome="waived"),
            verdict("INTEGRITY"),
        )
    )
    assert [(p.outcome, p.ids, p.names) for p in points] == [
        ("failed", ("SAVE",), "a, b"), ("not run", ("LOAD", "COLD"), "a"), ("waived", ("STALE",), "a"),
    ]  # fmt: skip
    assert points[0].next_step == REQUIREMENTS["SAVE"].next_step
    assert points[0].helps == front.anchor_of("SAVE or LOAD: a limit was missed")
    assert "deselecting" in points[1].next_step


def test_the_next_step_is_the_known_cure_of_a_failure():
    found = verdict("STALE", outcome="failed", detail="seen 4 s late\ncure: mount with actimeo=0")
    (point,) = front.open_points(document(found))
    assert point.next_step == "mount with actimeo=0"


def test_missing_inputs_of_a_check_are_named_with_their_option():
    names = ("STALE.attributes", "VISIBLE.read-after-close", "DURABLE.power-cut", "ERRORS.full")
    lacking = [verdict(*name.split("."), outcome="not run", reason="not given") for name in names]
    points = front.open_points(document(*lacking, verdict("FAILOVER", outcome="not run", reason="not given")))
    assert [point.ids for point in points] == [("STALE", "VISIBLE"), ("DURABLE",), ("ERRORS",), ("FAILOVER",)]
    options = ("--ckpt-second-mount", "--ckpt-actions [power_cut] command", "--ckpt-small-volume", "names")
    assert all(option in point.next_step for option, point in zip(options, points, strict=True))


def test_nothing_is_to_be_done_where_all_is_met():
    assert front.open_points(document(verdict("SAVE"))) == []


def test_the_matrix_shows_the_worst_and_never_hides_a_failure():
    found = front.matrix(
        document(
            verdict("SAVE", "a"),
            verdict("SAVE", "b", outcome="failed"),
            verdict("STORM", "a", outcome="not run", severity="advisory"),
            verdict("COMMIT", "file"),
            verdict("COMMIT", "directory", outcome="failed"),
        )
    )
    assert found.columns == ("a", "b")
    assert [(row.id, [cell.outcome for cell in row.cells]) for row in found.rows] == [("SAVE", ["met", "failed"])]
    assert [(name, cell.outcome, met, of) for name, cell, met, of in found.behaviour] == [("COMMIT", "failed", 1, 2)]
    assert found.advisory_not_run == ("STORM",)


@pytest.mark.parametrize("subjects", [("a",), ("a", "b")], ids=["a line", "a table"])
def test_a_failed_advisory_requirement_is_marked_as_advisory(subjects):
    """A failed advisory requirement is marked as advisory, because the page may also state that the run passed."""
    made = report_pages.document("certified")
    like = made["requirements"][0]
    made["requirements"] = [
        like | verdict(name, subject, outcome=outcome, severity=severity)
        for name, of, outcome, severity in (
            ("SAVE", subjects, "met", "required"),
            ("REPEAT", subjects, "failed", "advisory"),
            ("COMMIT", ("file",), "met", "required"),
            ("CAPABILITIES", ("links",), "failed", "advisory"),
        )
        for subject in of
    ]
    part = render(made).partition('id="matrix"')[2].partition('class="contents"')[0]
    row = r">REPEAT</a> <span class=\"tag\">" if len(subjects) > 1 else r"REPEAT failed <span class=\"tag\">"
    assert len(re.findall(row, part)) == 1
    assert len(re.findall(r"0 of 1 met <span class=\"tag\">advisory<", part)) == 1
    assert part.count(">advisory<") == 2


@pytest.mark.parametrize("name", ["certified", "not certified", "1,024 ranks", "nothing ran"])
def test_every_link_of_a_certificate_leads_somewhere(name):
    page = render(report_pages.document(name))
    targets = set(re.findall(r'\bid="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= targets
    assert 'class="contents"' in page


def test_exceptions_stand_before_everything_else():
    page = render(report_pages.document("not certified"))
    order = [page.index(part) for part in ('id="exceptions"', 'class="facts wide"', 'id="matrix"', 'id="limits"')]
    assert order == sorted(order)


def test_the_first_page_answers_a_buyer_in_this_order():
    document = report_pages.document("certified")
    page = render({**document, "not_tested": ["No power was cut."]})
    parts = ("<dt>Tested by", "<dt>Signature", "<dt>Amount", "<dt>To verify", 'class="glance"', 'id="not_tested"')
    order = [page.index(part) for part in (*parts, 'id="matrix"')]
    assert order == sorted(order)


def test_a_run_without_a_declared_tester_is_marked():
    page = render({**report_pages.document("certified"), "system": None})
    assert "<dt>Tested by</dt><dd>not declared" in page


def test_the_network_of_the_slowest_host_is_on_the_first_page():
    document = report_pages.document("certified")
    hosts = [
        {**document["environment"]["hosts"][0], "host": name, "network": network}
        for name, network in (
            ("a", {"basis": "streams", "sends_bytes_per_second": 3e9, "receives_bytes_per_second": 2e9}),
            ("b", {"basis": "streams", "sends_bytes_per_second": 1e9, "receives_bytes_per_second": 4e9}),
        )
    ]
    known = render({**document, "environment": {**document["environment"], "hosts": hosts}})
    assert "slowest host sends 1 GB/s and receives 2 GB/s, measured between hosts" in known
    unknown = [{**host, "network": None} for host in hosts]
    page = render({**document, "environment": {**document["environment"], "hosts": unknown}})
    assert "network: its rate is unknown, so the network may have limited these times, and not the storage" in page


@pytest.mark.skipif(not browser.CHROMIUM, reason="Chromium is not installed")
@pytest.mark.parametrize(("save", "sheets"), [(0.001, 4), (0.3, 5)], ids=["passes", "fails"])
def test_a_smoke_run_takes_few_sheets(tmp_path, save, sheets):
    synthetic_run.write_run(tmp_path / "run", options={"ckpt_gate_table": "auto", "ckpt_cluster": "16000"}, save=save)
    printed = tmp_path / "run.pdf"
    browser.print_pdf(tmp_path / "run" / "certificate.html", printed)
    output = subprocess.run(["pdfinfo", printed], capture_output=True, text=True, check=True).stdout
    assert int(re.search(r"^Pages:\s+(\d+)", output, re.MULTILINE)[1]) <= sheets
    assert browser.layout_faults(tmp_path / "run" / "certificate.html", 390) == []


def test_the_page_of_a_rehearsal_lists_the_options_that_a_certificate_needs(tmp_path):
    made = synthetic_run.write_run(tmp_path / "run")
    assert made["grade"] == "rehearsal"
    assert "--ckpt-profile=acceptance" in made["to_certify"]
    page = render(made)
    (part,) = re.findall(r'id="exceptions".*?</ul>', page, re.DOTALL)
    next_steps = part.replace('<span class="nowrap">', "").replace("</span>", "")
    assert "For a certificate: " in next_steps
    assert all(remedy.partition(",")[0] in next_steps for remedy in made["to_certify"])
    assert report_pages.document("certified")["to_certify"] == []


def test_engine_and_strategy_are_explained_where_they_stand():
    front_page = render(report_pages.document("certified")).partition('id="limits"')[0]
    assert "<dt>Method</dt><dd>engine stream: the file format of torch.save without PyTorch" in front_page
    assert "; strategy sync: training waits until the checkpoint is committed</dd>" in front_page


def test_the_first_page_names_the_advisory_failures_with_their_reasons():
    made = report_pages.document("not certified")
    failed = [v for v in made["requirements"] if (v["severity"], v["outcome"]) == ("advisory", "failed")]
    part = render(made).partition('id="advisory-failures"')[2].partition("</ul>")[0]
    assert len(failed) > 1
    assert all(f"{v['id']} of {v['subject']}: {v['because']}" in part for v in failed)
    links = failed[0] | {"id": "COMMIT", "subject": "links", "because": "No link."}
    many = [failed[0] | {"because": f"Reason {n}."} for n in range(8)]
    assert "COMMIT links: No link." in render(made | {"requirements": [links]})
    assert "and 2 more" in render(made | {"requirements": many}).partition('id="advisory-failures"')[2]
    assert 'id="advisory-failures"' not in render(report_pages.document("certified"))


def test_the_first_page_reports_that_a_client_was_the_limit():
    made = report_pages.document("certified")
    hosts = made["measurements"][0]["client_ceilings"]
    rates = "per host, without storage: saves 41.3 GB/s, loads 46.8 GB/s (slowest host)"
    assert rates in render(made)
    assert hosts
    limited = made | {"client_limits": ["the client is the limit: in saves of a n1 moved 1 GB/s"]}
    assert "The client is the limit: in saves of a n1 moved 1 GB/s." in render(limited).partition('id="limits"')[0]
    without = made | {"measurements": [m | {"client_ceilings": []} for m in made["measurements"]]}
    assert "<dt>Client ceiling</dt><dd>unknown, so the client may have been the limit" in render(without)


def test_the_first_page_shows_the_times_that_are_closest_to_their_limits():
    made = report_pages.document("certified")
    part = render(made).partition('id="times"')[2].partition("</p>")[0]
    found = {kind: [s.kinds[place] for s in view.subjects(made)] for place, kind in enumerate(("save", "load"))}
    for kind, of_subjects in found.items():
        least = min(of_subjects, key=lambda of: of.margin)
        times = f"{format_seconds(least.slowest_seconds)} of {format_seconds(least.limit_seconds)} allowed"
        assert f"lowest {kind} {times} (llama3-" in part
    assert "With 95 % confidence, at least 74.1 % of saves and 74.1 % of loads meet the limit, if independent." in part
    weak = [v | {"outcome": "not run", "reason": "client too slow"} for v in made["requirements"] if v["id"] == "SAVE"]
    others = [v for v in made["requirements"] if v["id"] != "SAVE"]
    part = render(made | {"requirements": weak + others}).partition('id="times"')[2].partition("</p>")[0]
    assert "Slowest load" in part
    assert "lowest save" not in part
    assert 'id="times"' not in render(made | {"measurements": [], "requirements": []})


def test_a_certificate_lists_the_next_steps_of_its_buyer():
    made = report_pages.document("certified")
    part = render(made).partition('id="after-certificate"')[2].partition("</ul>")[0]
    assert part.count("<li>") == 4
    assert "Ask whether the vendor, the buyer or a third party tested." in part
    third = made["system"] | {"tester": {"role": "third party"}}
    signed = [s | {"value": "key.pem"} if s["option"] == "--ckpt-sign" else s for s in made["settings"]]
    run = made["run"] | {"directory": "run"}
    page = render(made | {"system": third, "settings": signed, "run": run})
    part = page.partition('id="after-certificate"')[2].partition("</ul>")[0]
    assert "Verify the run directory and its signature" in part
    assert "Ask " not in part
    assert 'id="after-certificate"' not in render(report_pages.document("not certified"))


def test_loads_that_may_have_come_from_a_cache_imply_no_size_of_cluster():
    # The first measurement ends during its loads, so COLD has no result.
    ended, complete = synthetic_run.report(fails_after=15)["sufficient_up_to_accelerators"]
    assert (ended["load"], ended["overall"], ended["is_load_proven"]) == (None, None, False)
    assert ended["save"]
    assert complete["load"]
    assert complete["is_load_proven"]
    made = report_pages.document("certified")
    note = "not stated for loads that were not proven to come from the storage"
    assert note not in render(made)
    sizes = [
        s | {"load": None, "overall": None, "is_load_proven": False} for s in made["sufficient_up_to_accelerators"]
    ]
    page = render(made | {"sufficient_up_to_accelerators": sizes})
    assert note in page
    rows = re.findall(r'<td class="of">load</td>.*?</tr>', page.partition('class="glance"')[2], re.DOTALL)
    assert rows[0].endswith('<td class="n">–</td></tr>')


def test_a_truncated_bar_shows_the_share_of_the_limit():
    made = report_pages.document("not certified")
    used = [1 - kind.margin for s in view.subjects(made) for kind in s.kinds if kind.margin is not None]
    shares = [f"{share:.2f}" for share in used if share > 1.25]
    assert shares
    assert re.findall(r'data-used="([^ ]+) ×"', render(made)) == shares
