"""Gate tables: valid contents, the rows that a user's table may relax, and how the report names relaxed rows."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.config.gate_files import built_in, load_gates
from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.facts.gate_tables import GATE_TABLES
from pytest_ckpt.grading.catalogue import REQUIREMENTS, known_names
from pytest_ckpt.judging.gates import GateKind
from pytest_ckpt.judging.verdicts import severity_of
from pytest_ckpt.support.errors import UsageError
from tests.support.synthetic_target import mounted


def user_table(tmp_path, text, extends="posix-shared", kind="posix-shared"):
    file = tmp_path / "own.toml"
    file.write_text(f'name = "ours"\nextends = "{extends}"\n{text}')
    return load_gates(str(file), kind)


# Checks of required requirements on which no checkpoint library relies.
ADVISORY_IN_ALL = {"VISIBLE.append", "MMAP.shared"}
# Checks of object stores on which no checkpoint client relies: reported, but not required.
REPORTED_OF_STORES = (
    "OBJECT-CREATE.multipart", "OBJECT-CREATE.put", "OBJECT-DIGEST.kept", "OBJECT-LIMITS.parts", "OBJECT-UPDATE.put",
)  # fmt: skip


@pytest.mark.parametrize("name", GATE_TABLES)
def test_every_shipped_table_can_be_read_and_names_its_purpose(name):
    gates = built_in(name)
    assert gates.name == name
    assert gates.text.endswith(".")
    assert gates.relaxed == ()
    assert gates.certifies == (name not in {"speed-only", "object-local"})


@pytest.mark.parametrize(("kind", "name"), [
    ("ext4", "posix-local"),
    ("xfs", "posix-local"),
    ("nfs4", "posix-shared"),
    ("lustre", "posix-shared"),
    ("fuse.s3fs", "gateway"),
    ("fuse.JuiceFS", "gateway"),
    ("fuse.unheard-of", "posix-shared"),
])  # fmt: skip
def test_the_file_system_chooses_the_table(kind, name):
    assert load_gates("auto", mounted(kind).gate_kind).name == name


def test_speed_alone_asks_nothing_of_behaviour():
    gates = built_in("speed-only")
    for requirement in REQUIREMENTS.values():
        kind = gates.kind(requirement.id, "", requirement.severity)
        assert (kind == "off") == (
            requirement.suite not in {"performance", "strategies", "serving", "scaling", "metadata"}
        )


def test_shared_storage_requires_of_two_clients_what_local_storage_cannot_show():
    shared, local = built_in("posix-shared"), built_in("posix-local")
    for check in CHECKS:
        default = REQUIREMENTS[check.requirement].severity
        severity = "advisory" if check.name in ADVISORY_IN_ALL else default
        cut = check.needs == "power cut" and severity == "required"
        assert shared.kind(check.requirement, check.subject, default) == ("where given" if cut else severity)
        kind = local.kind(check.requirement, check.subject, default)
        given = {"required": "where given", "advisory": "advisory where given"}[severity]
        assert kind == (given if check.needs else severity)


def test_a_table_of_ones_own_changes_what_it_names_and_nothing_else(tmp_path):
    gates = user_table(tmp_path, '[requirements]\nREPEAT = { gate = "required", limit = 0.05 }\n')
    assert severity_of(REQUIREMENTS["REPEAT"], "llama3-8b-full", gates) == "required"
    assert gates.limit("REPEAT", "", 0.10) == 0.05
    assert severity_of(REQUIREMENTS["STRAGGLER"], "llama3-8b-full", gates) == "advisory"
    assert gates.relaxed == ()


def test_a_row_for_a_suite_or_a_need_stands_for_all_that_belongs_to_it_and_below_rows_by_name(tmp_path):
    gates = user_table(
        tmp_path,
        '[suites]\ncontention = { gate = "off" }\n[needs]\n"power cut" = { gate = "advisory" }\n'
        '[requirements]\nSTORM = { gate = "required" }\n',
    )
    for requirement in REQUIREMENTS.values():
        if requirement.suite == "contention":
            expected = "required" if requirement.id == "STORM" else "off"
            assert gates.kind(requirement.id, "", requirement.severity) == expected
    assert {c.name for c in CHECKS if gates.kind(c.requirement, c.subject, "required") == "advisory"} == {
        *(c.name for c in CHECKS if c.needs == "power cut"),
        *ADVISORY_IN_ALL,
    }
    assert "SHIFTED is off (posix-shared: required)." in gates.relaxed


@pytest.mark.parametrize(("row", "expected_text"), [
    ('REPEAT = { limit = 0.2 }', "The limit of REPEAT is 0.2 (posix-shared: 0.1)."),
    ('"STALE.names" = { limit = 5 }', "The limit of STALE.names is 5 (posix-shared: 1)."),
    ('SAVE = { gate = "advisory" }', "SAVE is advisory (posix-shared: required)."),
    ('COMMIT = { gate = "off" }', "COMMIT is off (posix-shared: required)."),
    ('"COMMIT.file" = { gate = "where given" }', "COMMIT.file is where given (posix-shared: required)."),
])  # fmt: skip
def test_relaxed_requirements_are_named(tmp_path, row, expected_text):
    assert user_table(tmp_path, f"[requirements]\n{row}\n").relaxed == (expected_text,)


@pytest.mark.parametrize(("text", "certifies"), [
    ("", True),
    ('[requirements]\nREPEAT = { gate = "required" }\n', True),
    ('[requirements]\nREPEAT = { gate = "off" }\n', True),
    ('[requirements]\nREPEAT = { limit = 0.5 }\n', True),
    ('[requirements]\nSAVE = { gate = "advisory" }\n', False),
    ('[requirements]\nCOMMIT = { gate = "off" }\n', False),
    ('[requirements]\n"COMMIT.file" = { gate = "where given" }\n', False),
    ('[requirements]\n"STALE.names" = { limit = 5 }\n', True),
    ('[requirements]\n"LIVE.calls" = { limit = 500 }\n', False),
    ('[suites]\ncontention = { gate = "off" }\n', False),
    ('[needs]\n"power cut" = { gate = "advisory" }\n', False),
])  # fmt: skip
def test_a_table_that_relaxes_what_is_required_certifies_nothing_and_one_that_relaxes_advice_does(
    tmp_path, text, certifies
):
    assert user_table(tmp_path, text).certifies is certifies


@pytest.mark.parametrize(("extends", "kind"), [("speed-only", "posix-shared"), ("object-local", "object-local")])
def test_no_table_of_ones_own_certifies_more_than_the_one_that_it_extends(tmp_path, extends, kind):
    assert not user_table(tmp_path, "", extends=extends, kind=kind).certifies


@pytest.mark.parametrize(("kind", "word"), [
    ("posix-shared", "object"), ("gateway", "object-local"), ("object", "posix-shared"), ("object-local", "object"),
])  # fmt: skip
def test_a_table_judges_only_what_it_is_for(tmp_path, kind, word):
    """A gate table is refused if it is made for another kind of target.

    Otherwise, a run could be certified without the checks that its target needs.
    """
    with pytest.raises(UsageError, match="is for"):
        load_gates(word, kind)
    with pytest.raises(UsageError, match="is for"):
        user_table(tmp_path, "", extends=word, kind=kind)
    assert load_gates("speed-only", kind).table == "speed-only"


def test_local_object_stores_have_the_same_requirements_and_are_never_certified():
    there, here = built_in("object"), built_in("object-local")
    assert (there.certifies, here.certifies) == (True, False)
    checks = [c for c in CHECKS if "objects" in REQUIREMENTS[c.requirement].needs]
    for check in checks:
        names = check.requirement, check.subject
        assert (
            there.kind(*names, "none")
            == here.kind(*names, "none")
            == ("advisory" if check.name in REPORTED_OF_STORES else "required")
        )
    assert set(REPORTED_OF_STORES) < {check.name for check in checks}


def test_a_row_for_a_requirement_overrides_rows_for_its_checks_in_the_extended_table(tmp_path):
    gates = user_table(tmp_path, '[requirements]\nCOMMIT = { gate = "advisory" }\n', extends="posix-local")
    for check in CHECKS:
        if check.requirement == "COMMIT":
            assert gates.kind("COMMIT", check.subject, "required") == "advisory"
    assert gates.relaxed == ("COMMIT is advisory (posix-local: required).",)


@given(st.sampled_from(sorted(known_names())), st.sampled_from(get_args(GateKind)))
def test_only_a_weaker_requirement_counts_as_relaxed(name, kind):
    import tempfile  # noqa: PLC0415 - a new directory for each example
    from pathlib import Path  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as directory:
        gates = user_table(Path(directory), f'[requirements]\n"{name}" = {{ gate = "{kind}" }}\n')
    strength = get_args(GateKind)[::-1]
    before = built_in("posix-shared").kinds.get(name, known_names()[name].gate)
    assert bool(gates.relaxed) == (strength.index(kind) < strength.index(before))


@pytest.mark.parametrize(("text", "words"), [
    ('[requirements]\nSTAEL = { limit = 1 }\n', ["'STAEL' is not a known requirement", "did you mean 'STALE'?"]),
    ('[requirements]\nSAVE = { gate = "requird" }\n', ["gate of SAVE", "did you mean 'required'?"]),
    ('[requirements]\nSAVE = { limt = 1 }\n', ["'limt'", "did you mean 'limit'?"]),
    ('[requirements]\nSAVE = { limit = 1 }\n', ["SAVE has no separate limit"]),
    ('[requirements]\nREPEAT = { limit = -1 }\n', ["the limit of REPEAT is -1"]),
    ('[requirements]\nREPEAT = { limit = true }\n', ["the limit of REPEAT is True"]),
    ('[requirements]\nREPEAT = 3\n', ["REPEAT needs a table"]),
    ('requirments = 1\n', ["'requirments'", "did you mean 'requirements'?"]),
    ('[suites]\nspeed = { gate = "off" }\n', ["'speed' is not a known name in [suites]"]),
    ('[suites]\nconformance = { limit = 1 }\n', ["conformance needs a table"]),
    ('[needs]\n"power cut" = { gate = "of" }\n', ["did you mean 'off'?"]),
    ('[requirements\n', ["own.toml"]),
])  # fmt: skip
def test_an_error_in_a_gate_table_is_reported_with_the_nearest_name(tmp_path, text, words):
    with pytest.raises(UsageError) as error:
        user_table(tmp_path, text)
    for word in words:
        assert word in str(error.value)


def test_a_table_must_extend_one_that_ships(tmp_path):
    with pytest.raises(UsageError, match="it must extend one of posix-shared, serving, posix-local"):
        user_table(tmp_path, "", extends="posix")


@pytest.mark.parametrize(("word", "expected_text"), [
    ("posix-sharde", "did you mean 'posix-shared'?"),
    ("nothing-there.toml", "cannot be read"),
])  # fmt: skip
def test_a_table_that_is_not_there_is_a_usage_error(word, expected_text):
    with pytest.raises(UsageError) as error:
        load_gates(word, "posix-local")
    assert expected_text in str(error.value)


@pytest.mark.parametrize(("word", "kind"), [
    ("posix-local", "posix-shared"),
    ("gateway", "posix-shared"),
    ("posix-local", "gateway"),
])  # fmt: skip
def test_a_table_weaker_than_that_of_the_target_certifies_nothing_and_is_named(word, kind):
    gates = load_gates(word, kind)
    assert gates.certifies == (built_in(word) == gates)
    if not gates.certifies:
        assert gates.relaxed[-1].startswith(f"The table of this target is {kind}, which requires more: ")


def test_the_table_of_a_local_disk_certifies_no_network_mount():
    gates = load_gates("posix-local", "posix-shared")
    assert not gates.certifies
    assert "COMMIT" in gates.relaxed[-1] or "VISIBLE" in gates.relaxed[-1]


def test_a_stricter_table_than_that_of_the_target_certifies():
    gates = load_gates("posix-shared", "posix-local")
    assert gates.certifies
    assert gates.relaxed == ()


@pytest.mark.parametrize("name", ["posix-shared", "posix-shared, strict", "Posix-Shared 2", "object-local+"])
def test_a_name_that_begins_like_a_table_that_ships_is_refused(tmp_path, name):
    file = tmp_path / "own.toml"
    file.write_text(f'name = "{name}"\nextends = "posix-local"\n')
    with pytest.raises(UsageError, match="begins with the name of a built-in table"):
        load_gates(str(file), "posix-local")
