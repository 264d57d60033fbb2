"""Generated pages equal the output of their generators, and name every entry of the tables."""

from __future__ import annotations

import inspect
import json
import tomllib

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.facts.options import ACTIONS, OPTIONS
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging import loads, speed
from pytest_ckpt.report.front import HEADINGS
from tests.support.docs_pages import options_page, remedies, requirements_page


def test_the_page_of_options_is_made_from_the_table_of_options():
    page = options_page.PAGE.read_text()
    assert page == options_page.with_options(page), "run: python -m tests.support.docs_pages.options_page"


def test_the_files_that_set_all_options_are_such_as_a_run_takes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = [part.partition("```")[0] for part in options_page.from_the_table().split("```toml\n")[1:]]
    for name, text in zip(("all.toml", "actions.toml"), texts, strict=True):
        (tmp_path / name).write_text(text)
    assert {o.ini_name for o in OPTIONS if o.is_option} - set(tomllib.loads(texts[0])) == {"ckpt_config"}
    settings = resolve({"ckpt_config": "all.toml"}, {})
    sources = {origin.option: origin.source for origin in settings.origins}
    for option in OPTIONS:
        if option.key != "config" and not option.variables:
            assert sources[option.flag] == ("actions.toml" if option.parent == ACTIONS else "all.toml")


def test_the_page_of_requirements_is_made_from_the_catalogue():
    page = requirements_page.PAGE.read_text()
    assert page == requirements_page.with_catalogue(page), "run: python -m tests.support.docs_pages.requirements_page"


def test_the_remedies_in_a_certificate_are_those_of_the_faq():
    assert remedies.FILE.read_text() == remedies.from_the_faq(), "run: python -m tests.support.docs_pages.remedies"


def test_the_remedies_have_no_links_and_no_examples():
    document = json.loads(remedies.FILE.read_text())
    assert set(document) == HEADINGS
    for text in document.values():
        assert "<a " not in text
        assert "<pre" not in text
        assert not text.rstrip().endswith(":</p>")


def test_every_requirement_and_every_check_stands_on_its_page():
    page = requirements_page.PAGE.read_text()
    for requirement in REQUIREMENTS.values():
        assert page.count(f"\n### {requirement.id}: ") == 1
    for check in CHECKS:
        part = page.partition(f"\n### {check.requirement}: ")[2].partition("\n### ")[0]
        assert f"| {check.subject} |" in part


ROWS = {
    line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
    for line in requirements_page.from_the_catalogue().partition("\n## Speed")[0].splitlines()
    if line.startswith("| ")
}
COLUMNS = ROWS.pop("requirement")


def kinds_of(requirement):
    """Return {gate table: gate kind} from the first row of a requirement on the page."""
    row = next(kinds for name, kinds in ROWS.items() if name.startswith(f"[{requirement}]"))
    return dict(zip(COLUMNS, row, strict=True))


def test_a_gate_table_shows_no_requirements_that_its_targets_cannot_have():
    for name in ("CRASH-ASYNC", "RETAIN-COMMITTED", "SNAPSHOT", "NEARFULL", "COMMIT", "CAPABILITIES"):
        dashes = {table for table, kind in kinds_of(name).items() if kind == requirements_page.NOT_ASKED}
        assert dashes == {"object", "object-local"}
    for name in ("OBJECT-COMMIT", "OBJECT-LIMITS"):
        dashes = {table for table, kind in kinds_of(name).items() if kind == requirements_page.NOT_ASKED}
        assert dashes == {"posix-shared", "serving", "posix-local", "gateway"}


def test_requirements_that_need_an_input_are_shown_as_advisory_where_given():
    asked = resolve({}, {})
    for requirement in (r for r in REQUIREMENTS.values() if r.suite != "conformance"):
        kinds = {kind for kind in kinds_of(requirement.id).values() if kind.startswith(("required", "advisory"))}
        assert requirement.is_requested(asked) or kinds <= {"advisory where given"}
    assert set(kinds_of("RETENTION").values()) == {"advisory where given"}
    assert set(kinds_of("STRAGGLER").values()) == {"advisory"}


def test_every_requirement_of_speed_has_a_figure_whose_units_its_judges_give():
    for requirement in REQUIREMENTS.values():
        if requirement.is_measured:
            assert requirement.figure
            own = inspect.getmodule(requirement.function)
            module = "".join(inspect.getsource(m) for m in (own, loads, speed, loads) if m)
            assert all(f'"{unit}"' in module for unit in requirement.units)
            assert ("{maximum" in requirement.limit) is (requirement.maximum is not None)
