"""The vendor's description of the tested system: how it is read, when it is required, which entries are missing."""

from __future__ import annotations

import base64
import tomllib

import pytest
from PIL import Image

from pytest_ckpt.cli.main import main
from pytest_ckpt.config.system_description import check_described, read_system, template
from pytest_ckpt.facts.system import FACTS, PICTURE, REPEATED, missing_facts
from pytest_ckpt.report.html import write_certificate
from pytest_ckpt.support.errors import UsageError
from tests.support import synthetic_run

NEEDED = [f"{table}.{fact.name}" for table, facts in FACTS.items() for fact in facts if fact.needed]


def filled(text):
    """Return the template ``text`` with each example line uncommented, except the line for the picture."""
    lines = (line for line in text.splitlines() if not line.startswith("# picture"))
    return "\n".join(line[2:] if " = " in line or line.startswith("# [[") else line for line in lines)


def test_the_template_is_toml_and_what_is_filled_in_is_read(tmp_path, capsys):
    file = tmp_path / "system.toml"
    assert main(["doctor", f"--write-system={file}"]) == 0
    assert f"--ckpt-system={file}" in capsys.readouterr().out
    assert tomllib.loads(file.read_text()) == {table: {} for table in FACTS}
    file.write_text(filled(template()))
    found = read_system(file)
    found["topology"][PICTURE] = ""
    once = {table: set(found[table]) for table in FACTS}
    assert once == {table: {fact.name for fact in facts} for table, facts in FACTS.items()}
    several = {table: [set(entry) for entry in found[table]] for table in REPEATED}
    assert several == {table: [{fact.name for fact in facts}] for table, facts in REPEATED.items()}
    assert missing_facts(found) == []
    assert main(["doctor", f"--write-system={file}"]) == 4
    assert file.read_text() == filled(template()), "a file that was filled in is never overwritten"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[sytem]\nvendor = 'x'", r"'sytem' is not a table \(did you mean 'system'\?\)"),
        ("[system]\nvender = 'x'", r"\[system\] has no 'vender' \(did you mean 'vendor'\?\)"),
        ("[topology]\nnodes = 'eight'", r"topology.nodes is 'eight', and a whole number is expected"),
        ("[topology]\nnodes = true", "a whole number is expected"),
        ("[system]\nvendor = 3", "a text in quotes is expected"),
        ("system = 'x'", r"written as \[system\]"),
        ("[[system]]\nvendor = 'x'", r"'system' is a table, written as \[system\]"),
        ("[materials]\nitem = 'x'", r"'materials' is tables, each written as \[\[materials\]\]"),
        ("[[materials]]\nitem = 'x'\n[[materials]]\nquantity = 'x'", "materials.quantity is 'x', and a whole number"),
        ("[system]\nvendor = ", "it is not TOML"),
        (template(), "the file has no entries"),
        ("", "the file has no entries"),
        (None, "it cannot be read"),
    ],
)
def test_errors_in_the_description_are_named(tmp_path, text, why):
    file = tmp_path / "system.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=why) as raised:
        read_system(file)
    assert raised.value.remedy


@pytest.mark.parametrize("left_out", NEEDED)
def test_a_run_that_requires_a_description_names_missing_fields(tmp_path, left_out):
    file = tmp_path / "system.toml"
    table, name = left_out.split(".")
    lines = filled(template()).splitlines()
    at = lines.index(f"[{table}]")
    at = next(n for n, line in enumerate(lines[at:], at) if line.startswith(f"{name} = "))
    file.write_text("\n".join(lines[:at] + lines[at + 1 :]))
    found = read_system(file)
    assert missing_facts(found) == [left_out]
    with pytest.raises(UsageError, match=f"gate table mine requires .*--ckpt-system lacks {left_out}.") as refused:
        check_described(found, "mine")
    assert "doctor --write-system" in refused.value.remedy


def test_an_empty_description_lacks_exactly_the_mandatory_fields():
    assert missing_facts(None) == NEEDED
    enough = {table: {f.name: "x" for f in facts if f.needed} for table, facts in FACTS.items()}
    check_described(enough, "mine")


def page_of(tmp_path, system, grade="certified"):
    document = synthetic_run.write_run(tmp_path / "run")
    document |= {"system": system, "system_lacks": missing_facts(system), "grade": grade}
    write_certificate(document, tmp_path / "page.html")
    return (tmp_path / "page.html").read_text()


def test_a_certificate_without_a_system_description_mentions_this_first(tmp_path):
    page = page_of(tmp_path, None)
    assert "<dt>System</dt><dd>not described" in page
    assert "System under test" not in page


def test_the_certificate_shows_the_system_escaped_and_what_is_missing(tmp_path):
    page = page_of(tmp_path, {"system": {"vendor": "<b>Example</b>"}, "topology": {"drive_model": "NVMe"}})
    assert "&lt;b&gt;Example&lt;/b&gt;" in page
    assert "drive model" in page
    assert "<dt>Not described</dt><dd>its name, as it can be ordered (system.product); version of" in page
    assert "location of a byte when its write is acknowledged (stable_storage.acknowledged)" in page


def test_the_certificate_has_the_bill_of_materials_who_tested_and_what_may_be_quoted(tmp_path):
    file = tmp_path / "system.toml"
    file.write_text(filled(template()))
    page = page_of(tmp_path, read_system(file))
    assert "Bill of materials" in page
    assert "A9K-CTRL-2" in page
    assert "vm.dirty_ratio" in page
    # Case 25 of the practitioners' reports: the page states whether the measured system was encrypted.
    assert "AES-256 by the drives" in page
    assert "TLS 1.3, by the client" in page
    assert "<dt>Tested by</dt><dd>vendor, Example Labs" in page
    assert "<dt>Valid until</dt><dd>2027-06-30" in page
    assert "<dt>To be quoted</dt><dd>“Example Storage Inc. Array 9000, firmware 7.2.1: certified by pytest-ckpt" in page
    assert "Not described" not in page


@pytest.mark.parametrize("grade", ["rehearsal", "not certified", "incomplete"])
def test_an_uncertified_run_gives_no_text_to_quote(tmp_path, grade):
    file = tmp_path / "system.toml"
    file.write_text(filled(template()))
    page = page_of(tmp_path, read_system(file), grade)
    assert "To be quoted" not in page
    assert "Valid until" not in page


def test_a_picture_of_the_topology_is_in_the_certificate(tmp_path):
    Image.new("RGB", (9, 9), "red").save(tmp_path / "drawn.png")
    file = tmp_path / "system.toml"
    file.write_text('[topology]\npicture = "drawn.png"\n')
    found = read_system(file)
    assert base64.b64decode(found["topology"]["picture"]) == (tmp_path / "drawn.png").read_bytes()
    document = synthetic_run.write_run(tmp_path / "run") | {"system": found}
    write_certificate(document, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "img-src data:" in page
    assert f'src="data:image/png;base64,{found["topology"]["picture"]}"' in page
    # A report may be untrusted: the page shows only an accepted picture.
    for untrusted in (base64.b64encode(SVG.encode()).decode(), "javascript:alert(1)"):
        document["system"] = {"topology": {"picture": untrusted}}
        write_certificate(document, tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text()
        assert "cannot be shown: it is not a PNG or JPEG" in page
        assert untrusted not in page
        assert "img-src" not in page


SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><rect width="3" height="3"/></svg>'


@pytest.mark.parametrize(("name", "content", "message"), [
    ("none.png", None, "No such file"), ("/dev/zero", None, "not a regular file"),
    ("x.svg", SVG, r"(?s)it is not a PNG or JPEG; SVG is not supported\..*Give a PNG or JPEG of at most 256 KiB"),
])  # fmt: skip
def test_a_picture_that_is_not_accepted_is_refused_with_its_name(tmp_path, name, content, message):
    if content:
        (tmp_path / name).write_text(content)
    (tmp_path / "system.toml").write_text(f'[topology]\npicture = "{name}"\n')
    with pytest.raises(UsageError, match=message):
        read_system(tmp_path / "system.toml")
