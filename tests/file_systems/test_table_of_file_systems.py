"""The table of file systems agrees with the page and with the package. No file system is mounted."""

from __future__ import annotations

import pytest

from pytest_ckpt.facts.checks import BY_NAME as CHECKS
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.remedies import KNOWN
from tests.support import CHECKOUT
from tests.support.docs_pages import file_systems_page
from tests.support.file_systems.reproduce import REPRODUCTIONS
from tests.support.file_systems.results import is_shown, recorded
from tests.support.file_systems.table import BY_NAME, FILE_SYSTEMS

SEEN = recorded()


def test_the_page_is_made_from_what_the_tests_saw():
    page = file_systems_page.PAGE.read_text()
    assert page == file_systems_page.with_results(page), "run: python -m tests.support.docs_pages.file_systems_page"


def test_every_file_system_was_tried_and_no_other_is_kept():
    assert set(SEEN) == set(BY_NAME), (
        "run: CKPT_UPDATE_FILE_SYSTEMS=docs/file_systems.json pytest --all tests/file_systems"
    )


@pytest.mark.parametrize("row", FILE_SYSTEMS, ids=lambda row: row.name)
def test_the_observed_results_are_those_of_the_table(row):
    seen = SEEN[row.name]
    failed = {n for n, v in seen["not_met"].items() if (v["outcome"], v["severity"]) == ("failed", "required")}
    assert failed - set(row.may_fail) == set(row.fails)
    assert seen["how"] == row.how
    for check, way in row.shows.items():
        assert check not in row.fails or is_shown(way, seen["shown"][way])
    assert not any(is_shown(way, seen["shown"][way]) for way in row.cured_reproductions)
    assert row.is_served is bool(seen.get("server_lost"))


@pytest.mark.parametrize("row", FILE_SYSTEMS, ids=lambda row: row.name)
def test_a_row_names_checks_and_ways_that_there_are(row):
    named = {*row.fails, *row.may_fail, *row.undecided, *row.shows}
    assert named <= {*CHECKS, *REQUIREMENTS}
    assert set(row.shows.values()) | set(row.cured_reproductions) <= set(REPRODUCTIONS)
    assert not row.cures or row.cures in BY_NAME


def test_the_nightly_packages_suffice_to_mount_every_row():
    installed = {word for name in ("run", "nightly") for word in (CHECKOUT / ".ci" / name).read_text().split()}
    assert not {package for row in FILE_SYSTEMS for package in row.packages} - installed


def failed_checks(row):
    """Return the names of the required conformance checks that failed in the recorded run of a file system."""
    not_met = SEEN[row.name]["not_met"].items()
    return {n for n, v in not_met if n in CHECKS and (v["outcome"], v["severity"]) == ("failed", "required")}


@pytest.mark.parametrize("row", FILE_SYSTEMS, ids=lambda row: row.name)
def test_the_package_knows_every_failure_that_was_seen(row):
    known = {check for k in KNOWN if SEEN[row.name]["kind"] in k.kinds for check in k.checks}
    assert failed_checks(row) <= known


@pytest.mark.parametrize("row", [row for row in FILE_SYSTEMS if row.cures], ids=lambda row: row.name)
def test_a_cure_names_the_checks_that_it_makes_fail(row):
    ill = SEEN[row.cures]
    (cure,) = {k.cure for k in KNOWN if ill["kind"] in k.kinds and k.cure}
    for check in failed_checks(row) & set(ill["met"]):
        assert f"{check.removesuffix('-second-client')} may then fail" in cure


@pytest.mark.parametrize("row", FILE_SYSTEMS, ids=lambda row: row.name)
def test_a_cause_names_the_main_effect_of_its_reproduction(row):
    """The stated cause of a failed check names the symptom that the reproduction of the failure shows most often.

    For example, the cause does not state a missing name if the reproduction shows wrong bytes.
    """
    words = {"bytes of no version": "bytes of", "ENOENT at open": "ENOENT", "some of the files, or none": "listing"}
    for check, way in row.shows.items():
        shown = {word: count for word, count in SEEN[row.name]["shown"][way].items() if word in words}
        if check in row.fails and shown:
            assert words[max(shown, key=shown.__getitem__)] in row.fails[check]


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.name}-{known.checks[0]}")
def test_every_known_failure_of_a_file_system_was_observed(known):
    rows = [row for row in FILE_SYSTEMS if SEEN[row.name]["kind"] in known.kinds and not row.cures]
    assert rows, "no file system of this kind was tried"
    for check in known.checks:
        assert any(check in {**row.fails, **row.may_fail} for row in rows), check
    if known.cure:
        # The cure was mounted as well, and meets all of these checks.
        cured = [row for row in FILE_SYSTEMS if row.cures in {r.name for r in rows}]
        assert cured
        for row in cured:
            assert not set(known.checks) & set(SEEN[row.name]["not_met"])
