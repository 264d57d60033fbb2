"""Each input of a limit has an origin: published, set by the operator, or this program's default."""

from __future__ import annotations

import re

import pytest

from pytest_ckpt.facts.options import OPTIONS, option_of
from pytest_ckpt.report.html import render
from pytest_ckpt.sizing.limits import DEFAULTS, limit_inputs
from tests.support import report_pages
from tests.support.option_examples import settings_of


def origins(**said):
    return {given.option: given.origin for given in limit_inputs(settings_of({"cluster": "16000", **said}))}


def test_without_other_words_the_cluster_is_the_operators_and_all_else_is_a_default():
    assert origins() == {
        "--cluster": "set by the operator",
        "--ckpt-failures": "published",
        "--ckpt-checkpoints-per-failure": "published",
        "--ckpt-save-budget": "published",
        "--ckpt-load-budget": "default of this program",
    }


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("failures", "mttf:50000h"),
        ("checkpoints_per_failure", "30"),
        ("save_budget", "3%"),
        ("load_budget", "2%"),
        ("serving_limit", "60s"),
        ("consolidate_limit", "2h"),
        ("preemption_notice", "2min"),
        ("vendor_max_rate", "60GB/s"),
        ("target_share", "5%"),
        ("loader_rate", "20MB/s"),
    ],
)
def test_a_value_set_by_the_operator_is_labelled_so(option, value):
    flag = option_of(option).flag
    (given,) = (g for g in limit_inputs(settings_of({"cluster": "16000", option: value})) if g.option == flag)
    assert (given.value, given.origin, given.source) == (value, "set by the operator", "")


def test_a_default_that_limits_nothing_in_a_run_is_no_input_of_it():
    assert "--ckpt-suite=serving:consolidate-limit" not in origins()
    assert origins(suite="serving")["--ckpt-suite=serving:consolidate-limit"] == "default of this program"


def test_every_published_value_names_title_publisher_and_year():
    for given in limit_inputs(settings_of({"cluster": "16000"})):
        assert bool(given.source) == (given.origin == "published")
    (failures,) = (g for g in limit_inputs(settings_of({"cluster": "16000"})) if g.option == "--ckpt-failures")
    assert failures.sentence == "--ckpt-failures llama3: published (Meta, The Llama 3 Herd of Models, 2024)."


def test_every_option_that_limits_follow_from_is_in_the_table():
    numbers = {option.key for option in OPTIONS if "limit" in option.roles or option.group == "cluster and limits"}
    assert numbers - {"gate_table", "waivers"} <= set(DEFAULTS)


def test_the_certificate_marks_each_input_at_its_quantity_or_in_a_row_of_its_own():
    document = report_pages.document("certified")
    document["cluster"]["inputs"] = []
    assert "tag origin" not in render(document)
    document["cluster"]["inputs"] = [
        {"option": "--ckpt-save-budget", "value": "3%", "origin": "set by the operator", "source": ""},
        {"option": "--ckpt-load-budget", "value": "1%", "origin": "published", "source": "a <b>, 2025"},
        {"option": "--ckpt-suite=serving:load-limit", "value": "60s", "origin": "set by the operator", "source": ""},
    ]
    rows = dict(re.findall(r'<tr[^>]*><th scope="row">([^<]*)</th>(.*?)</tr>', render(document)))
    assert rows["save budget"].endswith('<span class="tag origin">set by the operator</span></td>')
    assert '<span class="tag origin">published (a &lt;b&gt;, 2025)</span>' in rows["load budget"]
    assert "60s" in rows["--ckpt-suite=serving:load-limit"]
    assert "tag origin" not in rows["save limit"]
