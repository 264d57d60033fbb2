"""The table of options, where each can be said, and which of two wins."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.config import parsers
from pytest_ckpt.facts.engines import BUILT_IN
from pytest_ckpt.facts.options import GROUPS, OPTIONS, ROLES
from pytest_ckpt.facts.settings import Settings
from pytest_ckpt.grading.document import disclosures
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.support.errors import UsageError
from tests.support.said_in_three_places import KEYS, VALUES, settings_of

# What scripts may rely on, as the documentation promises it.
CONTRACT = {
    "--ckpt-target": "",
    "--ckpt-cluster": "",
    "--ckpt-save-budget": "5%",
    "--ckpt-load-budget": "1%",
    "--ckpt-checkpoints-per-failure": "20",
    "--ckpt-failures": "llama3",
    "--ckpt-model": "all",
    "--ckpt-mode": "auto",
    "--ckpt-ranks": "",
    "--ckpt-hosts": "localhost",
    "--ckpt-launcher": "",
    "--ckpt-engine": "torch",
    "--ckpt-profile": "acceptance",
    "--ckpt-scale": "",
    "--ckpt-operations": "",
    "--ckpt-drop-caches": "auto",
    "--ckpt-io-timeout": "300s",
    "--ckpt-seed": "",
    "--ckpt-keep-files": "off",
    "--ckpt-report": "ckpt-report",
}


def origin(of, key):
    option = "--ckpt-" + key.replace("_", "-")
    return next(o for o in of.origins if o.option == option)


# --- the table -------------------------------------------------------------------------------------------------------


def test_every_option_of_the_contract_is_there_with_its_default():
    defaults = {o.flag: o.default for o in OPTIONS}
    assert {flag: defaults.get(flag) for flag in CONTRACT} == CONTRACT


def test_the_cluster_has_a_short_name():
    assert {o.flags for o in OPTIONS if o.key == "cluster"} == {("--cluster", "--ckpt-cluster")}


def test_every_option_of_the_contract_is_tried_here():
    assert {o.key for o in OPTIONS if o.flag in CONTRACT} == set(VALUES)


@pytest.mark.parametrize("option", OPTIONS, ids=[o.key for o in OPTIONS])
def test_every_row_of_the_table_is_whole(option):
    assert option.group in GROUPS
    assert set(option.roles) <= set(ROLES)
    assert callable(getattr(parsers, option.parse))
    assert option.example != option.default
    of = settings_of({option.key: option.example} if option.key != "config" else {})
    assert option.field == "-" or hasattr(of, option.field or option.key)


def test_every_field_of_the_settings_but_two_is_an_option_s():
    fields = [o.field or o.key for o in OPTIONS if o.field != "-"]
    assert sorted([*fields, "effort", "origins"]) == sorted(f.name for f in dataclasses.fields(Settings))


def test_what_a_certificate_discloses_is_said_by_the_option_s_row():
    gates = Gates(name="", text="")
    for option in OPTIONS:
        if option.key != "config":
            found = disclosures(settings_of({option.key: option.example}), gates)
            assert any(line.startswith(f"{option.flag} ") for line in found) is ("disclosed" in option.roles), (
                option.key
            )


def test_without_a_word_the_settings_are_those_of_an_acceptance_run():
    of = settings_of()
    assert (of.target, of.cluster, of.launcher, of.seed) == (None, None, None, None)
    assert (of.save_budget, of.load_budget, of.checkpoints_per_failure, of.failures) == (0.05, 0.01, 20, "llama3")
    assert (of.models, of.mode, of.ranks, of.hosts) == (tuple(MODELS.values()), "auto", 8, ())
    assert (of.engines, of.profile, of.scale, of.operations) == ((BUILT_IN[0],), "acceptance", 1.0, 10)
    assert (of.drop_caches, of.io_timeout_seconds, of.keep_files, of.report) == ("auto", 300.0, False, "ckpt-report")
    assert {o.source for o in of.origins} == {"default"}


# --- where each can be said, and which wins --------------------------------------------------------------------------


@pytest.mark.parametrize("key", KEYS)
def test_an_option_on_the_command_line(key):
    text, field, value = VALUES[key]
    of = settings_of({key: text})
    assert getattr(of, field) == value
    assert (origin(of, key).value, origin(of, key).source) == (text, "command line")


@pytest.mark.parametrize("key", KEYS)
def test_an_option_in_pytest_s_configuration(key):
    text, field, value = VALUES[key]
    of = settings_of(ini={key: text})
    assert getattr(of, field) == value
    assert origin(of, key).source == "pytest configuration"


@pytest.mark.parametrize("key", KEYS)
def test_an_option_in_a_toml_file(key, tmp_path):
    text, field, value = VALUES[key]
    file = tmp_path / "array.toml"
    file.write_text(f'ckpt_{key} = "{text}"\n')
    for way in ({"command_line": {"config": str(file)}}, {"ini": {"config": str(file)}}):
        of = settings_of(**way)
        assert getattr(of, field) == value
        assert origin(of, key).source == str(file)


@pytest.mark.parametrize("key", [k for k in KEYS if k != "engine"])
def test_the_command_line_wins_over_the_file_and_the_file_over_the_configuration(key, tmp_path):
    text, field, value = VALUES[key]
    file = tmp_path / "array.toml"
    other = {
        "cluster": "1",
        "model": "llama3-1t",
        "hosts": "x:1",
        "profile": "nightly",
        "mode": "full",
        "keep_files": "off",
        "failures": "llama3",
        "io_timeout": "1s",
        "scale": "1",
    }
    other = other.get(key, "9%" if "%" in text else "9")
    file.write_text(f'ckpt_{key} = "{text}"\n')
    assert getattr(settings_of(ini={key: other, "config": str(file)}), field) == value
    file.write_text(f'ckpt_{key} = "{other}"\n')
    assert getattr(settings_of({key: text}, ini={"config": str(file)}), field) == value
    assert getattr(settings_of({key: text}, ini={key: other}), field) == value


def test_the_types_of_toml_are_taken_too(tmp_path):
    file = tmp_path / "array.toml"
    file.write_text(
        "ckpt_cluster = 24_000\nckpt_save_budget = 0.03\nckpt_keep_files = true\n"
        'ckpt_model = ["llama3-8b", "llama3-70b"]\nckpt_hosts = ["n1:4", "n2:4"]\n'
    )
    of = settings_of({"config": str(file)})
    assert (of.cluster, of.save_budget, of.keep_files) == (24_000, 0.03, True)
    assert (of.models, len(of.hosts)) == ((MODELS["llama3-8b"], MODELS["llama3-70b"]), 2)
    file.write_text("ckpt_keep_files = false\n")
    assert settings_of({"config": str(file)}).keep_files is False


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('ckpt_save_budgt = "3%"', ["'ckpt_save_budgt' is no option", "did you mean 'ckpt_save_budget'?"]),
        ('save_budget = "3%"', ["'save_budget' is no option", "did you mean 'ckpt_save_budget'?"]),
        ('ckpt_config = "other.toml"', ["'ckpt_config' is no option"]),
        ("[ckpt]\noverhead = 3", ["'ckpt' is no option"]),
        ("ckpt_save_budget = ", ["it is not TOML", "ckpt_name = value"]),
        ("ckpt_save_budget = 3", ["--ckpt-save-budget 3", "write 3%"]),
        ('ckpt_save_budget = ""', ["--ckpt-save-budget has no value"]),
    ],
)
def test_a_toml_file_with_a_mistake_is_named(text, says, tmp_path):
    file = tmp_path / "array.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as refusal:
        settings_of({"config": str(file)})
    for word in (str(file), *says):
        assert word in str(refusal.value)


def test_a_toml_file_that_is_not_utf_8_is_named(tmp_path):
    file = tmp_path / "array.toml"
    file.write_bytes(b'ckpt_target = "\xff"')
    with pytest.raises(UsageError, match="it is not TOML"):
        settings_of({"config": str(file)})


def test_an_endurance_lasts_no_longer_than_it_can_be_recorded():
    assert settings_of({"duration": "30d"}).duration_seconds == 30 * 86_400
    with pytest.raises(UsageError, match="up to 30 days are expected"):
        settings_of({"duration": "721h"})


def test_a_wrong_value_says_where_it_was_written(tmp_path):
    file = tmp_path / "array.toml"
    file.write_text('ckpt_save_budget = "101%"')
    with pytest.raises(UsageError, match=r"--ckpt-save-budget 101% \(in .*array.toml\)"):
        settings_of({"config": str(file)})
    with pytest.raises(UsageError, match=r"--ckpt-save-budget 101% \(in pytest configuration\)"):
        settings_of(ini={"save_budget": "101%"})
    with pytest.raises(UsageError, match=r"--ckpt-save-budget 101%: "):
        settings_of({"save_budget": "101%"})
